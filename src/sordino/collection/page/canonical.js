/**
 * The name of a question, made from its texts, as Python makes it.
 *
 * The page names questions itself. A service that calls one question by two names would get two
 * coins for one label, and one that turns a question around would get the wrong bit.
 */

/** Return 32 hexadecimal digits of a question, and whether its two answers stand in order. */
export async function canonical({ prompt, first, second }) {
  const start = framed(encoded(prompt));
  const one = await digest(joined(start, framed(encoded(first))));
  const other = await digest(joined(start, framed(encoded(second))));
  const ordered = hexadecimal(one) <= hexadecimal(other);
  const key = await digest(ordered ? joined(one, other) : joined(other, one));
  return { id: hexadecimal(key).slice(0, 32), ordered };
}

/**
 * Tell whether questions are called by their own names, in canonical order, and differ.
 *
 * @param {{id: string, prompt: *, first: *, second: *}[]} questions - As the service sent them.
 */
export async function wellNamed(questions) {
  if (new Set(questions.map(({ id }) => id)).size < questions.length) return false;
  for (const question of questions) {
    const { id, ordered } = await canonical(question);
    if (id !== question.id || !ordered) return false;
  }
  return true;
}

/** Return a text, or a conversation as compact JSON with sorted names, as bytes. */
function encoded(text) {
  if (typeof text === "string") return new TextEncoder().encode(`s${text}`);
  const turns = text.map(({ content, role }) => ({ content, role }));
  return new TextEncoder().encode(`m${JSON.stringify(turns)}`);
}

/** Return bytes with their length in front, in eight bytes, so that no two lists look alike. */
function framed(bytes) {
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(bytes.length));
  return joined(length, bytes);
}

function joined(one, other) {
  const both = new Uint8Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both;
}

async function digest(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

function hexadecimal(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
