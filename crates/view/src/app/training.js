// The page of a training: it shows what has been written since, as long as the window is looked at.
import { dress, morph, page } from "./base.js";

const PAUSE = 3000;
const parts = ["header", "main"];

async function refresh() {
  if (document.hidden) return;
  const fresh = await page(location.href);
  for (const part of parts) {
    const [old, wanted] = [document.querySelector(`.app-page > ${part}`), fresh.querySelector(`.app-page > ${part}`)];
    if (old && wanted) morph(old, wanted);
  }
  dress(document);
}

async function loop() {
  try {
    await refresh();
  } catch {
    // The next attempt may succeed; what is shown stays.
  }
  setTimeout(loop, PAUSE);
}
setTimeout(loop, PAUSE);
