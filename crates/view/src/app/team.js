// The editor of teams: the server checks the text as one types, as `lemon validate` does, and draws the team.
import { all, byId, count, fragment, make, morph, plural, send } from "./base.js";

const text = byId("text");
const mirror = byId("mirror");
const numbers = byId("numbers");
const name = byId("name");
const verdict = byId("verdict");
const saved = byId("saved");
const TEXT = "lemon.team-text";
let kept = text.value;
let check = 0;
let timer;

// ---- The text, with its faults underlined. A mirror behind it shows the same text with marks.

function paint(diagnostics = []) {
  const source = text.value;
  const pieces = [];
  let at = 0;
  for (const { start, end, severity } of diagnostics) {
    const from = Math.max(start, at);
    const to = Math.max(end, from + 1);
    if (from > source.length) continue;
    pieces.push(source.slice(at, from), make("mark", { class: severity }, source.slice(from, to) || " "));
    at = Math.min(to, source.length);
  }
  // The last line has no height of its own if it is empty.
  mirror.replaceChildren(...pieces, source.slice(at) + "\n");
  const lines = source.split("\n").length;
  const faulty = new Set(diagnostics.filter((it) => it.severity === "error").map((it) => it.line));
  numbers.replaceChildren(...Array.from({ length: lines }, (_, line) => make("span", { class: faulty.has(line + 1) && "error" }, `${line + 1}\n`)));
}

function scroll() {
  mirror.scrollTop = text.scrollTop;
  mirror.scrollLeft = text.scrollLeft;
  numbers.scrollTop = text.scrollTop;
}
text.addEventListener("scroll", scroll);

// A new line begins where the one before did.
text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  const line = text.value.slice(text.value.lastIndexOf("\n", text.selectionStart - 1) + 1, text.selectionStart);
  const indent = /^ */.exec(line)[0];
  if (indent === "") return;
  event.preventDefault();
  text.setRangeText(`\n${indent}`, text.selectionStart, text.selectionEnd, "end");
  text.dispatchEvent(new Event("input"));
});

// ---- What the server says of it.

async function examine() {
  const mine = ++check;
  let found;
  try {
    found = await send("POST", "/api/teams/check", { text: text.value });
  } catch (error) {
    verdict.className = "verdict-line odd";
    verdict.textContent = error.message;
    return;
  }
  // The text has changed since.
  if (mine !== check) return;
  paint(found.diagnostics);
  scroll();
  const errors = found.diagnostics.filter((it) => it.severity === "error").length;
  verdict.className = `verdict-line ${found.valid ? "good" : "odd"}`;
  const cost = found.forecast ? `, at most ${count(found.forecast.tokens)} tokens and likely ${count(found.forecast.likely)}` : "";
  verdict.textContent = found.valid ? `Valid: ${plural(found.agents, "agent")}${cost}.` : `Not valid: ${plural(errors, "error")}.`;
  byId("faults").replaceChildren(...found.diagnostics.map(fault));
  byId("run").disabled = byId("save").disabled = !found.valid;
  byId("team").classList.toggle("stale", !found.valid);
  if (found.graph) {
    const pictures = [...fragment(found.graph).children];
    // A card leads to where its agent is written, by keyboard too.
    for (const picture of pictures) {
      picture.querySelector("svg")?.setAttribute("role", "group");
      for (const card of all("[data-agent]", picture)) {
        card.setAttribute("tabindex", "0");
        card.setAttribute("role", "button");
      }
    }
    const old = [...byId("graph").children];
    if (old.length === pictures.length) old.forEach((picture, place) => morph(picture, pictures[place]));
    else byId("graph").replaceChildren(...pictures);
    choosePicture();
  }
  if (found.valid) showEdits(found.edits);
}

/** Of the two pictures, down and across, shows the one that fits; of two that are too wide the narrower one. */
function choosePicture() {
  const pictures = all(":scope > .graph", byId("graph"));
  const wide = (picture) => parseFloat(picture.style.getPropertyValue("--width"));
  const down = pictures.find((picture) => picture.classList.contains("down"));
  const narrow = [...pictures].sort((a, b) => wide(a) - wide(b))[0];
  const fits = down && 0.7 * wide(down) <= byId("graph").clientWidth;
  for (const picture of pictures) picture.classList.toggle("shown", picture === (fits ? down : narrow));
}
addEventListener("resize", choosePicture);

