/**
 * The coin, or the die, at work on a hundred made-up answers. They go through the same functions
 * as real answers, and these never see one.
 */

import { button, element } from "./elements.js";
import { FIRST, release, releaseChoice, SECOND } from "./randomize.js";
import { say } from "./texts.js";

const COUNT = 100;
const MOST = 65; // of them are alike: place 0, and the others take turns

/**
 * Toss for every made-up answer and return what would be sent: true answer and sent one, as places.
 *
 * @param {{categories: number, threshold: string}|{threshold: string}} chance - The real die or coin.
 */
export function tossed({ categories, threshold }) {
  const limit = BigInt(threshold);
  return Array.from({ length: COUNT }, (_, number) => {
    const place = number < MOST ? 0 : 1 + (number % ((categories ?? 2) - 1));
    const coin = () => 1 - release([FIRST, SECOND][place], limit);
    return { place, sent: categories ? releaseChoice(place, categories, limit) : coin() };
  });
}

/**
 * Return the demonstration: before, after, and a button that tosses again.
 *
 * @param {object} chance - The real coin or die.
 * @param {string} about - What is made up: "pair", "thumb", "rating" or "choice".
 */
export function demonstration(chance, about) {
  const grid = element("div", { class: "grid", role: "img", "aria-label": say("demo.grid") });
  const told = element("p", { class: "told", role: "status" });
  const draw = () => paint(grid, told, tossed(chance), about);
  draw();
  return element("figure", { class: "demonstration" },
    element("figcaption", { text: say("demo.title") }),
    grid,
    legend(about),
    told,
    button(say("demo.again"), draw, { class: "quiet" }));
}

function paint(grid, told, answers, about) {
  const flipped = answers.filter(({ place, sent }) => place !== sent).length;
  const first = answers.filter(({ sent }) => sent === 0).length;
  grid.replaceChildren(...answers.map(({ place, sent }) =>
    element("span", { class: `cell ${sent === 0 ? "a" : "b"}${place === sent ? "" : " flipped"}` })));
  told.textContent = say(`demo.${about}`, { flipped, first, before: MOST });
}

function legend(about) {
  const entry = (kind, key) =>
    element("li", {}, element("span", { class: `cell ${kind}` }), element("span", { text: say(key) }));
  const changed = about === "choice" ? "demo.replaced" : "demo.flipped";
  return element("ul", { class: "legend" },
    entry("a", `demo.${about}.a`), entry("b", `demo.${about}.b`), entry("a flipped", changed));
}
