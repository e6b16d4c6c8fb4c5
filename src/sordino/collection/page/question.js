/**
 * One question, and the choice for as long as it can be undone.
 *
 * The choice lives in one variable of this file. It is written nowhere: no form field, no
 * storage, no address, no log. It is gone when it is undone, sent, or the page is closed.
 */

import { announce, button, element, heading } from "./elements.js";
import { kindOf } from "./kinds.js";
import { passage } from "./passage.js";
import { say, speaker } from "./texts.js";

/** A question on the page. */
export class QuestionView {
  #question; #kind; #about; #handlers;
  #choice = null;
  node = element("div", { class: "question" });

  /**
   * @param {object} question - With `order`, drawn when the study was opened.
   * @param {object} terms - Of the study.
   * @param {{number: number, total: number, again: boolean}} about - Where this question stands.
   * @param {{send: function(*), leave: function(), shortcuts: function(): boolean}} handlers
   */
  constructor(question, terms, about, handlers) {
    this.#question = question;
    this.#kind = kindOf(question, terms);
    this.#about = about;
    this.#handlers = handlers;
    this.draw();
  }

  /** Draw everything anew, in the language that is on now. */
  draw() {
    const { ask, prompt, answers, order } = this.#question;
    const cards = order.map((place, at) => this.#card(at, answers[place]));
    this.node.replaceChildren(...[
      heading(say(this.#about.again ? "question.again" : "question.title", this.#about)),
      element("p", { class: "hint", text: say(`question.hint.${ask}`) }),
      ask === "ranking" ? element("p", { class: "aside", text: say("question.note.ranking") }) : null,
      element("section", { class: "prompt", "aria-label": say("question.prompt") }, passage(prompt, speaker)),
      element("div", { class: this.#kind.frame }, ...cards),
      this.#kind.complete(this.#choice) ? this.#pending() : this.#ways(),
      this.#help()].filter(Boolean));
  }

  #card(at, text) {
    const alone = this.#kind.frame === "single";
    const name = alone ? say("question.one") : say("question.answer", { number: at + 1 });
    const foot = this.#kind.foot(at, this.#choice, (number) => this.#press(number));
    const chosen = foot.querySelector("[aria-pressed=true]") !== null;
    return element("section", { class: chosen ? "answer chosen" : "answer", "aria-label": name },
      element("p", { class: "eyebrow", "aria-hidden": "true", text: name }),
      passage(text, speaker),
      foot);
  }

  /** Return the ways out: a step back, a tie, a skip, and leaving a question that was answered before. */
  #ways() {
    const way = (key, on) => button(say(key), on, { class: "quiet" });
    return element("div", { class: "ways" },
      this.#choice === null ? null : way("question.back", () => this.undo()),
      ...this.#kind.ways.map((name) => way(`question.${name}`, () => this.#press(name))),
      this.#about.again ? way("question.leave", () => this.leave()) : null);
  }

  #pending() {
    return element("div", { class: "pending", role: "group", "aria-label": say("pending.label") },
      element("p", { text: this.#kind.said(this.#choice) }),
      element("div", { class: "both" },
        button(say("pending.undo"), () => this.undo(), { class: "quiet" }),
        button(say("pending.send"), () => this.#send(), { class: "primary send" })));
  }

  #help() {
    const entry = ([keys, text]) => element("li", {},
      ...keys.map((name) => (name === "…" ? element("span", { text: name }) : element("kbd", { text: name }))),
      element("span", { text }));
    const on = this.#handlers.shortcuts();
    return element("div", { class: "help" },
      element("ul", { class: "keys", hidden: !on }, ...this.#kind.help().map(entry)),
      button(say(on ? "keys.off" : "keys.on"), () => this.#handlers.toggle(), { class: "link shortcuts" }));
  }

  /** Follow a button; the focus goes on to the sending, or stays where it was pressed. */
  #press(number) {
    this.#take(this.#kind.press(number, this.#choice), number);
  }

  /** Take the last step back. Nothing was drawn, kept or sent. */
  undo() {
    if (this.#choice !== null) this.#take(this.#kind.back(this.#choice), 0);
  }

  #take(choice, number) {
    this.#choice = choice;
    this.draw();
    announce(choice === null ? say("pending.undone") : this.#kind.said(choice));
    const sent = this.node.querySelector(".send");
    (sent ?? this.node.querySelectorAll(".choose")[number]).focus({ preventScroll: sent === null && choice !== null });
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
    if (!this.#kind.complete(this.#choice)) return;
    const judgment = this.#kind.judgment(this.#choice);
    this.forget();
    this.node.inert = true; // a second click must not answer twice
    this.#handlers.send(judgment);
  }

  /** Follow a key; return whether it meant something. */
  key(name) {
    if (this.node.inert) return false;
    if (name === "Enter") return this.#kind.complete(this.#choice) && (this.#send(), true);
    if (name === "Escape" || name.toLowerCase() === "u") return this.#choice !== null && (this.undo(), true);
    const number = this.#kind.keyed(name, this.#choice);
    if (number === null) return false;
    this.#press(number);
    return true;
  }
}
