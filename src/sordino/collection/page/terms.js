/** The promise that the server states, checked before the first answer is taken. */

/** What must never change after the first opening. A title or a later end may. */
const FIXED = ["id", "epsilon", "threshold", "cap", "ties", "skips", "changes", "tick_seconds"];

/** Return the chance that an answer is turned around. */
export function flipProbability(terms) {
  return Number(BigInt(terms.threshold)) / 2 ** 64;
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
  const whole = (value) => Number.isInteger(value) && value >= 1;
  if (typeof terms.threshold !== "string" || !/^[0-9]{1,20}$/.test(terms.threshold)) return "terms-wrong";
  if (!(terms.epsilon > 0) || !Number.isFinite(terms.epsilon)) return "terms-wrong";
  if (!whole(terms.cap) || !whole(terms.tick_seconds)) return "terms-wrong";
  // The coin must be as unfair as was promised, and no more.
  const promised = 1 / (Math.exp(terms.epsilon) + 1);
  const gap = Math.abs(flipProbability(terms) - promised);
  return gap <= 1e-9 && BigInt(terms.threshold) > 0n ? null : "terms-wrong";
}

/** Tell whether two sets of terms promise the same. */
export function sameTerms(one, other) {
  return FIXED.every((key) => one[key] === other[key]);
}
