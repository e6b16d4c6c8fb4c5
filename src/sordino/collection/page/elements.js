/** Building the page. Every text is set as text, so that no text can act as markup. */

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

/** Put a view on the page and move to its heading. */
export function show(place, ...nodes) {
  place.replaceChildren(...nodes);
  document.getElementById("page").scrollTo(0, 0);
  place.querySelector("h1")?.focus({ preventScroll: true });
}

/** Say something to screen readers. An empty text removes what was said before. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/**
 * Return a text, or a conversation with the speaker above each message.
 *
 * @param {string|{role: string, content: string}[]} text - As the server sent it.
 * @param {function(string): string} speaker - The name of a role in the person's language.
 */
export function passage(text, speaker) {
  if (typeof text === "string") return element("div", { class: "passage", dir: "auto", text });
  const messages = text.map(({ role, content }) =>
    element("li", { class: role === "user" ? "message asks" : "message" },
      element("span", { class: "speaker", text: speaker(role) }),
      element("div", { class: "passage", dir: "auto", text: content })));
  return element("ol", { class: "messages" }, ...messages);
}

/** Return the first words of a text, on one line. */
export function excerpt(text, length = 140) {
  const whole = typeof text === "string" ? text : (text.at(-1)?.content ?? "");
  const line = whole.replace(/\s+/g, " ").trim();
  const letters = Array.from(line);
  return letters.length > length ? `${letters.slice(0, length).join("")}…` : line;
}

/** Return a bar of how much of a whole is used, without a word: the words stand beside it. */
export function bar(part, whole) {
  const fill = element("span", { class: "fill" });
  fill.style.inlineSize = `${whole > 0 ? Math.min(100, (100 * part) / whole) : 0}%`;
  return element("span", { class: "track", "aria-hidden": "true" }, fill);
}
