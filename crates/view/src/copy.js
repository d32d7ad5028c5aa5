// A copy button copies the text of the nearest element that is marked as its source, or the code beside it.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const source = button.closest(".code, .copied")?.querySelector("pre.source, pre > code");
  if (!source) return;
  const text = source.textContent;
  const said = await navigator.clipboard?.writeText(text).then(() => true, () => false) ?? false;
  button.textContent = said || copySelected(text) ? "Copied" : "Not copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});
// Where the clipboard is closed to pages, a selection can still be copied.
function copySelected(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offstage";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
