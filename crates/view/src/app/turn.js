// A run on a page: what is asked, the team as it comes into being, tokens against the budget, the answer as it is written.
import { all, count, dollars, duration, fragment, make, morph, plural, send } from "./base.js";
import "./approve.js";
import "./copy.js";

/** How often the picture of the team is drawn anew at most, in milliseconds. */
const FRAME = 150;
/** How often the gauges move on while nothing is heard, in milliseconds. */
const TICK = 500;
/** Who wrote a team, in words; of a team that was given there is nothing to say. */
const AUTHORS = { policy: "by the policy", prompted: "by a model", guard: "by the guard", repair: "repaired", fallback: "the fallback" };
let turns = 0;

/** Shows a run and follows it to its end. `actions(turn)` makes what one can do once it has ended. */
export class Turn {
  constructor(run, actions) {
    this.run = run;
    this.number = ++turns;
    this.actions = actions;
    this.texts = new Map();
    /** Pieces that have come of replies whose tokens are not counted yet; most are a token each. */
    this.pieces = new Map();
    this.fresh = new Set();
    this.state = null;
    this.build();
    this.follow();
  }

  get path() {
    return `/api/runs/${encodeURIComponent(this.run.run_id)}`;
  }

  build() {
    const { question, changed, base } = this.run;
    this.status = make("p", { class: "status", role: "status" }, "Starting …");
    this.gauges = make("div", { class: "gauges" });
    this.graph = make("div", { class: "holder" });
    this.team = make("details", { class: "team", open: true, hidden: true }, make("summary", {}, "Team"), this.graph);
    this.agents = make("div", { class: "agents" });
    this.writing = make("pre", { class: "writing", hidden: true, tabindex: "0", "aria-label": "The team as it is written" });
    this.replies = make("details", { class: "replies", hidden: true }, make("summary", {}, "What the agents say"), this.agents);
    this.stream = make("pre", { class: "stream", hidden: true });
    this.result = make("div", { class: "result", ondecided: () => this.again() });
    this.cancel = make("button", { type: "button", onclick: () => this.stop() }, "Cancel");
    this.foot = make("div", { class: "actions" }, this.cancel);
    const compare = base && `/runs/compare?a=${encodeURIComponent(base)}&b=${encodeURIComponent(this.run.run_id)}`;
    const note = changed && make("p", { class: "changed" }, `Changed: ${changed}. `, make("a", { href: compare }, "Compare with the run before"));
    this.element = make("article", { class: "turn", "aria-busy": "true", "data-run": this.run.run_id },
      make("div", { class: "asked" }, make("h2", { class: "asked-text" }, question), note),
      make("div", { class: "work" }, this.status, this.gauges, this.writing, this.team, this.replies, this.stream, this.result, this.foot));
  }

  follow() {
    clearInterval(this.clock);
    this.clock = setInterval(() => this.later(), TICK);
    this.source = new EventSource(`${this.path}/events`);
    this.source.addEventListener("trace", (message) => this.note(JSON.parse(message.data)));
    this.source.addEventListener("delta", (message) => this.hear(JSON.parse(message.data)));
    this.source.addEventListener("end", (message) => this.end(JSON.parse(message.data)));
    this.source.addEventListener("error", () => {
      if (this.source.readyState === EventSource.CLOSED && this.element.ariaBusy === "true") {
        this.say("The connection to the run was lost.", "odd");
        this.foot.replaceChildren(make("button", { type: "button", onclick: () => this.again() }, "Connect again"));
      }
    });
  }

  again() {
    this.element.ariaBusy = "true";
    this.result.replaceChildren();
    this.cancel.disabled = false;
    this.foot.replaceChildren(this.cancel);
    this.follow();
  }

  async stop() {
    this.cancel.disabled = true;
    try {
      await send("POST", `${this.path}/cancel`, {});
    } catch (error) {
      this.say(error.message, "odd");
      this.cancel.disabled = false;
    }
  }

  say(words, kind = "going") {
    this.status.className = `status ${kind}`;
    this.status.textContent = words;
  }

  /** An event, and what the run came to so far. */
  note({ event, state }) {
    this.state = state;
    this.at = performance.now();
    if (event.type === "return" || event.type === "retry" || event.type === "decision") this.pieces.delete(event.agent);
    if (event.type === "retry" || event.type === "delegate") this.texts.delete(event.type === "retry" ? event.agent : event.to);
    if (event.type === "return") {
      this.texts.set(event.agent, event.reply ?? event.failure?.message ?? "");
      this.fresh.add(event.agent);
    }
    if (event.type === "decision") this.texts.delete("orchestrator");
    this.later();
  }

  /** A piece of a reply. */
  hear({ agent, text }) {
    this.watched = true;
    this.pieces.set(agent, (this.pieces.get(agent) ?? 0) + 1);
    this.texts.set(agent, (this.texts.get(agent) ?? "") + text);
    this.fresh.add(agent);
    this.later();
  }

