/**
 * Sending at fixed ticks.
 *
 * The ticks are those of a steady timer that started with the page. When a request leaves says
 * nothing about when, or how fast, somebody clicked; not even right after being offline.
 */

import { wellNamed } from "./canonical.js";
import { Refusal, sendAnswers } from "./service.js";

/** After these the service takes no more answers of this device. */
export const CLOSED = ["unknown-device", "invitation-expired", "invitation-revoked", "wrong-study"];

const AT_ONCE = 50; // the most answers of one request; texts go with one at a time
const LONGEST_WAIT = 8; // in ticks

/** Sends what waits, one request per tick. */
export class Sender {
  #memory; #terms; #secret; #seconds; #changed; #join;
  #failures = 0;
  #pause = 0;
  #busy = false;

  /** The code of what went wrong last, or null. */
  problem = null;

  /**
   * @param {import("./memory.js").Memory} memory - Where the queue is.
   * @param {object} terms - Of the study.
   * @param {string} secret - By which the server knows this device.
   * @param {function(): void} changed - Called after every tick: another tab may have sent.
   * @param {(function(): Promise)|null} join - In a frame: called before something is sent. Texts of
   *     questions then go with their answers, and of many frames one sends.
   */
  constructor(memory, terms, secret, changed, join = null) {
    this.#memory = memory;
    this.#terms = terms;
    this.#secret = secret;
    this.#seconds = terms.tick_seconds;
    this.#changed = changed;
    this.#join = join;
  }

  /**
   * Start the timer. `performance.now` counts from the start of the page, on any clock; frames, of
   * which many start at different times, follow the clock of the device.
   *
   * @param {number|null} phase - Of frames: where in a tick this device sends, from 0 to 1.
   */
  start(phase = null) {
    const length = 1000 * this.#seconds;
    const now = () => (phase === null ? performance.now() : Date.now() - phase * length);
    const next = () => (Math.round(now() / length) + 1) * length - now();
    const beat = () => {
      this.tick();
      setTimeout(beat, next());
    };
    setTimeout(beat, next());
    addEventListener("online", () => this.hurry());
  }

  /** Forget the pause after failures: the next tick sends. */
  hurry() {
    this.#pause = 0;
  }

  /** Send what waits, unless a request is still on its way or a pause is on. */
  async tick() {
    if (this.#busy || CLOSED.includes(this.problem)) return; // what nobody takes is not sent again
    if (this.#pause > 0) {
      this.#pause -= 1;
      return;
    }
    this.#busy = true;
    try {
      const free = { ifAvailable: true };
      if (this.#join === null) await this.#send();
      else await navigator.locks.request(`sordino-${this.#terms.id}`, free, (held) => held && this.#send());
    } finally {
      this.#busy = false;
    }
  }

  async #send() {
    try {
      const answers = await this.#memory.waiting(this.#join === null ? AT_ONCE : 1);
      if (answers.length === 0) this.problem = null;
      else await this.#deliver(answers);
    } catch (error) {
      this.#failed(error instanceof Refusal ? error : new Refusal("storage"));
    }
    this.#changed();
  }

  async #deliver(answers) {
    await this.#join?.();
    const texts = this.#join === null ? undefined : await this.#memory.noted(answers);
    const reply = await sendAnswers(this.#secret, this.#terms.id, answers, texts);
    const { stored, refused, questions, completion = null } = reply;
    if (!Array.isArray(stored) || !Array.isArray(refused)) throw new Refusal("other");
    if (questions?.length && this.#terms.choose !== "fewest") { // no other study has more to ask
      if (!(await wellNamed(questions, this.#terms))) throw new Refusal("terms-wrong");
      await this.#memory.learn(questions);
    }
    // A crash between the two lines sends the same answers again under the same ids.
    await this.#memory.settle(stored, refused, completion);
    if (this.#join !== null) await this.#memory.drop(answers);
    this.problem = null;
    this.#failures = 0;
  }

  /** Wait longer after each failure, in whole ticks. The queue stays as it is. */
  #failed(refusal) {
    this.problem = refusal.code;
    this.#failures += 1;
    const asked = Math.ceil(refusal.retryAfter / this.#seconds);
    const usual = Math.min(2 ** (this.#failures - 1) - 1, LONGEST_WAIT);
    this.#pause = Math.max(usual, Math.min(asked, 10 * LONGEST_WAIT) - 1, 0);
  }
}
