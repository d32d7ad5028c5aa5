// The page of a run that is under way: it is drawn anew as the run goes, and once more when it ends.
import { byId, fragment, morph, send } from "./base.js";
import "./approve.js";

document.addEventListener("decided", () => location.reload());

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
