// The page of a run that is under way: it is drawn anew as the run goes, and once more when it ends.
import { byId, fragment, morph, send } from "./base.js";

// A call that waits for a person: what they say lets the run go on, and the page shows it.
for (const place of document.querySelectorAll(".decide")) {
  const { run, call } = place.dataset;
  const buttons = [...place.querySelectorAll("button")];
  place.addEventListener("click", async ({ target }) => {
    if (!buttons.includes(target)) return;
    buttons.forEach((button) => { button.disabled = true; });
    try {
      await send("POST", `/api/runs/${encodeURIComponent(run)}/decide`, { call, approve: target.value === "approve" });
      location.reload();
    } catch (error) {
      place.querySelector("output").textContent = error.message;
      buttons.forEach((button) => { button.disabled = false; });
    }
  });
}

const actions = byId("actions");
if (actions?.dataset.ended === "false") {
  const path = `/api/runs/${encodeURIComponent(actions.dataset.run)}`;
  const source = new EventSource(`${path}/events`);
  let timer;
  const refresh = async () => {
    timer = undefined;
    const graph = await fetch(`${path}/graph`, { credentials: "same-origin" });
    if (!graph.ok) return;
    const pictures = [...fragment(await graph.text()).children];
    [...document.querySelectorAll("#team .graph")].forEach((old, place) => morph(old, pictures[place]));
  };
  source.addEventListener("trace", () => {
    timer ??= setTimeout(refresh, 250);
  });
  source.addEventListener("end", async ({ data }) => {
    source.close();
    // A run that broke off stays as it is: its page says so.
    if (JSON.parse(data).stop_reason) location.reload();
  });
  const cancel = document.createElement("button");
  cancel.type = "button";
  cancel.textContent = "Cancel";
  cancel.addEventListener("click", () => {
    cancel.disabled = true;
    send("POST", `${path}/cancel`, {}).catch((error) => {
      cancel.textContent = error.message;
    });
  });
  actions.prepend(cancel);
}
