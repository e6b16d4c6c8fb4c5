/**
 * From one device to another: the old one sends everything, locks itself, and only then asks for a
 * code; the new one takes over by that code. At no moment can both toss a coin, whatever crashes.
 */

import { completed } from "./answered.js";
import { announce, button, element, heading } from "./elements.js";
import { askMove, Refusal } from "./service.js";
import { say, trouble } from "./texts.js";

const CODE = /^[0-9A-HJKMNP-TV-Z]{12}$/;
const ALIKE = { O: "0", I: "1", L: "1" }; // letters that no code has, and what was meant

/** Return a code as the service writes it, or null if a text is none. */
export function codeOf(text) {
  const plain = text.toUpperCase().replace(/[\s-]/g, "").replace(/[OIL]/g, (letter) => ALIKE[letter]);
  return CODE.test(plain) ? plain : null;
}

const grouped = (code) => code.match(/.{4}/g).join("-");

/** The old device. One tab at a time asks, so that no answer to an older question is obeyed. */
export class Mover {
  #memory; #terms; #secret; #changed;
  #code = null;
  #minutes = 0;

  /** The code of what went wrong last, or null. */
  problem = null;

  /**
   * @param {import("./memory.js").Memory} memory - Of the study.
   * @param {object} terms - Of the study.
   * @param {string} secret - By which the server knows this device.
   * @param {function(): void} changed - Called when there is something else to show.
   */
  constructor(memory, terms, secret, changed) {
    this.#memory = memory;
    this.#terms = terms;
    this.#secret = secret;
    this.#changed = changed;
  }

  /** Lock this device, then ask for a code. */
  begin() {
    return this.#alone(async () => {
      if ((await this.#memory.lock()) !== "locked") return;
      const { code, seconds } = await this.#ask("code");
      if (codeOf(String(code)) !== code) throw new Refusal("other");
      this.#code = code;
      this.#minutes = Math.floor(seconds / 60);
    });
  }

  /** Take the code back, then go on here. */
  stay() {
    return this.#alone(async () => {
      await this.#ask("stay");
      this.#code = null;
      await this.#memory.unlock();
    });
  }

  /** Look whether another device has taken over. */
  look() {
    return this.#alone(() => this.#ask("look"), true);
  }

  #alone(work, quiet = false) {
    return navigator.locks.request(`sordino-move-${this.#terms.id}`, { ifAvailable: quiet }, async (lock) => {
      if (lock === null) return; // whoever is at work looks
      let problem = null;
      try {
        await work();
      } catch (error) {
        problem = error.code ?? "storage";
        if (problem === "unknown-device") await this.#memory.keep("moving", "moved");
      }
      const same = quiet && problem === this.problem && problem !== "unknown-device";
      this.problem = problem === "unknown-device" ? null : problem;
      if (!same) this.#changed();
    });
  }

  #ask(step) {
    return askMove(step, this.#secret, this.#terms.id);
  }

  /**
   * Return the view of the old device.
   *
   * @param {object} state - Terms, questions and progress.
   * @param {function(): void} back - To the questions.
   */
  view({ progress }, back) {
    const used = progress.given.length;
    if (progress.moving === "moved") {
      return [heading(say("move.moved")), element("p", { class: "lead", text: say("move.moved.lead") }), ...completed(progress)];
    }
    const warning = this.problem ? element("p", { class: "warning", role: "alert", text: trouble(this.problem) }) : null;
    const nodes = [heading(say("move.title")), warning];
    if (progress.moving !== null) {
      const code = this.#code === null ? [element("p", { class: "lead", text: say("move.locked") })] : this.#shown(used);
      const again = button(say("move.again"), () => this.begin(), { class: this.#code === null ? "primary" : "quiet" });
      nodes.push(...code, element("div", { class: "actions" }, again, button(say("move.stay"), () => this.stay(), { class: "quiet" })));
    } else {
      const waiting = progress.waiting.length;
      const hindered = waiting > 0 || progress.refused.length > 0;
      nodes.push(
        element("p", { class: "lead", text: say("move.lead") }),
        element("p", { text: say("move.how") }),
        hindered ? element("p", { class: "settled", role: "status", text: say(waiting ? "move.waiting" : "move.refused", { waiting }) }) : null,
        element("div", { class: "actions" },
          hindered ? null : button(say("move.begin"), () => this.begin(), { class: "primary" }),
          button(say("nav.back"), back, { class: "quiet" })));
    }
    return nodes.filter((node) => node !== null);
  }

  #shown(used) {
    const link = `${location.origin}${location.pathname}#${grouped(this.#code)}`;
    const copy = button(say("move.copy"), async () => {
      await navigator.clipboard.writeText(link).then(() => announce(say("move.copied")), () => {});
    }, { class: "quiet" });
    return [
      element("p", { class: "lead", text: say("move.code") }),
      element("p", { class: "spelled", translate: "no", text: grouped(this.#code) }),
      element("p", { text: say("move.link") }),
      element("p", { class: "address", text: link }),
      copy,
      element("p", { class: "muted", text: say("move.valid", { minutes: this.#minutes, used }) }),
    ];
  }
}

/** Return the form in which a new device is told a code. */
export function codeForm() {
  const field = element("input", { id: "code", type: "text", autocomplete: "off", autocapitalize: "characters", spellcheck: "false" });
  const wrong = element("p", { class: "warning", role: "alert" });
  const form = element("form", { class: "gate" },
    element("label", { for: "code", text: say("move.ask") }), field, wrong,
    element("button", { class: "primary", text: say("move.enter") }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const code = codeOf(field.value);
    if (code === null) wrong.textContent = say("error.unknown-code");
    else if (location.hash.slice(1) === code) location.reload();
    else location.hash = code; // the page is loaded again, as by a link
  });
  return form;
}
