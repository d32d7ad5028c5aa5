"use strict";
// Everything shown is made with textContent and setAttribute: what models and items said never becomes markup.
// Lists grow on demand, so that a page of twenty thousand runs opens as fast as one of twenty.
const data = JSON.parse(document.getElementById("data").textContent);
const { methods, sets, seeds, texts, teams, items, runs } = data;
const COLOURS = ["#56b4e9", "#009e73", "#cc79a7", "#e69f00", "#0072b2"];
const STEP = 15;
const byId = (id) => document.getElementById(id);
document.documentElement.classList.add("has-script");

// Where each run's agents begin, and the runs of each item and of each name.
const firstAgent = [];
const runsOf = items.id.map(() => []);
const named = new Map();
runs.id.reduce((first, id, run) => {
  firstAgent.push(first);
  runsOf[runs.item[run]].push(run);
  if (!named.has(id)) named.set(id, run);
  return first + teams[runs.team[run]].length;
}, 0);

// ---- Making elements, and words for numbers.

function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}
function draw(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null) continue;
    // A style attribute would need the permission of the page's policy; the same set as a property does not.
    if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}
const text = (place) => (place === null || place === undefined ? null : texts[place]);
const count = (n) => (n === null ? "–" : n.toLocaleString("en-US"));
const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
const oneLine = (long, most) => {
  const line = long.trim().split("\n", 1)[0];
  return line.length > most ? line.slice(0, most - 1) + "…" : line;
};
const runLink = (run) => "#run=" + encodeURIComponent(runs.id[run]);
const verdict = (right) => (right ? "right" : "wrong");

/** A link to a run that says how it went: its mark, and its answer where there is room. */
function result(run, withAnswer) {
  const answer = text(runs.answer[run]);
  const seed = seeds.length > 1 ? `, seed ${seeds[runs.seed[run]]}` : "";
  const label = `${methods[runs.method[run]]}${seed}: ${verdict(runs.right[run])}, ${answer === null ? "no answer" : oneLine(answer, 200)}`;
  const shown = withAnswer ? (answer === null ? "no answer" : oneLine(answer, 24)) : "";
  return make("a", { href: runLink(run), class: `result ${verdict(runs.right[run])}`, title: label, "aria-label": label }, shown);
}

/** A table whose rows are made when they are wanted. */
function growing(place, heads, entries, row) {
  const body = make("tbody");
  const head = make("thead", {}, make("tr", {}, heads.map((name) => make("th", { scope: "col" }, name))));
  const more = make("button", { type: "button", class: "more" });
  let shown = 0;
  const grow = (by) => {
    body.append(...entries.slice(shown, shown + by).map(row));
    shown = Math.min(shown + by, entries.length);
    more.hidden = shown >= entries.length;
    more.textContent = `Show more (${count(entries.length - shown)} left)`;
  };
  more.addEventListener("click", () => grow(10 * STEP));
  grow(STEP);
  const table = make("div", { class: "scroll growing", tabindex: 0 }, make("table", {}, head, body));
  byId(place).replaceChildren(...(entries.length ? [table, more] : [make("p", { class: "hint" }, "None.")]));
}

/** The cells that say which item a row is about. */
const itemHeads = ["Item", ...(sets.length > 1 ? ["Set"] : [])];
const itemCells = (item) => [
  make("th", { scope: "row", title: items.id[item] }, items.id[item]),
  ...(sets.length > 1 ? [make("td", { class: "none" }, sets[items.set[item]])] : []),
];

// ---- Two methods.

const GROUPS = { both: "both right", a: "only A right", b: "only B right", neither: "neither right" };
let group = "a";

