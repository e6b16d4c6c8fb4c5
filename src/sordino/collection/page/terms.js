/** The promise that the server states, checked before the first answer is taken. */

/** What must never change after the first opening. A title or a later end may. */
const FIXED = ["id", "epsilon", "threshold", "die", "levels", "cap", "asks", "choose", "ties", "skips", "changes", "tick_seconds", "project", "feedback"];

const MOST_LABELS = 100_000; // as in the study file
const LONGEST_TICK = 3600; // seconds, likewise
const MOST_CANDIDATES = 10; // so that an answer is one digit, whichever it is

const MOST_LEVELS = 20; // of ratings

/**
 * Return the chance that an answer is turned around, or a choice replaced.
 *
 * @param {{threshold: string}} coin - The terms, or their die.
 */
export function flipProbability(coin) {
  return Number(BigInt(coin.threshold)) / 2 ** 64;
}

/**
 * Return what a coin or a die really loses: log of how often an answer is kept over how often it
 * becomes just one other.
 *
 * @param {bigint} threshold - How many of the 2^64 words flip a label, or replace a choice.
 * @param {number} categories - How many answers there are to tell apart.
 */
export function realizedEpsilon(threshold, categories = 2) {
  const others = BigInt(categories) - 1n;
  const gap = (2n ** 64n - threshold) * others - threshold;
  return Math.log1p(Number(gap) / Number(threshold)); // exact also near 0
}

/** Return how sure somebody can be, at most, who sees one answer and thought all K equally likely. */
export function greatestBelief(terms, categories = 2) {
  return 1 / (1 + (categories - 1) * Math.exp(-terms.epsilon));
}

/** Return how many answers can still be given, changed ones included. */
export function answersLeft(terms, used) {
  return Math.max(0, terms.cap - used);
}

/** Return the code of what is wrong with the terms, or null. */
export function wrongTerms(terms) {
  const whole = (value, most) => Number.isInteger(value) && value >= 1 && value <= most;
  if (!(terms.epsilon > 0) || !Number.isFinite(terms.epsilon)) return "terms-wrong";
  // A timer that is longer than a month does not wait at all, and then clicks would show.
  if (!whole(terms.cap, MOST_LABELS) || !whole(terms.tick_seconds, LONGEST_TICK)) return "terms-wrong";
  if (!keeps(terms.threshold, 2, terms.epsilon)) return "terms-wrong";
  const { name, epsilon } = terms.project ?? { name: "none", epsilon: 1 };
  if (typeof name !== "string" || name === "" || !(epsilon > 0) || !Number.isFinite(epsilon)) return "terms-wrong";
  const [low, high] = terms.levels ?? [0, 1];
  if (!Number.isInteger(low) || !Number.isInteger(high) || low >= high || high - low >= MOST_LEVELS) return "terms-wrong";
  const { categories, threshold } = terms.die ?? { categories: 2, threshold: terms.threshold };
  return whole(categories, MOST_CANDIDATES) && keeps(threshold, categories, terms.epsilon) ? null : "terms-wrong";
}

/** Tell whether a coin or a die replaces answers as often as was promised, and never less. */
function keeps(count, categories, epsilon) {
  if (typeof count !== "string" || !/^[0-9]{1,20}$/.test(count) || categories < 2) return false;
  const threshold = BigInt(count);
  if (threshold < 1n || threshold * BigInt(categories) > (BigInt(categories) - 1n) << 64n) return false;
  const others = categories - 1;
  const gap = Math.abs(Number(threshold) / 2 ** 64 - others / (Math.exp(epsilon) + others));
  return gap <= 1e-9 && realizedEpsilon(threshold, categories) <= epsilon * (1 + 1e-9);
}

/** Tell whether what another device answered is a part of what is asked, within the cap. */
export function wellStored(stored, questions, terms) {
  const known = new Set(questions.map(({ id }) => id));
  const whole = stored.every(({ question, revision }) => known.delete(question) && Number.isInteger(revision) && revision >= 1);
  return whole && stored.reduce((sum, { revision }) => sum + revision, 0) <= terms.cap;
}

/** Tell whether two sets of terms promise the same. */
export function sameTerms(one, other) {
  return FIXED.every((key) => JSON.stringify(one[key] ?? null) === JSON.stringify(other[key] ?? null));
}
