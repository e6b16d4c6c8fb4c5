/**
 * The coins that protect answers. They are tossed here, on the person's own device.
 *
 * Same rules as RandomizedResponse and KaryRandomizedResponse in Python, word for word: as many
 * 64-bit words for each answer, whatever it is. Whoever sees how many words were drawn, or how long
 * it took, learns nothing about the answer.
 */

/**
 * How much of a judgment is for the first answer, as a share [j, P]: all, nothing, or half where
 * nobody decided. A rating is the share of the way from the lowest level to the highest.
 */
export const FIRST = [1, 1];
export const SECOND = [0, 1];
export const UNDECIDED = [1, 2];

/** The place of somebody who chose none of a few: answered by a fair die. */
export const NO_CHOICE = -1;

const WORDS = 1n << 64n;

/**
 * Return eight bytes as one whole number, the first byte being the smallest.
 *
 * @param {Uint8Array} bytes - Eight bytes.
 * @returns {bigint} From 0 to 2^64 - 1.
 */
export function wordFrom(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true);
}

/** Return a fresh 64-bit word of the system's own coins. */
export function drawWord() {
  return wordFrom(crypto.getRandomValues(new Uint8Array(8)));
}

/**
 * Return the randomized bit of a share.
 *
 * A share of 1 is turned to 0 on so many words as a share of 0 is turned to 1; one between is 1 on
 * words below a number between, so that no ratio of chances is larger than theirs.
 *
 * @param {[number, number]} share - [j, P], from 0 (the second, or the lowest) to 1.
 * @param {bigint} word - The 64-bit word of this judgment, used for nothing else.
 * @param {bigint} threshold - How many of the 2^64 words flip a whole share.
 */
export function randomize(share, word, threshold) {
  const [part, whole] = checkedShare(share);
  const first = Number(part === whole);
  const kept = BigInt(first ^ 1);
  const count = threshold + kept * (((WORDS - 2n * threshold) * BigInt(part)) / BigInt(whole));
  return Number(word < count) ^ first;
}

/** Draw one word and return the randomized bit of a share. */
export function release(share, threshold) {
  return randomize(share, drawWord(), threshold);
}

/**
 * Return the randomized place of a choice among a few: kept, or any other one, each as likely.
 *
 * @param {number} choice - From 0 to K - 1, or NO_CHOICE.
 * @param {number} categories - K.
 * @param {bigint} threshold - How many of the 2^64 words replace a choice.
 */
export function releaseChoice(choice, categories, threshold) {
  if (!Number.isInteger(choice) || choice < NO_CHOICE || choice >= categories) {
    throw new RangeError("A choice is the place of an answer, or none.");
  }
  const replaced = Number(drawWord() < threshold);
  const ahead = 1 + uniform(categories - 1);
  const fair = uniform(categories);
  const none = Number(choice === NO_CHOICE);
  const moved = (choice + none + ahead * replaced) % categories;
  return fair * none + moved * (1 - none);
}

/** Return a number from 0 to count - 1, each exactly as likely: a word of the last round is drawn anew. */
function uniform(count) {
  const last = WORDS - 1n - (WORDS % BigInt(count));
  let word = drawWord();
  while (word > last) word = drawWord();
  return Number(word % BigInt(count));
}

/** Refuse what is no share. All shares pass in the same way. */
function checkedShare(share) {
  const [part, whole] = Array.isArray(share) ? share : [NaN, NaN];
  const integers = Number.isInteger(part) && Number.isInteger(whole);
  if (!integers || part < 0 || whole < 1 || part > whole) throw new RangeError("A label is a share from 0 to 1.");
  return share;
}
