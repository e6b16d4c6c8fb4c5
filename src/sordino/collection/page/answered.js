/** The list of answered questions and the last page. Neither knows what was answered. */

import { button, element, heading } from "./elements.js";
import { excerpt } from "./passage.js";
import { answersLeft } from "./terms.js";
import { say, trouble } from "./texts.js";

/**
 * Return the list of answered questions.
 *
 * @param {object} state - Terms, questions and progress.
 * @param {function(object, number): void} change - Called with a question and its next revision.
 * @param {function(): void} back - To the questions.
 * @param {string|null} closed - The code of why no more answers are taken, or null.
 */
export function answeredList(state, change, back, closed) {
  const rows = answered(state).map((question) => row(state, question, closed ? null : change));
  const paid = state.terms.changes === "paid";
  const left = answersLeft(state.terms, state.progress.given.length);
  return [
    heading(say("list.title")),
    element("p", { class: "lead", text: say("list.lead") }),
    element("p", { text: paid ? say("list.paid", { left }) : say("list.refused") }),
    rows.length ? element("ol", { class: "answered" }, ...rows) : element("p", { class: "muted", text: say("list.none") }),
    element("div", { class: "actions" }, button(say("nav.back"), back, { class: "primary" })),
  ];
}

function answered(state) {
  return state.questions.filter(({ id }) => revisions(state, id) > 0);
}

/** Say anew what was sent, in a list that is on the page; the focus stays where it is. */
export function restate(place, state) {
  const lines = place.querySelectorAll(".standing");
  answered(state).forEach(({ id }, i) => {
    if (lines[i]) lines[i].textContent = standing(state, id, revisions(state, id));
  });
}

function revisions(state, id) {
  return state.progress.given.filter(({ question }) => question === id).length;
}

function row(state, question, change) {
  const count = revisions(state, question.id);
  const left = answersLeft(state.terms, state.progress.given.length);
  const number = question.place + 1;
  const offer = change !== null && state.terms.changes === "paid" && left > 0;
  return element("li", {},
    element("div", {},
      element("p", { class: "eyebrow", text: say("list.number", { number }) }),
      element("p", { class: "excerpt", dir: "auto", text: excerpt(question.prompt) }),
      element("p", { class: "muted standing", text: standing(state, question.id, count) })),
    offer ? button(say("list.change", { left }), () => change(question, count + 1),
      { class: "quiet", "aria-label": say("list.change.label", { number, left }) }) : null);
}

/** Return whether the answers to a question wait, were sent or were refused. */
function standing(state, id, count) {
  const { waiting, refused } = state.progress;
  const told = refused.findLast(({ question }) => question === id);
  if (told) return say("list.not", { why: trouble(told.code) });
  const sent = waiting.some(({ question }) => question === id) ? "list.waiting" : "list.sent";
  return count > 1 ? `${say(sent)} ${say("list.times", { count })}` : say(sent);
}

/**
 * Return the last page.
 *
 * @param {object} state - Terms, questions and progress.
 * @param {string|null} closed - The code of why no more answers are taken, or null.
 */
export function lastPage(state, closed) {
  const waiting = state.progress.waiting.length;
  const answered = new Set(state.progress.given.map(({ question }) => question)).size;
  const all = answered === Math.max(state.terms.asks, state.questions.length);
  const refused = state.progress.refused.length;
  const places = { answered, total: state.terms.asks, waiting, refused, cap: state.terms.cap };
  return [
    heading(say(waiting || refused ? "end.wait" : "end.title")),
    element("p", { class: "lead", text: closed ? trouble(closed) : say(all ? "end.all" : "end.cap", places) }),
    element("p", { role: "status", class: "settled", text: say(waiting ? "end.open" : refused ? "end.refused" : "end.close", places) }),
    ...completed(state.progress),
    element("p", { class: "muted", text: say("end.device") }),
  ];
}

/** Return what a panel is shown once everything is sent: a code, and the way back. */
export function completed({ completion, waiting }) {
  if (completion === null || waiting.length > 0) return [];
  const safe = typeof completion.url === "string" && completion.url.startsWith("https://");
  return [
    ...(completion.code ? [element("p", { text: say("end.code") }), element("p", { class: "spelled", translate: "no", text: completion.code })] : []),
    ...(safe ? [element("p", {}, element("a", { class: "button", href: completion.url, rel: "noreferrer", text: say("end.return") }))] : []),
  ];
}
