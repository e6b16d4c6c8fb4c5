/** Building the page. Every text is set as text. */

/**
 * Return a new element.
 *
 * @param {string} name - The tag.
 * @param {object} properties - `text`, `class`, `on` (click) and any attribute.
 * @param {...(Node|null)} children - What goes inside; null is left out.
 */
export function element(name, properties = {}, ...children) {
  const { text, on, ...attributes } = properties;
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, String(value));
  }
  if (text !== undefined) node.textContent = text;
  if (on) node.addEventListener("click", on);
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** Return a button. Buttons keep no state on disk, form fields would. */
export function button(text, on, properties = {}) {
  return element("button", { type: "button", text, on, ...properties });
}

/** Return a heading that can be focused, so that screen readers start where the page changed. */
export function heading(text) {
  return element("h1", { text, tabindex: -1 });
}

/** Say something to screen readers. An empty text removes what was said before. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Return a bar of how much of a whole is used, without a word: the words stand beside it. */
export function bar(part, whole) {
  const fill = element("span", { class: "fill" });
  fill.style.inlineSize = `${whole > 0 ? Math.min(100, (100 * part) / whole) : 0}%`;
  return element("span", { class: "track", "aria-hidden": "true" }, fill);
}
