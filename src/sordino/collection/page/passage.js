/** Texts of questions: as they are, or read as Markdown whose marks can do nothing. What is long is folded. */

import { announce, button, element } from "./elements.js";
import { markdown } from "./markdown.js";
import { say } from "./texts.js";

let rich = true; // whether texts are read as Markdown

// Which texts on the page are open, and how far they are scrolled. This is of reading, not of choosing:
// a choice draws the page anew, and what was open must stay as it was. It is gone with the view.
const folds = new Map();

/** Say whether texts are read as Markdown, or shown as they are. */
export function readAsMarkdown(wanted) {
  rich = wanted;
}

/** Put a view on the page and move to its heading. */
export function show(place, ...nodes) {
  place.replaceChildren(...nodes);
  folds.clear();
  document.getElementById("page").scrollTo(0, 0);
  place.querySelector("h1")?.focus({ preventScroll: true });
}

/**
 * Return a text, or a conversation with the speaker above each message. What is long is folded.
 *
 * @param {string|{role: string, content: string}[]} text - As the server sent it.
 * @param {function(string): string} speaker - The name of a role in the person's language.
 */
export function passage(text, speaker) {
  if (typeof text === "string") return folded(readable(text), text);
  const messages = text.map(({ role, content }) =>
    element("li", { class: role === "user" ? "message asks" : "message" },
      element("span", { class: "speaker", text: speaker(role) }), readable(content)));
  return folded(element("ol", { class: "messages" }, ...messages), text);
}

/** Return one text, with a button at its code, and areas that scroll for what is too wide. */
function readable(text) {
  if (!rich) return element("div", { class: "passage", dir: "auto", text });
  const read = markdown(text);
  for (const table of read.querySelectorAll("table")) {
    const area = scrolled(element("div"), "passage.table");
    table.replaceWith(area);
    area.append(table);
  }
  for (const block of read.querySelectorAll("pre")) {
    const formula = block.classList.contains("formula");
    scrolled(block, formula ? "passage.formula" : "passage.code");
    if (formula) continue;
    const place = element("div", { class: "code" });
    block.replaceWith(place);
    place.append(element("div", { class: "top" },
      element("span", { text: block.dataset.language || say("passage.block") }), copying(block.firstChild)), block);
  }
  return read;
}

/** Return a button that copies a text. Where the browser does not, the text is selected for the person to copy. */
function copying(source) {
  const copy = button(say("passage.copy"), async () => {
    const copied = await navigator.clipboard.writeText(source.textContent).then(() => true, () => false);
    if (!copied) getSelection().selectAllChildren(source);
    copy.textContent = say(copied ? "passage.copied" : "passage.selected");
    announce(copy.textContent);
  }, { class: "link" });
  return copy;
}

/** Let an area be scrolled, by keys too; there, arrows do not choose. */
function scrolled(area, key) {
  area.classList.add("scroll");
  area.dataset.name = say(key);
  area.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow") && area.tabIndex === 0) event.stopPropagation();
  });
  sizes.observe(area);
  return area;
}

/** Return a text that opens with a button if it is long. Beside another one, it can be scrolled as well. */
function folded(content, key) {
  const state = folds.get(key) ?? { long: false, open: false, top: 0 };
  const area = scrolled(element("div", { class: "body" }, content), "passage.text");
  const turn = button("", () => {
    keep({ open: !state.open });
    if (!state.open) fold.scrollIntoView({ block: "nearest" });
  }, { class: "link more" });
  const fold = element("div", { class: "fold" }, area, turn);
  const draw = () => {
    fold.classList.toggle("long", state.long && !state.open);
    turn.hidden = !state.long;
    turn.setAttribute("aria-expanded", String(state.open));
    turn.textContent = say(state.open ? "passage.less" : "passage.all");
  };
  const keep = (change) => {
    folds.set(key, Object.assign(state, change));
    draw();
  };
  area.addEventListener("scroll", () => folds.set(key, Object.assign(state, { top: area.scrollTop })));
  new ResizeObserver(() => {
    const long = content.offsetHeight > 1.3 * Math.max(320, 0.54 * innerHeight); // as in style.css
    if (area.isConnected && long !== state.long) keep({ long });
  }).observe(content);
  draw();
  queueMicrotask(() => area.scrollTo(0, state.top)); // when it stands on the page
  return fold;
}

// Only what does not fit is a stop of the Tab key, and then it has a name.
const sizes = new ResizeObserver((entries) => {
  for (const { target: area } of entries) {
    const more = area.scrollWidth > area.clientWidth + 1 || area.scrollHeight > area.clientHeight + 1;
    const told = { tabindex: 0, role: "group", "aria-label": area.dataset.name };
    for (const [key, value] of Object.entries(told)) {
      if (more && getComputedStyle(area).overflowY === "auto") area.setAttribute(key, value);
      else area.removeAttribute(key);
    }
  }
});

/** Return the first words of a text, on one line. */
export function excerpt(text, length = 140) {
  const source = typeof text === "string" ? text : (text.at(-1)?.content ?? "");
  const line = (rich ? markdown(source).textContent : source).replace(/\s+/g, " ").trim();
  const letters = Array.from(line);
  return letters.length > length ? `${letters.slice(0, length).join("")}…` : line;
}
