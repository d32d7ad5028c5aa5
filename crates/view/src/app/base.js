// What every page of the application needs.
//
// Texts of models, tasks and files are untrusted: they become text nodes and attributes, never markup. Markup comes from the
// server, which wrote every tag of it, and only through `fragment`.

export const all = (selector, root = document) => [...root.querySelectorAll(selector)];
export const byId = (id) => document.getElementById(id);

/** An element with attributes, listeners (`onclick: …`) and children. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

// The only place where text becomes markup. The policy of the pages forbids any other.
const policy = window.trustedTypes?.createPolicy("lemon", { createHTML: (html) => html });

/** A piece of a page that the server wrote. */
export function fragment(html) {
  const page = new DOMParser().parseFromString(policy ? policy.createHTML(html) : html, "text/html");
  const piece = document.createDocumentFragment();
  piece.append(...page.body.childNodes);
  dress(piece);
  return piece;
}

// Lengths and colours, such as `left:12.5%;width:3%`.
const STYLE = /^(?:(?:--width|--level|left|width|background):#?[\w.%-]+;?)*$/;

/** Applies the styles that the policy does not let stand in markup. */
export function dress(root) {
  for (const element of all("[data-style]", root)) {
    if (STYLE.test(element.dataset.style)) element.style.cssText = element.dataset.style;
  }
}

/** Changes an element into another one where they differ, so that focus, scrolling and animations stay. */
export function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  const [mine, others] = [[...old.childNodes], [...fresh.childNodes]];
  if (old.nodeType !== Node.ELEMENT_NODE || old.nodeName !== fresh.nodeName || mine.length !== others.length) {
    old.replaceWith(fresh);
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "style") old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    // Of styles only the property may be set under the policy of the pages.
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style && old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  mine.forEach((child, place) => morph(child, others[place]));
}

/** Sends a request of the application and reads the JSON of its reply. What goes wrong says what and why. */
export async function send(method, path, body) {
  const options = { method, headers: { accept: "application/json" }, credentials: "same-origin" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("the server cannot be reached");
  }
  const text = await response.text();
  let reply = null;
  try {
    reply = text === "" ? null : JSON.parse(text);
  } catch {
    if (response.ok) throw new Error("the server sent something that is not JSON");
  }
  if (response.ok) return reply;
  const error = reply?.error;
  const fact = typeof error === "string" ? error : error?.message ?? `the server answered ${response.status}`;
  throw Object.assign(new Error(fact), { hint: error?.hint, reply, status: response.status });
}

/** A page of the application, to take a part of. */
export async function page(address) {
  const response = await fetch(address, { credentials: "same-origin" });
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return fragment(await response.text());
}

export const count = (number) => Math.round(number).toLocaleString("en-US");
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
export const dollars = (usd) => "$" + (usd === 0 || usd >= 0.1 ? usd.toFixed(2) : usd.toPrecision(2));
export const duration = (seconds) => (seconds < 1 ? `${Math.round(seconds * 1000)} ms` : seconds < 60 ? `${seconds.toFixed(1)} s`
  : seconds % 60 < 0.5 ? `${Math.round(seconds / 60)} min` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`);

// One menu is open at a time; Escape and a click elsewhere close it.
document.addEventListener("click", (event) => {
  for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of all("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

dress(document);