function fault({ severity, line, column, message, hint, code, start, end }) {
  const button = make("button", { type: "button", onclick: () => {
    text.focus();
    text.setSelectionRange(start, Math.max(end, start + 1));
    text.scrollTop = (line - 4) * parseFloat(getComputedStyle(text).lineHeight);
  } }, make("b", {}, `${line}:${column}`), ` ${message}`);
  return make("li", { class: severity }, button, hint && make("span", { class: "hint" }, hint), make("code", {}, code));
}

function showEdits(edits) {
  const families = Map.groupBy ? Map.groupBy(edits, (edit) => edit.family) : new Map([["all", edits]]);
  byId("edit-count").textContent = plural(edits.length, "edit");
  byId("edits").replaceChildren(...[...families].map(([family, members]) => make("li", {}, make("h3", {}, family),
    make("ul", {}, members.map((edit) => make("li", {}, make("button", { type: "button", disabled: !edit.spec, onclick: () => apply(edit) }, edit.description)))))));
}

/** An edit makes the canonical text of the changed team. */
function apply(edit) {
  text.focus();
  text.select();
  // As typed, so that one can undo it.
  if (!document.execCommand("insertText", false, edit.spec)) text.value = edit.spec;
  text.scrollTop = 0;
  text.dispatchEvent(new Event("input"));
  saved.textContent = `Applied: ${edit.description}.`;
}

text.addEventListener("input", () => {
  paint();
  saved.textContent = text.value === kept ? "" : "Not saved.";
  clearTimeout(timer);
  timer = setTimeout(examine, 120);
});

// ---- What each decision is worth.

byId("measure").addEventListener("click", async () => {
  const said = byId("measured");
  byId("measure").disabled = true;
  said.textContent = "Measuring …";
  try {
    const { picture, advice, told } = await send("POST", "/api/teams/credit", { text: text.value, set: byId("set").value });
    said.textContent = told;
    const sentences = advice.length > 0 ? advice : ["The data decide nothing: every interval contains zero."];
    byId("advice").replaceChildren(...sentences.map((sentence) => make("li", {}, sentence.split("`").map((part, place) => (place % 2 ? make("code", {}, part) : part)))));
    byId("worth").replaceChildren(fragment(picture));
    byId("worth").hidden = false;
  } catch (error) {
    said.textContent = error.hint ? `${error.message} – ${error.hint}` : error.message;
  } finally {
    byId("measure").disabled = false;
  }
});

// ---- Saving and running.

async function save(overwrite) {
  if (!name.reportValidity()) return;
  try {
    await send("PUT", `/api/teams/${encodeURIComponent(name.value)}`, { text: text.value, overwrite });
    kept = text.value;
    byId("form").dataset.saved = name.value;
    history.replaceState(null, "", `/teams/edit?name=${encodeURIComponent(name.value)}`);
    saved.textContent = `Saved as ${name.value}.`;
  } catch (error) {
    if (error.status === 409 && confirm(`There is a team “${name.value}” already. Replace it?`)) await save(true);
    else saved.textContent = error.hint ? `${error.message} – ${error.hint}` : error.message;
  }
}
byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  save(byId("form").dataset.saved === name.value);
});
byId("run").addEventListener("click", () => {
  if (text.value === kept && byId("form").dataset.saved) {
    location.href = `/ask?team=${encodeURIComponent(byId("form").dataset.saved)}`;
    return;
  }
  sessionStorage.setItem(TEXT, text.value);
  kept = text.value;
  location.href = "/ask?team=text";
});
addEventListener("beforeunload", (event) => {
  if (text.value !== kept) event.preventDefault();
});

// Choosing a card shows where its agent is written.
for (const kind of ["click", "keydown"]) document.addEventListener(kind, (event) => {
  const card = event.target.closest?.("#graph [data-agent]");
  if (!card || kind === "keydown" && event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  const id = card.dataset.agent;
  const match = new RegExp(`\\bid: *["']?${id.replace(/[^\w-]/g, "")}\\b`).exec(text.value);
  if (!match) return;
  text.focus();
  text.setSelectionRange(match.index, match.index + match[0].length);
  text.scrollTop = (text.value.slice(0, match.index).split("\n").length - 4) * parseFloat(getComputedStyle(text).lineHeight);
});

paint();
examine();
