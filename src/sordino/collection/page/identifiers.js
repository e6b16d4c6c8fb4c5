/** Random names. They come from the same source as the coins and say nothing about an answer. */

/** Return a random UUID (version 4). `crypto.randomUUID` would ask for https on every host. */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [[0, 8], [8, 12], [12, 16], [16, 20], [20, 32]].map(([a, b]) => hex.slice(a, b)).join("-");
}

/** Return 32 random bytes as base64url: what this device is known by. */
export function randomSecret() {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Return the numbers below a count in a random order: that of the answers on this screen. */
export function randomOrder(count) {
  const words = crypto.getRandomValues(new Uint32Array(count));
  return Array.from(words.keys()).sort((one, other) => words[one] - words[other]);
}
