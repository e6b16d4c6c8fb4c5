/** The promise that the server states, checked before the first answer is taken. */

/** What must never change after the first opening. A title or a later end may. */
const FIXED = ["id", "epsilon", "threshold", "cap", "ties", "skips", "changes", "tick_seconds"];

const MOST_LABELS = 100_000; // as in the study file
const LONGEST_TICK = 3600; // seconds, likewise

/** Return the chance that an answer is turned around. */
export function flipProbability(terms) {
  return Number(BigInt(terms.threshold)) / 2 ** 64;
}

/**
 * Return what a coin really loses: log of how often an answer is kept over how often it is turned.
 *
 * @param {bigint} threshold - How many of the 2^64 words flip a label.
 */
export function realizedEpsilon(threshold) {
  return Math.log1p(Number(2n ** 64n - 2n * threshold) / Number(threshold)); // exact also near 0
}

/** Return how sure somebody can be, at most, who sees one answer and thought 50:50 before. */
export function greatestBelief(terms) {
  return 1 / (1 + Math.exp(-terms.epsilon));
}

/** Return how many answers can still be given, changed ones included. */
export function answersLeft(terms, used) {
  return Math.max(0, terms.cap - used);
}

/** Return the code of what is wrong with the terms, or null. */
export function wrongTerms(terms) {
  const whole = (value, most) => Number.isInteger(value) && value >= 1 && value <= most;
  if (typeof terms.threshold !== "string" || !/^[0-9]{1,20}$/.test(terms.threshold)) return "terms-wrong";
  if (!(terms.epsilon > 0) || !Number.isFinite(terms.epsilon)) return "terms-wrong";
  // A timer that is longer than a month does not wait at all, and then clicks would show.
  if (!whole(terms.cap, MOST_LABELS) || !whole(terms.tick_seconds, LONGEST_TICK)) return "terms-wrong";
  return keeps(BigInt(terms.threshold), terms) ? null : "terms-wrong";
}

/** Tell whether the coin turns answers around as often as was promised, and never less. */
function keeps(threshold, terms) {
  if (threshold < 1n || threshold > 1n << 63n) return false;
  const gap = Math.abs(flipProbability(terms) - 1 / (Math.exp(terms.epsilon) + 1));
  return gap <= 1e-9 && realizedEpsilon(threshold) <= terms.epsilon * (1 + 1e-9);
}

/** Tell whether two sets of terms promise the same. */
export function sameTerms(one, other) {
  return FIXED.every((key) => one[key] === other[key]);
}