function compare() {
  const [a, b] = ["a", "b"].map((id) => Number(byId(id).value));
  const other = new Map();
  for (let run = 0; run < runs.id.length; run++) {
    if (runs.method[run] === b) other.set(runs.item[run] * seeds.length + runs.seed[run], run);
  }
  const found = { both: [], a: [], b: [], neither: [] };
  for (let run = 0; run < runs.id.length; run++) {
    const pair = other.get(runs.item[run] * seeds.length + runs.seed[run]);
    if (runs.method[run] !== a || pair === undefined) continue;
    const [rightA, rightB] = [runs.right[run], runs.right[pair]];
    found[rightA ? (rightB ? "both" : "a") : rightB ? "b" : "neither"].push([run, pair]);
  }
  showGroups(found, a, b);
}

function showGroups(found, a, b) {
  const title = { ...GROUPS, a: `only ${methods[a]} right`, b: `only ${methods[b]} right` };
  byId("groups").replaceChildren(...Object.keys(GROUPS).map((name) => {
    const button = make("button", { type: "button", class: "group", "aria-pressed": name === group }, make("b", {}, count(found[name].length)), title[name]);
    button.addEventListener("click", () => {
      group = name;
      showGroups(found, a, b);
    });
    return button;
  }));
  const seedHead = seeds.length > 1 ? ["Seed"] : [];
  growing("differing", [...itemHeads, ...seedHead, `A: ${methods[a] ?? ""}`, `B: ${methods[b] ?? ""}`], found[group], ([run, pair]) =>
    make("tr", {}, itemCells(runs.item[run]), seedHead.map(() => make("td", {}, seeds[runs.seed[run]])),
      [run, pair].map((one) => make("td", {}, result(one, true)))));
}

for (const id of ["a", "b"]) {
  byId(id).append(...methods.map((name, place) => make("option", { value: place }, name)));
  byId(id).addEventListener("change", () => {
    const [a, b] = ["a", "b"].map((which) => encodeURIComponent(methods[byId(which).value]));
    history.replaceState(null, "", `#a=${a}&b=${b}`);
    compare();
  });
}
// To begin with: the method with most right answers against the first of the others.
const right = methods.map((_, method) => runs.right.filter((is, run) => is && runs.method[run] === method).length);
byId("a").value = Math.max(0, right.indexOf(Math.max(...right)));
byId("b").value = byId("a").value === "0" && methods.length > 1 ? 1 : 0;

// ---- Items.

const differs = (item) => new Set(runsOf[item].map((run) => runs.right[run])).size > 1;

function browse() {
  const wanted = byId("query").value.trim().toLowerCase();
  const matches = (item) => items.id[item].toLowerCase().includes(wanted)
    || runsOf[item].some((run) => runs.id[run].toLowerCase().includes(wanted));
  const found = [...items.id.keys()].filter((item) => matches(item) && (!byId("split").checked || differs(item)));
  byId("found").textContent = `${plural(found.length, "item")}`;
  growing("list", [...itemHeads, ...methods], found, (item) => make("tr", {}, itemCells(item), methods.map((_, method) =>
    make("td", {}, runsOf[item].filter((run) => runs.method[run] === method).map((run) => result(run, seeds.length === 1))))));
}
byId("query").addEventListener("input", browse);
byId("split").addEventListener("change", browse);

// ---- One run.

const dialog = byId("run");

function showRun(run) {
  const close = make("button", { type: "button", class: "close", "aria-label": "Close" }, "×");
  close.addEventListener("click", () => dialog.close());
  dialog.firstElementChild.replaceChildren(
    close,
    make("p", { class: "run", id: "run-title", tabindex: -1, autofocus: "" }, make("b", {}, methods[runs.method[run]]),
      ` ${sets[items.set[runs.item[run]]]} · item ${items.id[runs.item[run]]} · seed ${seeds[runs.seed[run]]} · ${runs.id[run]}`),
    answerOf(run),
    heading("The same item"), others(run),
    heading("Tokens and cost"), factsOf(run),
    heading("Team"), make("div", { class: "scroll", tabindex: 0 }, drawTeam(run)), agentTable(run),
    heading("The full record"), make("p", { class: "command" }, make("code", {}, command(runs.id[run]))),
  );
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}
const heading = (name) => make("h3", {}, name);
// A run's id is a plain word unless somebody meddled with it.
const command = (id) => `lemon trace show ${/^[\w.-]+$/.test(id) ? id : `'${id.replaceAll("'", "'\\''")}'`}`;

