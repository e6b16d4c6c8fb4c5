/**
 * The coin that protects an answer. It is tossed here, on the person's own device.
 *
 * Same rule as RandomizedResponse in Python, word for word: one 64-bit word for each label,
 * whatever the label is. Whoever sees how many words were drawn, or how long it took, learns
 * nothing about the label.
 */

/** An undecided label is answered by 1 on the words below this one: half of all 2^64. */
const FAIR = 1n << 63n;

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
 * Return the randomized answer, 0 or 1.
 *
 * Both coins are computed for every label and masks pick one of them: no branch on the label.
 *
 * @param {number} label - 1 (first is better), 0 (second is better) or 2 (undecided).
 * @param {bigint} word - The 64-bit word of this label, used for nothing else.
 * @param {bigint} threshold - How many of the 2^64 words flip a label.
 */
export function randomize(label, word, threshold) {
  check(label);
  const undecided = label >> 1;
  const flipped = (label & 1) ^ Number(word < threshold);
  const fair = Number(word < FAIR);
  return (flipped & (1 - undecided)) | (fair & undecided);
}

/** Draw one word and return the randomized answer of a label. */
export function release(label, threshold) {
  return randomize(label, drawWord(), threshold);
}

/** Refuse what is no label. All three labels pass in the same way. */
function check(label) {
  if (!Number.isInteger(label) || label >>> 0 > 2) throw new RangeError("A label is 0, 1 or 2.");
}
