/**
 * What each kind of question shows, what can be chosen, and which judgment a choice is.
 *
 * A choice is the number of a button, from 0; the order so far, of a ranking; or the name of a way
 * out: "tie" (of two), "all" (of a few) and "skip". It is handed in and handed back, and kept in no
 * object of this file.
 */

import { button, element } from "./elements.js";
import { FIRST, NO_CHOICE, SECOND, UNDECIDED } from "./randomize.js";
import { say } from "./texts.js";

/** Return what a question asks for, as one of the kinds below. */
export function kindOf(question, terms) {
  return new KINDS[question.ask](question, terms);
}

/** What all kinds have in common. */
class Kind {
  /** The class of the answers' frame: how they stand beside each other. */
  frame = "single";
  /** The name of the way out that finds all answers equal; null where there is but one. */
  equal = null;

  /**
   * @param {{ask: string, answers: *[], order: number[]}} question - With the order on this screen.
   * @param {object} terms - Of the study.
   */
  constructor({ ask, answers, order }, terms) {
    this.ask = ask;
    this.order = order;
    this.terms = terms;
    this.count = answers.length; // of buttons
  }

  /** Return the ways out of choosing that the study allows. */
  get ways() {
    return [this.terms.ties && this.equal, this.terms.skips && "skip"].filter(Boolean);
  }

  /** Return what stands below an answer: its buttons. */
  foot(at, choice, press) {
    return element("div", { class: "foot" }, ...this.buttons(at, choice).map(([number, text, label]) =>
      button(text, () => press(number),
        { class: "choose", "aria-pressed": String(this.pressed(number, choice)), "aria-label": label })));
  }

  pressed(number, choice) {
    return number === choice;
  }

  /** Return the choice after a button or a way out was pressed. */
  press(number) {
    return number;
  }

  /** Return the choice without its last step, or null if nothing is left. */
  back() {
    return null;
  }

  /** Tell whether a choice can be sent. */
  complete(choice) {
    return choice !== null;
  }

  /** Return a choice in words. */
  said(choice) {
    return typeof choice === "string" ? say(`pending.${choice}`) : this.told(choice);
  }

  /** Return which button or way out a key stands for, or null. */
  keyed(key) {
    const number = this.numbered(key);
    if (number !== null) return number;
    const way = { 0: this.equal, t: this.equal, s: "skip" }[key.toLowerCase()];
    return this.ways.includes(way) ? way : null;
  }

  /** Return the button of a number key: 1 is the first, 0 the tenth. */
  numbered(key) {
    const number = /^[0-9]$/.test(key) ? (Number(key) + 9) % 10 : Infinity;
    return number < this.count ? number : null;
  }

  /** Return all keys with what they stand for. */
  help() {
    const ways = {
      tie: [["0", "T"], "keys.tie"],
      all: [this.count < 10 ? ["0", "T"] : ["T"], "keys.all"],
      skip: [["S"], "keys.skip"],
    };
    return [
      ...this.entries(),
      ...this.ways.map((way) => [ways[way][0], say(ways[way][1])]),
      [["U", "Esc"], say("keys.undo")],
      [["Enter"], say("keys.send")],
    ];
  }
}

/** Two buttons: arrows stand for them as well. */
const ARROWS = { ArrowLeft: 0, ArrowRight: 1 };

/** Which of two answers is better. */
class Pair extends Kind {
  frame = "pair";
  equal = "tie";

  buttons(at) {
    const words = say(`question.pick.${this.ask}`);
    return [[at, words, say("question.pick.label", { words, number: at + 1 })]];
  }

  told(choice) {
    return say("pending.answer", { number: choice + 1 });
  }

  numbered(key) {
    return ARROWS[key] ?? super.numbered(key);
  }

  entries() {
    return [[["1", "←"], say("keys.answer", { number: 1 })], [["2", "→"], say("keys.answer", { number: 2 })]];
  }

  /** Return a choice as a judgment in the order of the study: what changed places goes back first. */
  judgment(choice) {
    return [FIRST, SECOND][this.order[choice]] ?? UNDECIDED;
  }
}

/** Whether one answer is good. */
class Thumb extends Kind {
  count = 2;

  buttons() {
    return [[0, say("question.good"), null], [1, say("question.bad"), null]];
  }

  told(choice) {
    return say(["pending.good", "pending.bad"][choice]);
  }

  numbered(key) {
    return ARROWS[key] ?? super.numbered(key);
  }

  entries() {
    return [[["1", "←"], say("keys.good")], [["2", "→"], say("keys.bad")]];
  }

  judgment(choice) {
    return [FIRST, SECOND][choice] ?? UNDECIDED;
  }
}

