"use strict";
// Works only on elements the page already has: texts are cloned as nodes and never parsed as markup.
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const ofAgent = (selector, id) => all(selector).find((element) => element.dataset.agent === id);

const detail = document.getElementById("detail");
function show(id) {
  const source = ofAgent("details.agent", id);
  if (!source) return;
  const title = document.createElement("h3");
  title.append(id + " ", ...all("summary > span", source).slice(0, 1).map((role) => {
    const small = document.createElement("small");
    small.textContent = role.textContent;
    return small;
  }));
  detail.querySelector("div").replaceChildren(title, source.querySelector(".body").cloneNode(true));
  detail.hidden = false;
  all(".graph .agent").forEach((card) => card.classList.toggle("on", card.dataset.agent === id));
}
function hide() {
  detail.hidden = true;
  all(".graph .agent.on").forEach((card) => card.classList.remove("on"));
}
detail.querySelector("button").addEventListener("click", hide);
// A picture is one thing to a screen reader; one with buttons in it is not.
for (const picture of all(".graph svg")) picture.setAttribute("role", "group");
for (const card of all(".graph .agent")) {
  card.setAttribute("tabindex", "0");
  card.setAttribute("role", "button");
  card.addEventListener("click", () => show(card.dataset.agent));
  card.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    show(card.dataset.agent);
  });
}
for (const button of all("button.link")) {
  button.addEventListener("click", () => {
    show(button.closest("tr").dataset.agent);
    detail.scrollIntoView({ block: "center" });
  });
}

const value = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
};
for (const table of all("table.sortable")) {
  const heads = all("th", table);
  heads.forEach((head, column) => head.addEventListener("click", () => {
    // Numbers are most often wanted largest first, words from the beginning of the alphabet.
    const first = all("td[data-v]", table.tBodies[0].rows[0]).includes(table.tBodies[0].rows[0].cells[column]);
    const down = head.hasAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : first;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [value(a, column), value(b, column)];
      const order = typeof x === "number" ? x - y : x.localeCompare(y);
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
  }));
}

const search = document.querySelector("#replies input");
search?.addEventListener("input", () => {
  const wanted = search.value.trim().toLowerCase();
  const has = (element) => element.textContent.toLowerCase().includes(wanted);
  let count = 0;
  for (const block of all("#replies details.agent")) {
    block.hidden = !has(block);
    block.open = !block.hidden && wanted !== "";
    count += !block.hidden;
  }
  let read = 0;
  for (const message of all("#messages details.message")) {
    message.hidden = !has(message);
    message.open = !message.hidden && wanted !== "";
    read += !message.hidden;
  }
  document.querySelector("#replies output").textContent = wanted === "" ? "" : `${count} agents, ${read} messages`;
});
