/** The words of the page, in the language of the person. */

import { readTexts } from "./service.js";

// Where the words themselves do not arrive, and none are kept here, this much can be said.
const BARE = {
  "page.name": "Which answer is better?",
  "error.title": "This does not work right now",
  "error.again": "Try again",
  "error.other": "The study cannot be reached. Please check your connection and try again.",
  "move.ask": "Do you come from another device? Type the code that it shows.",
  "move.enter": "Go on here",
};

let languages = [];
let current = { code: "en", texts: BARE };

/**
 * Fetch the texts, or take the ones kept on this device when there is no connection.
 *
 * @param {import("./memory.js").Memory|null} memory - Where texts are kept between visits.
 */
export async function loadTexts(memory) {
  try {
    languages = (await readTexts()).languages;
    await memory?.keep("texts", languages);
  } catch {
    languages = (await memory?.setting("texts")) ?? [];
  }
  speak((await memory?.setting("language")) ?? preferred());
}

/** Return the best language for this browser. */
function preferred() {
  const wanted = navigator.languages.map((code) => code.toLowerCase().split("-")[0]);
  return wanted.find((code) => languages.some((language) => language.code === code)) ?? "en";
}

/** Switch to a language. */
export function speak(code) {
  current = languages.find((language) => language.code === code) ?? languages[0] ?? current;
  document.documentElement.lang = current.code;
}

/** Return the languages, each with its code and its own name. */
export function known() {
  return languages;
}

/** Return the code of the language that is on. */
export function language() {
  return current.code;
}

/**
 * Return a text with its {places} filled in.
 *
 * @param {string} key - Which text.
 * @param {object} values - What goes into the places; numbers are written as the language does.
 */
export function say(key, values = {}) {
  const text = current.texts[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (place, name) =>
    name in values ? written(values[name]) : place);
}

/** Tell whether there is a text of this name. */
export function has(key) {
  return key in current.texts;
}

/** Return a number as the language writes it: a whole one whole, another rounded up, never down. */
function written(value) {
  if (typeof value !== "number") return String(value);
  const digits = Number.isInteger(value) ? 0 : Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value))));
  const up = Math.ceil(Number((value * 10 ** digits).toPrecision(12))) / 10 ** digits;
  return new Intl.NumberFormat(current.code, { maximumFractionDigits: digits }).format(up);
}

/** Return a share as a percentage, rounded so that it never looks safer than it is. */
export function percent(share, round = Math.ceil) {
  const tenths = round(share * 1000) / 1000;
  const style = { style: "percent", maximumFractionDigits: 1 };
  return new Intl.NumberFormat(current.code, style).format(tenths);
}

/** Return what went wrong, in words. */
export function trouble(code) {
  return has(`error.${code}`) ? say(`error.${code}`) : say("error.other", { code });
}

/** Return the name of who speaks in a conversation. */
export function speaker(role) {
  return has(`role.${role}`) ? say(`role.${role}`) : role;
}
