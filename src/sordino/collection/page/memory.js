/**
 * What this device keeps, in IndexedDB.
 *
 * It keeps randomized answers and public facts. The true choice never comes here: the only
 * function that is given one, `release`, randomizes it before anything is written.
 */

import { randomId, randomOrder, randomSecret } from "./identifiers.js";
import { release, releaseChoice } from "./randomize.js";
import { HOME } from "./service.js";

const NAME = "sordino"; // of the base that says which study was opened here last
const STORES = ["settings", "questions", "answers", "queue", "refused"];

/** Return the memory of one study on this device, or throw when the browser keeps nothing. */
export async function openMemory(study) {
  const memory = new Memory(await openBase(`${NAME}-${study}`, makeStores));
  await memory.keep("probe", 1); // a browser that cannot write says so here, not at an answer
  return memory;
}

/**
 * Return which study this page is about, or null if none was ever opened on this device.
 *
 * Every study has a base of its own: one that begins later at the same address, or beside it on the
 * same host, takes nothing away from an earlier one, and no answer can be sent to the wrong one.
 *
 * @param {string|null} here - The study that the service has now, or null if that is not known.
 */
export async function whichStudy(here) {
  const base = await openBase(NAME, (fresh) => fresh.createObjectStore("settings"));
  const index = new Memory(base);
  if (here !== null) await index.keep(HOME.pathname, here);
  const last = await index.setting(HOME.pathname);
  base.close();
  return last ?? null;
}

async function openBase(name, make) {
  if (!globalThis.crypto?.getRandomValues || !globalThis.indexedDB) throw new Error("no storage");
  const request = indexedDB.open(name, 1);
  request.onupgradeneeded = () => make(request.result);
  return done(request);
}

function makeStores(base) {
  base.createObjectStore("settings");
  base.createObjectStore("questions", { keyPath: "place" });
  base.createObjectStore("answers", { keyPath: ["question", "revision"] });
  base.createObjectStore("queue", { autoIncrement: true });
  base.createObjectStore("refused", { keyPath: "id" });
}

/** Return the result of a request, as a promise. */
function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("blocked"));
  });
}

/** The stored state of one device in one study. */
export class Memory {
  #base;

  constructor(base) {
    this.#base = base;
    base.onversionchange = () => base.close();
  }

  /** Run one transaction; what it returns counts only once everything is safely written. */
  async #within(names, mode, work) {
    // "strict" asks for the disk before anything is sent: a crash then tosses no coin twice.
    const transaction = this.#base.transaction(names, mode, { durability: "strict" });
    const finished = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error ?? new Error("aborted"));
    });
    const stores = Object.fromEntries(names.map((name) => [name, transaction.objectStore(name)]));
    const worked = work(stores).catch((error) => {
      transaction.abort(); // all or nothing
      throw error;
    });
    return (await Promise.all([worked, finished]))[0];
  }

  /** Return a setting, or undefined. */
  setting(name) {
    return this.#within(["settings"], "readonly", ({ settings }) => done(settings.get(name)));
  }

  /** Keep a setting. */
  keep(name, value) {
    return this.#within(["settings"], "readwrite", ({ settings }) => done(settings.put(value, name)));
  }

  /** Return the secret by which the server knows this device; made once, whichever tab comes first. */
  secret() {
    const fresh = randomSecret();
    return this.#within(["settings"], "readwrite", async ({ settings }) => {
      const kept = await done(settings.get("secret"));
      if (kept === undefined) await done(settings.add(fresh, "secret"));
      return kept ?? fresh;
    });
  }

  /**
   * Keep terms and questions if there are none yet, and return the ones that are kept.
   *
   * In which order answers are shown is drawn here, before anybody has chosen anything.
   */
  remember(terms, questions) {
    const placed = questions.map((question, place) => ({ ...question, place, order: randomOrder(question.answers.length) }));
    return this.#within(["settings", "questions"], "readwrite", async ({ settings, questions: all }) => {
      const kept = await done(settings.get("terms"));
      if (kept !== undefined) return { terms: kept, questions: await done(all.getAll()) };
      settings.add(terms, "terms");
      for (const question of placed) all.add(question);
      return { terms, questions: placed };
    });
  }

  /** Keep questions that are new here; which ones they are was chosen while people answered. */
  learn(questions) {
    return this.#within(["questions"], "readwrite", async ({ questions: all }) => {
      const kept = await done(all.getAll());
      const names = new Set(kept.map(({ id }) => id));
      const fresh = questions.filter(({ id }) => !names.has(id));
      fresh.forEach((question, at) =>
        all.add({ ...question, place: kept.length + at, order: randomOrder(question.answers.length) }));
    });
  }

  /** Return the terms and questions that are kept, or null. */
  recall() {
    return this.#within(["settings", "questions"], "readonly", async ({ settings, questions }) => {
      const terms = await done(settings.get("terms"));
      return terms === undefined ? null : { terms, questions: await done(questions.getAll()) };
    });
  }

  /** Return how far this device is: keys of answers given, how many wait, what was refused. */
  progress() {
    return this.#within(STORES.slice(2), "readonly", async ({ answers, queue, refused }) => {
      const keys = done(answers.getAllKeys());
      const waiting = done(queue.getAll());
      const list = done(refused.getAll());
      return {
        given: (await keys).map(([question, revision]) => ({ question, revision })),
        waiting: (await waiting).map(({ question, revision }) => ({ question, revision })),
        refused: await list,
      };
    });
  }

  /**
   * Randomize a judgment, keep the randomized answer and queue it: one transaction, so that two tabs
   * cannot both toss a coin for one question.
   *
   * @param {object} asked - `question` (its id), `ask`, `revision`, and the judgment: a share, or
   *     where the best of a few is asked for its place.
   * @param {object} terms - Of the study: its coin, its die and its cap.
   * @returns {Promise<string>} "released", "already" (nothing was drawn) or "cap-reached" (nor here).
   */
  release({ question, ask, revision, judgment }, { threshold, die, cap }) {
    return this.#within(["answers", "queue"], "readwrite", async ({ answers, queue }) => {
      const key = [question, revision];
      if ((await done(answers.getKey(key))) !== undefined) return "already";
      if ((await done(answers.count())) >= cap) return "cap-reached";
      const answer = ["choice", "ranking"].includes(ask)
        ? releaseChoice(judgment, die.categories, BigInt(die.threshold))
        : release(judgment, BigInt(threshold));
      const record = { id: randomId(), question, revision, answer };
      answers.add(record);
      queue.add(record);
      return "released";
    });
  }

  /** Return the oldest answers that wait to be sent. */
  waiting(limit) {
    return this.#within(["queue"], "readonly", ({ queue }) => done(queue.getAll(null, limit)));
  }

  /** Take answers off the queue that the server has stored or refused, and only those. */
  settle(stored, refused) {
    const settled = new Set([...stored, ...refused.map(({ id }) => id)]);
    return this.#within(["queue", "refused"], "readwrite", async ({ queue, refused: list }) => {
      const keys = await done(queue.getAllKeys());
      const records = await done(queue.getAll());
      records.forEach((record, place) => {
        if (settled.has(record.id)) queue.delete(keys[place]);
        const told = refused.find(({ id }) => id === record.id);
        if (told) list.put({ id: record.id, question: record.question, revision: record.revision, code: told.code });
      });
    });
  }
}
