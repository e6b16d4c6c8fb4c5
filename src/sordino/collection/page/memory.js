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
  const base = await openIndex();
  const index = new Memory(base);
  if (here !== null) await index.keep(HOME.pathname, here);
  const last = await index.setting(HOME.pathname);
  base.close();
  return last ?? null;
}

/** Return the base that all studies at this address share. */
export function openIndex() {
  return openBase(NAME, (fresh) => fresh.createObjectStore("settings"));
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
export function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("blocked"));
  });
}

/** Run one transaction on a base; what it returns counts only once everything is safely written. */
export async function within(base, names, mode, work) {
  // "strict" asks for the disk before anything is sent: a crash then tosses no coin twice.
  const transaction = base.transaction(names, mode, { durability: "strict" });
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

/** The stored state of one device in one study. */
export class Memory {
  #base;

  constructor(base) {
    this.#base = base;
    base.onversionchange = () => base.close();
  }

  #within(names, mode, work) {
    return within(this.#base, names, mode, work);
  }

  /** Return a setting, or undefined. */
  setting(name) {
    return this.#within(["settings"], "readonly", ({ settings }) => done(settings.get(name)));
  }

  /** Keep a setting. */
  keep(name, value) {
    return this.#within(["settings"], "readwrite", ({ settings }) => done(settings.put(value, name)));
  }

  /** Return the secret by which the server knows this device. */
  secret() {
    return this.#once("secret", randomSecret());
  }

  /** Return where in a tick this device sends, from 0 to 1; frames of one page then send as one. */
  phase() {
    return this.#once("phase", crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32);
  }

  /** Return a setting that is made once, whichever tab comes first. */
  #once(name, fresh) {
    return this.#within(["settings"], "readwrite", async ({ settings }) => {
      const kept = await done(settings.get(name));
      if (kept === undefined) await done(settings.add(fresh, name));
      return kept ?? fresh;
    });
  }

  /**
   * Keep terms and questions if there are none yet, and return the ones that are kept.
   *
   * In which order answers are shown is drawn here, before anybody has chosen anything.
   *
   * @param {{question: string, revision: number}[]} stored - What another device of this person has
   *     answered: it counts here as answered, in the same transaction.
   * @param {boolean} claimed - Whether the study comes back from another device: the lock that this
   *     one was left with when it went there is gone.
   */
  remember(terms, questions, stored = [], claimed = false) {
    const placed = questions.map((question, place) => ({ ...question, place, order: randomOrder(question.answers.length) }));
    return this.#within(["settings", "questions", "answers"], "readwrite", async ({ settings, questions: all, answers }) => {
      for (const { question, revision } of stored) {
        for (let each = 1; each <= revision; each += 1) {
          if ((await done(answers.getKey([question, each]))) === undefined) answers.add({ question, revision: each });
        }
      }
      if (claimed) settings.delete("moving");
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

  /**
   * Return how far this device is: keys of answers given, how many wait, what was refused, whether
   * the study goes to another device, and what a panel is shown.
   */
  progress() {
    const names = ["settings", "answers", "queue", "refused"];
    return this.#within(names, "readonly", async ({ settings, answers, queue, refused }) => {
      const moving = done(settings.get("moving"));
      const completion = done(settings.get("completion"));
      const keys = done(answers.getAllKeys());
      const waiting = done(queue.getAll());
      const list = done(refused.getAll());
      return {
        given: (await keys).map(([question, revision]) => ({ question, revision })),
        waiting: (await waiting).map(({ question, revision }) => ({ question, revision })),
        refused: await list,
        moving: (await moving) ?? null,
        completion: (await completion) ?? null,
      };
    });
  }

  /**
   * Randomize a judgment, keep the randomized answer and queue it: one transaction, so that two tabs
   * cannot both toss a coin for one question.
   *
   * @param {object} asked - `question` (its id), `ask`, `revision`, and the judgment: a share, or
   *     where the best of a few is asked for its place. Where the service does not have the question
   *     yet, `texts` are kept until the answer is settled: only with a coin, or they would stay.
   * @param {object} terms - Of the study: its coin, its die and its cap.
   * @returns {Promise<string>} "released", or why nothing was drawn: "already", "cap-reached",
   *     "moving" or "moved".
   */
  release({ question, ask, revision, judgment, texts }, { threshold, die, cap }) {
    const names = ["settings", "answers", "queue", "questions"];
    return this.#within(names, "readwrite", async ({ settings, answers, queue, questions }) => {
      const against = await hindrance(settings, answers, [question, revision], cap);
      if (against !== null) return against;
      const answer = ["choice", "ranking"].includes(ask)
        ? releaseChoice(judgment, die.categories, BigInt(die.threshold))
        : release(judgment, BigInt(threshold));
      const record = { id: randomId(), question, revision, answer };
      answers.add(record);
      queue.add(record);
      if (texts) questions.put({ id: question, ask, ...texts, place: question });
      return "released";
    });
  }

  /** Return why no coin would be tossed for a question, or null. */
  against({ question, revision }, { cap }) {
    return this.#within(["settings", "answers"], "readonly", ({ settings, answers }) =>
      hindrance(settings, answers, [question, revision], cap));
  }

  /**
   * Toss no coin from now on, since another device is to go on, if nothing waits and nothing was
   * refused: all or nothing, so that no coin of another tab comes in between.
   *
   * @returns {Promise<string>} "locked", "waiting", "refused" or "moved".
   */
  lock() {
    return this.#within(["settings", "queue", "refused"], "readwrite", async ({ settings, queue, refused }) => {
      if ((await done(settings.get("moving"))) === "moved") return "moved";
      if (await done(queue.count())) return "waiting";
      if (await done(refused.count())) return "refused";
      settings.put("moving", "moving");
      return "locked";
    });
  }

  /** Go on here, unless the study has moved. */
  unlock() {
    return this.#within(["settings"], "readwrite", async ({ settings }) => {
      if ((await done(settings.get("moving"))) === "moving") settings.delete("moving");
    });
  }

  /** Return the questions of answers, as they were kept. */
  noted(answers) {
    return this.#within(["questions"], "readonly", async ({ questions }) => {
      const kept = await Promise.all(answers.map(({ question }) => done(questions.get(question))));
      return kept.map(({ id, ask, prompt, answers: texts }) => ({ id, ask, prompt, answers: texts }));
    });
  }

  /** Drop the texts of questions that are settled. */
  drop(answers) {
    return this.#within(["questions"], "readwrite", ({ questions }) =>
      Promise.all(answers.map(({ question }) => done(questions.delete(question)))));
  }

  /** Return the oldest answers that wait to be sent. */
  waiting(limit) {
    return this.#within(["queue"], "readonly", ({ queue }) => done(queue.getAll(null, limit)));
  }

  /**
   * Take answers off the queue that the server has stored or refused, and only those; keep what it
   * tells whoever is done.
   */
  settle(stored, refused, completion) {
    const settled = new Set([...stored, ...refused.map(({ id }) => id)]);
    return this.#within(["settings", "queue", "refused"], "readwrite", async ({ settings, queue, refused: list }) => {
      if (completion) settings.put(completion, "completion");
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

async function hindrance(settings, answers, key, cap) {
  const moving = await done(settings.get("moving"));
  if (moving !== undefined) return moving;
  if ((await done(answers.getKey(key))) !== undefined) return "already";
  return (await done(answers.count())) >= cap ? "cap-reached" : null;
}