/** How good one answer is: its levels, the lowest first. */
class Rating extends Kind {
  constructor(question, terms) {
    super(question, terms);
    [this.low, this.high] = terms.levels;
    this.count = this.high - this.low + 1;
  }

  foot(at, choice, press) {
    const foot = super.foot(at, choice, press);
    const levels = element("div", { class: "levels", role: "group", "aria-label": say("question.hint.rating") });
    levels.style.setProperty("--half", Math.ceil(this.count / 2));
    levels.style.setProperty("--count", this.count);
    levels.append(...foot.childNodes);
    foot.append(levels, element("p", { class: "ends" },
      element("span", { text: say("question.low", { level: this.low }) }),
      element("span", { text: say("question.high", { level: this.high }) })));
    return foot;
  }

  buttons() {
    return Array.from({ length: this.count }, (_, number) => {
      const places = this.#places(number);
      return [number, say("number", { value: places.level }), say("question.level", places)];
    });
  }

  #places(number) {
    return { level: this.low + number, low: this.low, high: this.high };
  }

  told(choice) {
    return say("pending.rating", this.#places(choice));
  }

  /** A level has its own digit, and 0 is ten; where levels go below 0 they are counted. */
  numbered(key) {
    const level = /^[0-9]$/.test(key) ? Number(key) : NaN;
    const number = this.low < 0 ? (level + 9) % 10 : (level === 0 && this.low > 0 ? 10 : level) - this.low;
    return number >= 0 && number < this.count ? number : null;
  }

  /** Arrows go one level up or down, and begin at an end. */
  keyed(key, choice) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (step === undefined) return super.keyed(key);
    const from = typeof choice === "number" ? choice : step > 0 ? -1 : this.count;
    return Math.min(Math.max(from + step, 0), this.count - 1);
  }

  entries() {
    const digits = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0].map(String).filter((key) => this.numbered(key) !== null);
    const ordered = digits.toSorted((one, other) => this.numbered(one) - this.numbered(other));
    const last = this.low + this.numbered(ordered.at(-1));
    return [
      [[ordered[0], "…", ordered.at(-1)], say("keys.levels", { low: this.low + this.numbered(ordered[0]), high: last })],
      [["←", "→"], say("keys.move")],
    ];
  }

  judgment(choice) {
    return typeof choice === "number" ? [choice, this.count - 1] : UNDECIDED;
  }
}

/** The best of a few answers. */
class Choice extends Pair {
  frame = "few";
  equal = "all";

  numbered(key) {
    return key in ARROWS ? null : super.numbered(key);
  }

  entries() {
    return [[["1", "…", String(this.count % 10)], say("keys.answers", { count: this.count })]];
  }

  judgment(choice) {
    return this.order[choice] ?? NO_CHOICE;
  }
}

/** The order of a few answers, one step at a time. The last one follows from the others. */
class Ranking extends Choice {
  /** Return the places taken so far. */
  #placed(choice) {
    return Array.isArray(choice) ? choice : [];
  }

  buttons(at, choice) {
    const placed = this.#placed(choice);
    const found = placed.indexOf(at);
    const words = found < 0 ? say("question.pick.ranking", { place: placed.length + 1 }) : say("question.placed", { place: found + 1 });
    return [[at, words, say("question.pick.label", { words, number: at + 1 })]];
  }

  pressed(number, choice) {
    return this.#placed(choice).includes(number);
  }

  /** Put an answer next; or take it and what came after it back, if it has a place. */
  press(number, choice) {
    if (typeof number === "string") return number;
    const placed = this.#placed(choice);
    if (placed.includes(number)) return this.#until(placed, placed.indexOf(number));
    const longer = [...placed, number];
    if (longer.length < this.count - 1) return longer;
    return [...longer, ...this.order.map((_, other) => other).filter((other) => !longer.includes(other))];
  }

  back(choice) {
    return this.#until(this.#placed(choice), this.#placed(choice).length - 1);
  }

  /** Return the first few steps; the one before the last takes the last with it. */
  #until(placed, count) {
    const left = placed.slice(0, Math.max(0, Math.min(count, this.count - 2)));
    return left.length > 0 ? left : null;
  }

  complete(choice) {
    return choice !== null && (typeof choice === "string" || choice.length === this.count);
  }

  told(choice) {
    if (this.complete(choice)) return say("pending.ranking", { number: choice[0] + 1 });
    const places = { number: choice.at(-1) + 1, place: choice.length, next: choice.length + 1 };
    return say("pending.step", places);
  }

  /** Only the first place is a judgment; the rest goes no further than this line. */
  judgment(choice) {
    return this.order[this.#placed(choice)[0]] ?? NO_CHOICE;
  }
}

const KINDS = { pair: Pair, thumb: Thumb, rating: Rating, choice: Choice, ranking: Ranking };