  later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.show();
    });
  }

  show() {
    const { state } = this;
    const orchestrator = this.texts.get("orchestrator");
    this.writing.hidden = !orchestrator;
    if (orchestrator) this.writing.textContent = orchestrator;
    if (!state) return;
    const done = state.agents.filter((agent) => agent.ended).length;
    if (state.phase === "writing") this.say("Writing the team …");
    else if (state.phase === "running") this.say(`${done} of ${plural(state.agents.length, "agent")} ${done === 1 && state.agents.length === 1 ? "has" : "have"} replied`);
    this.showGauges(state);
    if (state.agents.length > 0) {
      this.team.hidden = false;
      this.replies.hidden = false;
      this.team.querySelector("summary").textContent = `Team: ${plural(state.agents.length, "agent")}${AUTHORS[state.by] ? `, ${AUTHORS[state.by]}` : ""}`;
      this.showAgents(state);
      this.draw();
    }
    const answering = state.phase === "running" && state.answering ? this.texts.get(state.answering) : undefined;
    this.stream.hidden = !answering;
    if (answering && this.stream.textContent !== answering) this.stream.textContent = answering;
  }

  showGauges(state) {
    const gauge = (name, value, words, most) => {
      const bar = most > 0 && make("span", { class: "meter", role: "meter", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": most, "aria-valuenow": Math.min(value, most) }, make("i"));
      if (bar) bar.firstChild.style.width = `${Math.min(100, (100 * value) / most)}%`;
      return make("div", { class: "gauge" }, make("span", { class: "name" }, name), make("b", {}, words), bar);
    };
    const { budget } = state;
    const of = (most, words) => (most ? ` of ${words(most)}` : "");
    // While agents write, their pieces count as tokens, and the clock goes on.
    const running = state.phase !== "ended" && this.watched;
    const coming = running ? [...this.pieces.values()].reduce((sum, pieces) => sum + pieces, 0) : 0;
    const tokens = state.tokens + coming;
    const seconds = running ? Math.max(state.seconds, state.seconds + (performance.now() - this.at) / 1000) : state.seconds;
    this.gauges.replaceChildren(
      gauge("Tokens", tokens, (coming > 0 ? "about " : "") + count(tokens) + of(budget.tokens, count), budget.tokens),
      state.usd > 0 || budget.usd ? gauge("Cost", state.usd, dollars(state.usd) + of(budget.usd, dollars), budget.usd) : "",
      gauge("Calls", state.calls, count(state.calls) + of(budget.calls, count), budget.calls),
      gauge("Time", seconds, duration(seconds) + of(budget.seconds, duration), budget.seconds));
  }

  showAgents(state) {
    for (const agent of state.agents) {
      let block = all(":scope > details", this.agents).find((it) => it.dataset.agent === agent.id);
      if (!block) {
        block = make("details", { "data-agent": agent.id }, make("summary", {}), make("pre", { tabindex: "0", "aria-label": `Reply of ${agent.id}` }));
        this.agents.append(block);
        this.fresh.add(agent.id);
      }
      const words = [agent.status, agent.tokens > 0 && plural(agent.tokens, "token"), agent.answer && `→ ${agent.answer}`];
      block.querySelector("summary").replaceChildren(make("b", {}, agent.id), ` ${agent.role} `,
        make("small", { class: `status ${agent.status}` }, words.filter(Boolean).join(" · ")));
      if (this.fresh.has(agent.id)) block.querySelector("pre").textContent = this.texts.get(agent.id) || "(nothing yet)";
    }
    this.fresh.clear();
  }

  /** Has the picture drawn by the server, but not for every event. */
  draw(last = false) {
    if (this.drawing) {
      this.wanted = true;
      return;
    }
    this.drawing = true;
    this.drawNow(last).finally(() => setTimeout(() => {
      this.drawing = false;
      if (this.wanted) {
        this.wanted = false;
        this.draw();
      }
    }, FRAME));
  }

  async drawNow() {
    const response = await fetch(`${this.path}/graph`, { credentials: "same-origin" });
    if (!response.ok) return;
    // The tips of arrows have names, which must differ between the pictures on a page.
    const markup = (await response.text()).replaceAll("lemon-tip", `lemon-tip-${this.number}`);
    const pictures = [...fragment(markup).children];
    const old = [...this.graph.children];
    if (old.length !== pictures.length) this.graph.replaceChildren(...pictures);
    else old.forEach((picture, place) => morph(picture, pictures[place]));
  }

  /** The run has ended: `html` is its answer, rendered by the server. */
  end({ html, stop_reason, question, budget }) {
    this.source.close();
    clearInterval(this.clock);
    this.element.ariaBusy = "false";
    this.run.question ??= question;
    this.run.stop_reason = stop_reason;
    if (this.state) {
      this.state.phase = "ended";
      this.state.budget ??= budget;
    }
    this.show();
    this.draw();
    const answered = stop_reason === "answered";
    if (stop_reason === "approval") this.say("A call of a tool waits for you");
    else this.say(answered ? "Answered" : stop_reason ? `Ended: ${stop_reason.replaceAll("_", " ")}` : "Interrupted", answered ? "good" : "odd");
    this.team.open = (this.state?.agents.length ?? 0) > 1;
    this.result.replaceChildren(fragment(html));
    this.foot.replaceChildren(...this.actions(this));
    // One who waited sees the answer; a conversation that is opened again stays where it was.
    if (this.watched) this.result.scrollIntoView({ block: "nearest", behavior: "smooth" });
  }
}
