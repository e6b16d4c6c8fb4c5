/** What stands around a question: the name of the study, where one can go, and what was spent. */

import { bar, button, element } from "./elements.js";
import { known, language, say, trouble } from "./texts.js";

/**
 * Return the top of the page.
 *
 * @param {string} title - Of the study.
 * @param {{view: string, go: function(string), views: string[]}} way - Where one is and can go.
 * @param {function(string): void} chosen - Called with another language.
 */
export function topBar(title, way, chosen) {
  const link = (view) => button(say(`nav.${view}`), () => way.go(view),
    { class: "link", "aria-current": way.view === view ? "page" : null });
  const links = way.views.map(link);
  return [
    element("p", { class: "name" }, element("span", { dir: "auto", text: title })),
    element("nav", { "aria-label": say("nav.label") }, ...links),
    languages(chosen),
  ];
}

/** Return the choice of languages; nothing if there is only one. */
export function languages(chosen) {
  if (known().length < 2) return element("span");
  const select = element("select", { "aria-label": say("nav.language"), autocomplete: "off" },
    ...known().map(({ code, name }) => element("option", { value: code, lang: code, text: name })));
  select.value = language();
  select.addEventListener("change", () => chosen(select.value));
  return select;
}

/**
 * Return the bottom of the page: progress, the person's own budget, and what waits.
 *
 * @param {object} state - Terms, questions and progress.
 * @param {string|null} problem - The code of what hinders sending, or null.
 */
export function budget(state, problem) {
  const { terms, progress } = state;
  const used = progress.given.length;
  const answered = new Set(progress.given.map(({ question }) => question)).size;
  const spent = { used, cap: terms.cap, spent: rounded(used * terms.epsilon), total: rounded(terms.cap * terms.epsilon) };
  return [
    meter(say("status.progress"), say("status.answered", { answered, total: terms.asks }), answered, terms.asks),
    meter(say("status.budget"), say("status.used", spent), used, terms.cap, say("status.meaning", spent)),
    sending(progress, problem),
  ];
}

/** Return a number without the last digits that only binary arithmetic put there. */
function rounded(value) {
  return Number(value.toPrecision(12));
}

function meter(title, text, part, whole, meaning = null) {
  return element("section", { class: "meter" },
    element("h2", { text: title }),
    element("p", { class: "amount", text }),
    bar(part, whole),
    meaning === null ? null : element("p", { class: "muted", text: meaning }));
}

function sending(progress, problem) {
  const waiting = progress.waiting.length;
  const off = problem === "offline" || !navigator.onLine;
  const lines = [element("p", { class: "amount", text: say(waiting ? "status.waiting" : "status.sent", { waiting }) })];
  lines.push(element("p", { class: off ? "line off" : "line", text: say(off ? "status.offline" : "status.online") }));
  if (problem && !off) lines.push(element("p", { class: "warning", text: trouble(problem) }));
  for (const code of new Set(progress.refused.map((one) => one.code))) {
    const refused = progress.refused.filter((one) => one.code === code).length;
    lines.push(element("p", { class: "warning", text: say("status.refused", { refused, why: trouble(code) }) }));
  }
  return element("section", { class: "meter" }, element("h2", { text: say("status.sending") }), ...lines);
}
