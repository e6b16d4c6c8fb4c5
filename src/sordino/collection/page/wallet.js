/**
 * One budget for all studies of a project at this address, which this device keeps and the service
 * cannot raise. It lies in another base than the studies: what a coin costs is written there before
 * the coin is tossed, so that a crash in between counts too much, never too little.
 */

import { bar, button, element, heading } from "./elements.js";
import { done, openIndex, within } from "./memory.js";
import { say } from "./texts.js";

const PREFIX = "wallet ";
const DECIMALS = 30; // of what is counted: decimal numbers as people write them, and no rounding

/** Return a number as a count of the smallest unit: what is spent rounded up, a budget down. */
function units(value, up = false) {
  const [digits, power = "0"] = String(value).split("e");
  const [whole, part = ""] = digits.split(".");
  const shift = DECIMALS - part.length + Number(power);
  const count = BigInt(whole + part);
  if (shift >= 0) return count * 10n ** BigInt(shift);
  const divisor = 10n ** BigInt(-shift);
  return count / divisor + (up && count % divisor > 0n ? 1n : 0n);
}

const number = (count) => Number((Number(count) / 10 ** DECIMALS).toPrecision(12));
const total = ({ studies }) => [...studies.values()].reduce((sum, { spent }) => sum + spent, 0n);

/** Return the wallet of this device; of a preview, one that is gone with the page. */
export async function openWallet(preview = false) {
  return new Wallet(preview ? null : await openIndex());
}

/** What this device may spend in each project, and has spent on what. */
class Wallet {
  #base;
  #shown = new Map();

  constructor(base) {
    this.#base = base;
    if (base) base.onversionchange = () => base.close();
  }

  async #change(project, work) {
    const name = PREFIX + project;
    if (this.#base === null) return void this.#shown.set(name, work(this.#shown.get(name)));
    return within(this.#base, ["settings"], "readwrite", async ({ settings }) => {
      settings.put(work(await done(settings.get(name))), name);
    });
  }

  /**
   * Note a study, and what it has cost already: never less than was noted before. A budget stays as
   * it was told first; a study may lower it.
   *
   * @param {object} terms - Of the study.
   * @param {number} given - How many answers were given to it, on whatever device.
   */
  open({ id, title, epsilon, project }, given) {
    const least = BigInt(given) * units(epsilon, true);
    const told = units(project.epsilon);
    return this.#change(project.name, (kept = { budget: told, studies: new Map() }) => {
      const noted = kept.studies.get(id)?.spent ?? 0n;
      const spent = noted > least ? noted : least;
      kept.studies.set(id, { title, spent });
      return { budget: kept.budget < told ? kept.budget : told, studies: kept.studies };
    });
  }

  /** Reserve what one answer costs; return whether there was enough. Nothing is given back. */
  async reserve({ id, epsilon, project }) {
    let enough = false;
    await this.#change(project.name, (kept) => {
      const one = units(epsilon, true);
      enough = total(kept) + one <= kept.budget;
      if (enough) kept.studies.get(id).spent += one;
      return kept;
    });
    return enough;
  }

  /** Return what is in all wallets at this address: `name`, `budget`, `spent` and `studies`. */
  async projects() {
    const kept = this.#base === null ? [...this.#shown] : await this.#kept();
    return kept.map(([name, { budget, studies }]) => ({
      name: name.slice(PREFIX.length),
      budget: number(budget),
      spent: number(total({ studies })),
      left: budget - total({ studies }),
      studies: [...studies].map(([id, { title, spent }]) => ({ id, title, spent: number(spent) })),
    }));
  }

  #kept() {
    return within(this.#base, ["settings"], "readonly", async ({ settings }) => {
      const range = IDBKeyRange.bound(PREFIX, `${PREFIX}\uffff`);
      const names = done(settings.getAllKeys(range));
      const values = await done(settings.getAll(range));
      return (await names).map((name, place) => [name, values[place]]);
    });
  }

  /** Tell whether one more answer to a study can be paid for. */
  async affords({ epsilon, project }) {
    const own = (await this.projects()).find(({ name }) => name === project.name);
    return own !== undefined && own.left >= units(epsilon, true);
  }
}

/**
 * Reserve what an answer costs, then toss its coin.
 *
 * @param {import("./memory.js").Memory} memory - Of the study.
 * @param {Wallet|null} wallet - Of this device; null where the study has no project.
 * @param {object} asked - As `release` of the memory takes it.
 * @param {object} terms - Of the study.
 */
export async function release(memory, wallet, asked, terms) {
  if (wallet !== null) {
    const against = await memory.against(asked, terms); // where no coin will be tossed nothing is paid
    if (against !== null) return against;
    if (!(await wallet.reserve(terms))) return "wallet-empty";
  }
  return memory.release(asked, terms);
}

/** Return the view "Your budget": what was spent on what, in this project and others here. */
export function walletView(projects, terms, back) {
  const own = ({ name }) => name === terms.project.name;
  const sorted = [...projects.filter(own), ...projects.filter((one) => !own(one))];
  return [
    heading(say("wallet.title")),
    element("p", { class: "lead", text: say("wallet.lead") }),
    ...sorted.map((project) => section(project, own(project))),
    element("p", { class: "muted", text: say("wallet.only") }),
    element("div", { class: "actions" }, button(say("nav.back"), back, { class: "primary" })),
  ];
}

function section({ name, budget, spent, left, studies }, own) {
  const rows = studies.map((study) => element("li", {},
    element("p", { class: "excerpt", dir: "auto", text: study.title }),
    element("p", { class: "amount", text: say("wallet.cost", study) })));
  return element("section", { class: "wallet" },
    element("h2", { dir: "auto", text: own ? say("wallet.project", { name }) : say("wallet.other", { name }) }),
    element("div", {},
      element("p", { class: "amount", text: say("wallet.used", { spent, budget }) }),
      bar(spent, budget),
      left <= 0n ? element("p", { class: "warning", text: say("wallet.empty") }) : null,
      element("ul", { class: "costs" }, ...rows)));
}
