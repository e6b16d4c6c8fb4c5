/**
 * One question, and the choice for as long as it can be undone.
 *
 * The choice lives in one variable of this file. It is written nowhere: no form field, no
 * storage, no address, no log. It is gone when it is undone, sent, or the page is closed.
 */

import { announce, button, element, heading, passage } from "./elements.js";
import { FIRST, SECOND, UNDECIDED } from "./randomize.js";
import { say, speaker } from "./texts.js";

const KEYS = {
  1: "left", ArrowLeft: "left", 2: "right", ArrowRight: "right",
  0: "tie", t: "tie", T: "tie", s: "skip", S: "skip",
};

/** Return a choice as a judgment in the order of the study: what changed places goes back first. */
export function judgmentOf(choice, order) {
  return { left: [FIRST, SECOND][order[0]], right: [FIRST, SECOND][order[1]], tie: UNDECIDED, skip: UNDECIDED }[choice];
}

/** A question on the page. */
export class QuestionView {
  #question; #terms; #about; #handlers;
  #choice = null;
  node = element("div", { class: "question" });

  /**
   * @param {object} question - With `order`, drawn when the study was opened.
   * @param {object} terms - Of the study.
   * @param {{number: number, total: number, again: boolean}} about - Where this question stands.
   * @param {{send: function(number), leave: function(), shortcuts: function(): boolean}} handlers
   */
  constructor(question, terms, about, handlers) {
    this.#question = question;
    this.#terms = terms;
    this.#about = about;
    this.#handlers = handlers;
    this.draw();
  }

  /** Draw everything anew, in the language that is on now. */
  draw() {
    const { prompt, answers, order } = this.#question;
    const [left, right] = order.map((place) => answers[place]);
    this.node.replaceChildren(
      heading(say(this.#about.again ? "question.again" : "question.title", this.#about)),
      element("p", { class: "hint", text: say("question.hint") }),
      element("section", { class: "prompt", "aria-label": say("question.prompt") }, passage(prompt, speaker)),
      element("div", { class: "pair" }, this.#card("left", left), this.#card("right", right)),
      this.#choice === null ? this.#ways() : this.#pending(),
      this.#help());
  }

  #card(side, text) {
    const chosen = this.#choice === side;
    const name = say(`question.${side}`);
    return element("section", { class: chosen ? "answer chosen" : "answer", "aria-label": name },
      element("p", { class: "eyebrow", "aria-hidden": "true", text: name }),
      passage(text, speaker),
      element("div", { class: "foot" },
        button(say("question.better"), () => this.#choose(side),
          { class: "choose", "aria-pressed": String(chosen), "aria-label": say(`question.better.${side}`) })));
  }

  /** Return the ways out: a tie, a skip, and leaving a question that was answered before. */
  #ways() {
    const ways = element("div", { class: "ways" });
    if (this.#terms.ties) ways.append(button(say("question.tie"), () => this.#choose("tie"), { class: "quiet" }));
    if (this.#terms.skips) ways.append(button(say("question.skip"), () => this.#choose("skip"), { class: "quiet" }));
    if (this.#about.again) ways.append(button(say("question.leave"), () => this.leave(), { class: "quiet" }));
    return ways;
  }

  #pending() {
    return element("div", { class: "pending", role: "group", "aria-label": say("pending.label") },
      element("p", { text: say(`pending.${this.#choice}`) }),
      element("div", { class: "both" },
        button(say("pending.undo"), () => this.undo(), { class: "quiet" }),
        button(say("pending.send"), () => this.#send(), { class: "primary send" })));
  }

  #help() {
    const entry = (keys, key) => element("li", {},
      ...keys.map((name) => element("kbd", { text: name })), element("span", { text: say(key) }));
    const on = this.#handlers.shortcuts();
    const entries = element("ul", { class: "keys", hidden: !on },
      entry(["1", "←"], "keys.left"), entry(["2", "→"], "keys.right"),
      this.#terms.ties ? entry(["0", "T"], "keys.tie") : null,
      this.#terms.skips ? entry(["S"], "keys.skip") : null,
      entry(["U", "Esc"], "keys.undo"), entry(["Enter"], "keys.send"));
    return element("div", { class: "help" }, entries,
      button(say(on ? "keys.off" : "keys.on"), () => this.#handlers.toggle(), { class: "link shortcuts" }));
  }

  #choose(choice) {
    this.#choice = choice;
    this.draw();
    announce(say(`pending.${choice}`));
    this.node.querySelector(".send").focus();
  }

  /** Take the choice back. Nothing was drawn, kept or sent. */
  undo() {
    if (this.#choice === null) return;
    this.forget();
    announce(say("pending.undone"));
    this.node.querySelector(".choose").focus();
  }

  /** Forget the choice without a word. */
  forget() {
    this.#choice = null;
    announce("");
    this.draw();
  }

  /** Leave a question that was answered before as it is. */
  leave() {
    this.forget();
    this.#handlers.leave();
  }

  /** Randomize and go on: from here on not even this page knows the choice. */
  #send() {
    if (this.#choice === null) return;
    const judgment = judgmentOf(this.#choice, this.#question.order);
    this.forget();
    this.node.inert = true; // a second click must not answer twice
    this.#handlers.send(judgment);
  }

  /** Follow a key; return whether it meant something. */
  key(name) {
    if (this.node.inert) return false;
    if (name === "Enter") return this.#choice !== null && (this.#send(), true);
    if (name === "Escape" || name.toLowerCase() === "u") return this.#choice !== null && (this.undo(), true);
    const choice = KEYS[name];
    if (!choice || (choice === "tie" && !this.#terms.ties) || (choice === "skip" && !this.#terms.skips)) return false;
    this.#choose(choice);
    return true;
  }
}
