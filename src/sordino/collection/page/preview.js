/** A preview: the page as people will see it, which keeps all in memory, and sends nothing. */

import { element } from "./elements.js";
import { randomOrder } from "./identifiers.js";
import { say } from "./texts.js";

/** Tell whether this address shows a preview. */
export const isPreview = location.search === "?preview";

/** Return the banner of a preview; of a page that is none, nothing. */
export function banner() {
  return isPreview ? [element("p", { class: "banner", role: "note", text: say("preview.banner") })] : [];
}

/** Stands in for the memory of a study. It keeps neither choices nor coins: none is tossed. */
export class Preview {
  #settings = new Map();
  #given = [];
  #study = null;

  setting(name) {
    return Promise.resolve(this.#settings.get(name));
  }

  keep(name, value) {
    return Promise.resolve(void this.#settings.set(name, value));
  }

  secret() {
    return Promise.resolve("");
  }

  remember(terms, questions) {
    const placed = questions.map((question, place) => ({ ...question, place, order: randomOrder(question.answers.length) }));
    this.#study = { terms, questions: placed };
    return Promise.resolve(this.#study);
  }

  recall() {
    return Promise.resolve(this.#study);
  }

  progress() {
    return Promise.resolve({ given: [...this.#given], waiting: [], refused: [], moving: null, completion: null });
  }

  against() {
    return Promise.resolve(null);
  }

  release({ question, revision }) {
    this.#given.push({ question, revision });
    return Promise.resolve("released");
  }

  waiting() {
    return Promise.resolve([]);
  }
}
