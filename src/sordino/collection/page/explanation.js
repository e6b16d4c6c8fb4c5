/** What happens to an answer, what is hidden and what is not, in plain words. */

import { demonstration } from "./demonstration.js";
import { button, element, heading } from "./elements.js";
import { flipProbability, greatestBelief } from "./terms.js";
import { language, percent, say } from "./texts.js";

/**
 * Return the explanation.
 *
 * @param {object} terms - Of the study.
 * @param {boolean} begun - Whether this person has read it before.
 * @param {function(): void} go - To the questions.
 */
export function explanation(terms, begun, go) {
  const places = facts(terms);
  const weak = terms.caveats?.includes("weak-promise") ? ["explain.together.weak"] : [];
  return [
    heading(say("explain.title")),
    element("p", { class: "lead", text: say("explain.lead", places) }),
    section("explain.coin", ["explain.coin.1", "explain.coin.2"], places, demonstration(terms)),
    section("explain.sees", ["explain.sees.1", "explain.sees.2"], places),
    section("explain.open", ["explain.open.1"], places, list(openly(terms), places)),
    section("explain.together", ["explain.together.1", ...weak], places),
    section("explain.device", ["explain.device.1", "explain.device.2"], places),
    section("explain.stop", ["explain.stop.1"], places),
    element("div", { class: "actions" },
      button(say(begun ? "nav.back" : "explain.begin"), go, { class: "primary" })),
  ];
}

function facts(terms) {
  const flip = flipProbability(terms);
  return {
    odds: Math.ceil(1 / flip),
    flip: percent(flip, Math.floor),
    belief: percent(greatestBelief(terms)),
    cap: terms.cap,
    seconds: terms.tick_seconds,
    expires: day(terms.expires),
  };
}

/** Return a date in words. It comes from the server: the clock of this device may be wrong. */
function day(time) {
  const style = { dateStyle: "long", timeZone: "UTC" };
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : new Intl.DateTimeFormat(language(), style).format(date);
}

function openly(terms) {
  const keys = ["explain.open.took", "explain.open.which", "explain.open.stop"];
  if (terms.changes === "paid") keys.push("explain.open.changed");
  if (terms.choose === "optimistic") keys.push("explain.open.chosen");
  return keys;
}

function section(title, paragraphs, places, ...more) {
  return element("section", {},
    element("h2", { text: say(title, places) }),
    element("div", {},
      ...paragraphs.map((key) => element("p", { text: say(key, places) })),
      ...more));
}

function list(keys, places) {
  return element("ul", {}, ...keys.map((key) => element("li", { text: say(key, places) })));
}
