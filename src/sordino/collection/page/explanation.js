/** What happens to an answer, what is hidden and what is not, in plain words. */

import { demonstration } from "./demonstration.js";
import { button, element, heading } from "./elements.js";
import { flipProbability, greatestBelief } from "./terms.js";
import { language, percent, say } from "./texts.js";

/**
 * Return the explanation: of a coin, of a die, or of both, by what this person is asked.
 *
 * @param {{terms: object, questions: object[]}} state - Of the study.
 * @param {boolean} begun - Whether this person has read it before.
 * @param {function(): void} go - To the questions.
 * @param {(function(): void)|null} move - To another device, if that is possible.
 */
export function explanation({ terms, questions }, begun, go, move = null) {
  const asked = new Set(questions.length ? questions.map(({ ask }) => ask) : ["pair"]); // none is chosen yet
  const die = asked.has("choice") || asked.has("ranking") ? terms.die : null;
  const [tossed = null] = ["pair", "thumb", "rating"].filter((ask) => asked.has(ask));
  const places = facts(terms, die);
  const when = (condition, ...keys) => (condition ? keys : []);
  const out = terms.skips || (terms.ties && asked.has("pair"));
  const kind = asked.size > 1 ? "mixed" : [...asked][0];
  const chance = tossed === null ? "die" : die === null ? "coin" : "both";
  return [
    heading(say("explain.title")),
    element("p", { class: "lead", text: `${say(`explain.asked.${terms.feedback ? "feedback" : kind}`, places)} ${say(`explain.lead.${terms.feedback ? "frame" : chance}`)}` }),
    tossed === null ? null : section("explain.coin",
      ["explain.coin.1", ...when(asked.has("rating"), "explain.coin.rating"), ...when(out, "explain.coin.2")],
      places, demonstration(terms, tossed)),
    die === null ? null : section("explain.die",
      ["explain.die.1", ...when(asked.has("ranking"), "explain.die.ranking"), ...when(terms.ties || terms.skips, "explain.die.2")],
      places, demonstration(die, "choice")),
    section("explain.sees", [
      ...when(asked.has("pair") || asked.has("thumb"), "explain.sees.1"),
      ...when(asked.has("rating"), "explain.sees.rating"),
      ...when(die !== null, "explain.sees.die"),
      "explain.sees.2"], places),
    section("explain.open", ["explain.open.1"], places, list(openly(terms), places)),
    section("explain.together", ["explain.together.1", ...when(terms.caveats?.includes("weak-promise"), "explain.together.weak")], places),
    section("explain.device", ["explain.device.1", "explain.device.2"], places),
    section("explain.stop", ["explain.stop.1"], places),
    element("div", { class: "actions" },
      button(say(begun ? "nav.back" : "explain.begin"), go, { class: "primary" }),
      move === null ? null : button(say("move.title"), move, { class: "quiet" })),
  ].filter(Boolean);
}

function facts(terms, die) {
  const [low, high] = terms.levels ?? [];
  const { part, odds, flip } = rate(terms);
  const choices = die && rate(die);
  return {
    part, odds, flip, low, high,
    belief: percent(greatestBelief(terms)),
    replaced: choices?.part,
    choices: choices?.odds,
    share: choices?.flip,
    sure: die && percent(greatestBelief(terms, die.categories)),
    categories: die?.categories,
    cap: terms.cap,
    seconds: terms.tick_seconds,
    expires: day(terms.expires),
  };
}

/** Return how often chance changes an answer, rounded down: 1 in so many; above a third, so many in 10. */
function rate(chance) {
  const share = flipProbability(chance);
  const [part, odds] = share > 1 / 3 ? [Math.floor(10 * share), 10] : [1, Math.ceil(1 / share)];
  return { part, odds, flip: percent(share, Math.floor) };
}
/** Return a date in words. It comes from the server: the clock of this device may be wrong. */
function day(time) {
  const style = { dateStyle: "long", timeZone: "UTC" };
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : new Intl.DateTimeFormat(language(), style).format(date);
}

function openly(terms) {
  const shown = terms.feedback ? ["explain.open.texts", "explain.open.pressed"] : ["explain.open.which", "explain.open.stop"];
  const keys = ["explain.open.took", ...shown];
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
