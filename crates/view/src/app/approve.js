// Calls of tools that wait for a person: the run goes on with what the person decides.
import { all, send } from "./base.js";

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form.approval");
  if (!form) return;
  event.preventDefault();
  const fault = form.querySelector(".warning");
  const buttons = all("button", form);
  fault.hidden = true;
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const decisions = { [form.dataset.call]: event.submitter?.value === "approve" };
    await send("POST", `/api/runs/${encodeURIComponent(form.dataset.run)}/decide`, { decisions });
    form.dispatchEvent(new CustomEvent("decided", { bubbles: true }));
  } catch (error) {
    fault.textContent = error.hint ? `${error.message} – ${error.hint}` : error.message;
    fault.hidden = false;
    buttons.forEach((button) => { button.disabled = false; });
  }
});
