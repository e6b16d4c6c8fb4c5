/**
 * The coin at work on a hundred made-up answers. It goes through the same function as real
 * answers, and never sees one.
 */

import { button, element } from "./elements.js";
import { FIRST, release, SECOND } from "./randomize.js";
import { say } from "./texts.js";

const COUNT = 100;
const MADE_UP = Array.from({ length: COUNT }, (_, place) => Number(place < 65)); // 65 of 100 like A

/** Toss a coin for every made-up answer and return what would be sent. */
export function tossed(threshold) {
  return MADE_UP.map((label) => release(label ? FIRST : SECOND, threshold));
}

/**
 * Return the demonstration: before, after, and a button that tosses again.
 *
 * @param {{threshold: string}} terms - The real ones.
 */
export function demonstration(terms) {
  const threshold = BigInt(terms.threshold);
  const grid = element("div", { class: "grid", role: "img" });
  const told = element("p", { class: "told", role: "status" });
  const draw = () => paint(grid, told, tossed(threshold));
  draw();
  return element("figure", { class: "demonstration" },
    element("figcaption", { text: say("demo.title") }),
    grid,
    legend(),
    told,
    button(say("demo.again"), draw, { class: "quiet" }));
}

function paint(grid, told, sent) {
  const flipped = sent.filter((answer, place) => answer !== MADE_UP[place]).length;
  const first = sent.filter((answer) => answer === 1).length;
  grid.replaceChildren(...sent.map((answer, place) =>
    element("span", { class: `cell ${answer ? "a" : "b"}${answer === MADE_UP[place] ? "" : " flipped"}` })));
  grid.setAttribute("aria-label", say("demo.grid"));
  told.textContent = say("demo.told", { flipped, first, before: MADE_UP.filter(Boolean).length });
}

function legend() {
  const entry = (kind, key) =>
    element("li", {}, element("span", { class: `cell ${kind}` }), element("span", { text: say(key) }));
  return element("ul", { class: "legend" },
    entry("a", "demo.a"), entry("b", "demo.b"), entry("a flipped", "demo.flipped"));
}
