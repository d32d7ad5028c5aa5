// The chat: asks, shows each run as it goes, and asks again with one thing changed.
import { byId, make, send } from "./base.js";
import { Turn } from "./turn.js";

const composer = byId("composer");
const question = byId("question");
const fault = byId("fault");
const thread = byId("thread");
const KEPT = "lemon.thread";
const TEXT = "lemon.team-text";

/** The runs of this conversation, oldest first. The window keeps them, and no longer than it is open. */
let kept = [];
try {
  kept = JSON.parse(sessionStorage.getItem(KEPT)) ?? [];
} catch {
  kept = [];
}
const keep = () => sessionStorage.setItem(KEPT, JSON.stringify(kept));

// ---- The form.

const field = (name) => byId(name)?.value.trim() ?? "";
const number = (name) => (field(name) === "" ? null : Number(field(name)));

/** What the form asks for, without the question. */
function request() {
  const [kind, ...rest] = field("team").split(":");
  const name = rest.join(":");
  const team = kind === "text" ? { kind, text: sessionStorage.getItem(TEXT) ?? "" } : name ? { kind, name } : { kind };
  return { team, capacity: field("capacity") || null, budget: { tokens: number("tokens"), usd: number("usd") }, seed: number("seed") ?? 0 };
}

function grow() {
  question.style.height = "auto";
  question.style.height = `${Math.min(question.scrollHeight, 280)}px`;
}
question.addEventListener("input", grow);
question.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    composer.requestSubmit();
  }
});
composer.addEventListener("submit", async (event) => {
  event.preventDefault();
  const asked = question.value.trim();
  if (asked === "") return;
  const earlier = composer.dataset.chat === "true" ? kept.filter((run) => !run.changed).map((run) => run.run_id) : [];
  if (await start({ ...request(), question: asked, earlier })) {
    question.value = "";
    grow();
    // On a phone the choices make room for the answer.
    if (matchMedia("(max-width: 640px)").matches) document.activeElement.blur();
  }
});
for (const button of document.querySelectorAll("button.example")) {
  button.addEventListener("click", () => {
    question.value = button.textContent;
    grow();
    question.focus();
  });
}

// ---- Runs.

/** Starts a run and shows it. */
async function start(asked, changed, base) {
  fault.hidden = true;
  const submit = composer.querySelector("button.primary");
  submit.disabled = true;
  try {
    const { run_id } = await send("POST", "/api/runs", asked);
    const run = { run_id, question: asked.question, request: asked, changed, base };
    kept.push(run);
    keep();
    show(run).scrollIntoView({ block: "start", behavior: "smooth" });
    return true;
  } catch (error) {
    fault.textContent = error.hint ? `${error.message} – ${error.hint}` : error.message;
    fault.hidden = false;
    return false;
  } finally {
    submit.disabled = false;
  }
}

function show(run) {
  const { element } = new Turn(run, actions);
  thread.append(element);
  byId("welcome").hidden = true;
  byId("new").hidden = false;
  return element;
}

/** What one can do with a run that has ended. */
function actions({ run }) {
  const id = encodeURIComponent(run.run_id);
  const asked = run.request ?? { question: run.question, team: { kind: "run", name: run.run_id }, capacity: null, budget: {}, seed: 0, earlier: [] };
  const menu = make("details", { class: "menu" }, make("summary", { class: "button" }, "Ask again, one thing changed"));
  const entry = (words, change, what) => make("li", {}, make("button", { type: "button", onclick: () => {
    menu.open = false;
    start({ ...asked, question: run.question, ...change }, what, run.run_id);
  } }, words));
  const entries = [entry(`Another seed: ${asked.seed + 1}`, { seed: asked.seed + 1 }, `seed ${asked.seed} → ${asked.seed + 1}`)];
  for (const option of byId("capacity").options) {
    if (option.value === (asked.capacity ?? "") || option.value === "") continue;
    const same = asked.team.kind === "auto" ? { team: { kind: "run", name: run.run_id } } : {};
    entries.push(entry(`Every agent: ${option.value}`, { ...same, capacity: option.value }, `capacity → ${option.value}`));
  }
  if (asked.budget.tokens) {
    const tokens = 2 * asked.budget.tokens;
    entries.push(entry(`Twice the budget: ${tokens.toLocaleString("en-US")} tokens`, { budget: { ...asked.budget, tokens } }, "twice the budget"));
  }
  for (const option of byId("team").options) {
    const [kind, ...rest] = option.value.split(":");
    if (kind === asked.team.kind && rest.join(":") === (asked.team.name ?? "") || kind === "text") continue;
    const team = rest.length > 0 ? { kind, name: rest.join(":") } : { kind };
    entries.push(entry(`Team: ${option.textContent}`, { team }, `team → ${option.textContent}`));
  }
  menu.append(make("ul", {}, entries));
  return [menu, make("a", { class: "button", href: `/runs/${id}` }, "Open the run"), make("a", { class: "button", href: `/teams/edit?run=${id}` }, "Edit its team")];
}

byId("new").addEventListener("click", () => {
  kept = [];
  keep();
  thread.replaceChildren();
  byId("welcome").hidden = false;
  byId("new").hidden = true;
  question.focus();
});

// ---- Where one comes from: a run, a saved team, or the editor.

const wanted = new URLSearchParams(location.search);
if (wanted.has("run") && !kept.some((run) => run.run_id === wanted.get("run"))) {
  kept.push({ run_id: wanted.get("run"), question: wanted.get("question") ?? wanted.get("run") });
  keep();
}
if (sessionStorage.getItem(TEXT) !== null) {
  byId("team").append(make("option", { value: "text" }, "The team in the editor"));
}
if (wanted.has("team")) {
  const value = wanted.get("team") === "text" ? "text" : `file:${wanted.get("team")}`;
  if ([...byId("team").options].some((option) => option.value === value)) byId("team").value = value;
}
if (wanted.size > 0) history.replaceState(null, "", location.pathname);
kept.forEach(show);
if (kept.length > 0) thread.lastElementChild.scrollIntoView({ block: "start" });
else question.focus();
