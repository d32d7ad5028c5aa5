// The list of runs: filters act as one types, and two runs can be chosen to compare.
import { all, byId, page } from "./base.js";

const form = byId("filters");
let request = 0;
let timer;

/** Shows the list that a form or a link asks for, without loading the page anew. */
async function load(address) {
  const mine = ++request;
  byId("results").setAttribute("aria-busy", "true");
  try {
    const fresh = await page(address);
    // A later request has been made meanwhile.
    if (mine !== request) return;
    byId("results").replaceWith(fresh.querySelector("#results"));
    byId("found").textContent = fresh.querySelector("#found").textContent;
    history.replaceState(null, "", address);
    choose();
  } catch (error) {
    byId("results").removeAttribute("aria-busy");
    byId("found").textContent = error.message;
  }
}

function filter() {
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  load(`/runs${query.size > 0 ? `?${query}` : ""}`);
}
form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(filter, 150);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  filter();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest(".pages a, th a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  load(link.getAttribute("href")).then(() => byId("found").scrollIntoView({ block: "nearest" }));
});

/** Two runs can be compared, no more. */
function choose() {
  const boxes = all("input[name=run]");
  const chosen = boxes.filter((box) => box.checked);
  boxes.forEach((box) => { box.disabled = chosen.length >= 2 && !box.checked; });
  const button = byId("compare");
  if (!button) return;
  button.disabled = chosen.length !== 2;
  button.textContent = chosen.length === 2 ? "Compare the two runs" : `Compare: choose ${2 - chosen.length} more`;
}
document.addEventListener("change", (event) => {
  if (event.target.name === "run") choose();
});
choose();