function answerOf(run) {
  const answer = text(runs.answer[run]);
  const [is, legacy] = [runs.right[run], runs.legacy[run]];
  const rule = is === legacy ? "" : ` (${verdict(legacy)} by the legacy rule)`;
  const stop = (text(runs.stop[run]) ?? "unfinished").replaceAll("_", " ");
  const size = answer === null ? "none" : answer.length > 120 ? "long" : undefined;
  return make("div", { class: "answer" }, make("p", { class: size }, answer ?? "no answer"),
    make("span", { class: `verdict ${verdict(is)}` }, `${verdict(is)}${rule}`), make("span", { class: "verdict none" }, stop));
}

function others(run) {
  return make("ul", { class: "others" }, runsOf[runs.item[run]].map((other) => {
    const seed = seeds.length > 1 ? ` · ${seeds[runs.seed[other]]}` : "";
    const is = verdict(runs.right[other]);
    const label = `${methods[runs.method[other]]}${seed}`;
    return make("li", {}, make("a", { href: runLink(other), class: is, "aria-label": `${label}: ${is}`, "aria-current": other === run ? "true" : undefined }, label));
  }));
}

function factsOf(run) {
  const usd = runs.usd[run];
  const seconds = runs.seconds[run];
  const facts = {
    Tokens: count(runs.total[run]), Orchestrator: count(runs.orchestrator[run]), Workers: count(runs.workers[run]),
    Retried: count(runs.retried[run]), Failed: count(runs.failed[run]), Calls: count(runs.calls[run]),
    Seconds: seconds === null ? "–" : seconds.toFixed(1),
    Cost: usd === null ? "–" : "$" + (usd === 0 || usd >= 0.1 ? usd.toFixed(2) : usd.toPrecision(2)),
    Events: count(runs.events[run]),
  };
  return make("dl", { class: "facts" }, Object.entries(facts).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

/** The agents of a run: what was planned, and what became of it. */
function agentsOf(run) {
  return teams[runs.team[run]].map(([id, base, role, capacity, after], place) => {
    const at = firstAgent[run] + place;
    const { status, answer, right, tokens } = data.agents;
    return {
      id: text(id), base: text(base), role: text(role), capacity: text(capacity), after,
      colour: COLOURS[data.capacities.indexOf(text(capacity)) % COLOURS.length] ?? COLOURS[0],
      status: text(status[at]) ?? "unfinished", answer: text(answer[at]), right: right[at], tokens: tokens[at],
    };
  });
}

function agentTable(run) {
  const agents = agentsOf(run);
  const heads = ["Agent", "Role", "Base", "Capacity", "Reads", "Status", "Answer", "Graded", "Tokens"];
  return make("div", { class: "scroll", tabindex: 0 }, make("table", { "aria-label": "Agents" },
    make("thead", {}, make("tr", {}, heads.map((name) => make("th", { scope: "col", class: name === "Tokens" ? "n" : undefined }, name)))),
    make("tbody", {}, agents.map((agent) => make("tr", {},
      make("th", { scope: "row" }, agent.id), make("td", { class: "wrap" }, agent.role), make("td", {}, agent.base),
      make("td", {}, make("i", { class: "dot", style: `background:${agent.colour}` }), agent.capacity),
      make("td", {}, agent.after.map((parent) => agents[parent].id).join(", ")), make("td", {}, agent.status),
      make("td", { class: "wrap" }, agent.answer === null ? "–" : oneLine(agent.answer, 120)),
      make("td", {}, agent.right === null ? "–" : make("span", { class: verdict(agent.right) }, verdict(agent.right))),
      make("td", { class: "n" }, count(agent.tokens)))))));
}

// ---- The team as a picture: a column for each step of the longest path, edges over several columns in lanes of their own.

const CARD = { width: 172, height: 80, gutter: 54, gap: 12, lane: 10 };

function drawTeam(run) {
  const agents = agentsOf(run);
  const cells = agents.map(() => ({ layer: 0, height: CARD.height, neighbours: [[], []] }));
  const paths = [];
  const join = (from, to) => {
    from.neighbours[1].push(to);
    to.neighbours[0].push(from);
  };
  // Agents only read earlier ones, so that a reader's layer is settled when it is reached.
  agents.forEach((agent, place) => {
    for (const parent of agent.after) cells[place].layer = Math.max(cells[place].layer, cells[parent].layer + 1);
  });
  agents.forEach((agent, place) => agent.after.forEach((parent) => {
    const path = [cells[parent]];
    for (let layer = cells[parent].layer + 1; layer < cells[place].layer; layer++) {
      path.push({ layer, height: CARD.lane, neighbours: [[], []], isLane: true });
      cells.push(path.at(-1));
    }
    path.push(cells[place]);
    path.slice(1).forEach((cell, step) => join(path[step], cell));
    paths.push(path);
  }));
  const columns = arrange(cells);
  const height = Math.max(0, ...columns.map((column) => column.length && column.at(-1).top + column.at(-1).height));
  const left = (layer) => layer * (CARD.width + CARD.gutter) + 1;
  const width = left(columns.length) - CARD.gutter + 1;
  return draw("svg", { class: "team", width, height: height + 2, viewBox: `0 -1 ${width} ${height + 2}`, role: "img", "aria-label": "The team; the table below says the same" },
    paths.map((path) => edge(path, left)), agents.map((agent, place) => card(agent, left(cells[place].layer), cells[place].top)));
}

/** Orders each column by the mean place of its neighbours, back and forth, and puts its cells one below the other. */
function arrange(cells) {
  const columns = [];
  for (const cell of cells) (columns[cell.layer] ??= []).push(cell);
  const stack = (column) => column.reduce((top, cell) => {
    cell.top = top;
    return top + cell.height + CARD.gap;
  }, 0) - CARD.gap;
  const tallest = Math.max(0, ...columns.map(stack));
  const settle = (column) => {
    const room = (tallest - stack(column)) / 2;
    for (const cell of column) cell.top += room;
  };
  const middle = (cell) => cell.top + cell.height / 2;
  columns.forEach(settle);
  for (let sweep = 0; sweep < 8; sweep++) {
    for (const column of sweep % 2 ? [...columns].reverse() : columns) {
      const goal = new Map(column.map((cell) => {
        const near = cell.neighbours[sweep % 2];
        return [cell, near.length ? near.reduce((sum, other) => sum + middle(other), 0) / near.length : middle(cell)];
      }));
      column.sort((a, b) => goal.get(a) - goal.get(b));
      settle(column);
    }
  }
  return columns;
}

function edge(path, left) {
  const middle = (cell) => (cell.top + cell.height / 2).toFixed(1);
  let d = `M${left(path[0].layer) + CARD.width} ${middle(path[0])}`;
  path.slice(1).forEach((cell, step) => {
    const [from, to] = [left(path[step].layer) + CARD.width, left(cell.layer) - (cell.isLane ? 0 : 6)];
    const bend = (from + to) / 2;
    d += `C${bend} ${middle(path[step])} ${bend} ${middle(cell)} ${to} ${middle(cell)}`;
    if (cell.isLane) d += `h${CARD.width}`;
  });
  const end = path.at(-1);
  const [x, y] = [left(end.layer), end.top + end.height / 2];
  return draw("g", {}, draw("path", { class: "edge", d }), draw("path", { class: "tip", d: `M${x - 8} ${y - 4}l8 4-8 4z` }));
}

function card(agent, x, y) {
  const room = CARD.width - 28;
  const line = (at, string, size, of, wide = room) => draw("text", { x: 16, y: at, class: of }, cut(string, wide, size));
  const answer = agent.answer === null ? (agent.status === "done" ? "no answer" : agent.status) : `→ ${oneLine(agent.answer, 80)}`;
  const graded = agent.right === null ? "" : agent.right ? "✓" : "✗";
  return draw("g", { transform: `translate(${x} ${y})`, class: agent.status === "done" ? undefined : "odd" },
    draw("title", {}, `${agent.id} – ${agent.role} (${agent.base}, ${agent.capacity})\n${answer}${agent.right === null ? "" : `, ${verdict(agent.right)}`}`),
    draw("rect", { class: "card", x: 0.5, y: 0.5, width: CARD.width - 1, height: CARD.height - 1, rx: 6 }),
    draw("path", { fill: agent.colour, d: `M6.5 1H7v${CARD.height - 2}h-.5A5.5 5.5 0 0 1 1 ${CARD.height - 6.5}v-${CARD.height - 13}A5.5 5.5 0 0 1 6.5 1z` }),
    line(20, agent.id, "600 13px", "id", room - 16),
    draw("text", { x: CARD.width - 12, y: 20, "text-anchor": "end", class: agent.right ? "good" : "bad" }, graded),
    line(37, agent.role, "11.5px", "soft"), line(54, answer, "11.5px"),
    line(71, `${count(agent.tokens)} tok`, "11.5px", "soft"),
    draw("text", { x: CARD.width - 12, y: 71, "text-anchor": "end", class: "soft" }, cut(agent.capacity, 70, "11.5px")));
}

const pen = document.createElement("canvas").getContext("2d");
function cut(string, room, size) {
  pen.font = `${size} ${getComputedStyle(document.body).fontFamily}`;
  if (pen.measureText(string).width <= room) return string;
  let most = Math.min(string.length, 80);
  while (most > 0 && pen.measureText(string.slice(0, most) + "…").width > room) most--;
  return string.slice(0, most).trimEnd() + "…";
}

// ---- Sorting tables.

const value = (cell) => (cell.dataset.v === undefined ? null : Number(cell.dataset.v));
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const rows = [...table.tBodies[0].rows];
    // Numbers are most often wanted largest first, words from the beginning of the alphabet. What was not measured is last.
    const isNumber = rows.some((row) => value(row.cells[column]) !== null);
    const down = head.hasAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : isNumber && column > 0;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const order = (a, b) => {
      const [x, y] = [value(a.cells[column]), value(b.cells[column])];
      if (isNumber && (x === null || y === null)) return (x === null) - (y === null);
      const rising = isNumber ? x - y : a.cells[column].textContent.localeCompare(b.cells[column].textContent);
      return down ? -rising : rising;
    };
    table.tBodies[0].append(...rows.sort(order));
  }));
}

// ---- What the address asks for: #run=ID, #a=METHOD&b=METHOD, #item=ID.

// Far away in a long page: scrolling there smoothly would take long.
const AT_ONCE = { behavior: "instant" };
// Where to return to when the panel closes.
let behind = "#";
function follow() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const run = named.get(asked.get("run"));
  if (run !== undefined) return showRun(run);
  behind = location.hash || "#";
  if (dialog.open) dialog.close();
  const [a, b] = ["a", "b"].map((id) => methods.indexOf(asked.get(id)));
  if (a >= 0 && b >= 0) {
    [byId("a").value, byId("b").value] = [a, b];
    group = "a";
    compare();
    byId("compare").scrollIntoView(AT_ONCE);
  }
  if (asked.has("item")) {
    byId("query").value = asked.get("item");
    browse();
    byId("items").scrollIntoView(AT_ONCE);
  }
}
dialog.addEventListener("close", () => {
  if (location.hash.startsWith("#run=")) history.replaceState(null, "", behind);
});
// A click beside the panel closes it.
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});
addEventListener("hashchange", follow);
compare();
browse();
follow();
