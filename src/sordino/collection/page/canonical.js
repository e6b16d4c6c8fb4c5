/**
 * The name of a question, made from its texts, as Python makes it.
 *
 * The page names questions itself. A service that calls one question by two names would get two
 * coins for one label, and one that turns a question around would get the wrong bit.
 */

/**
 * Return 32 hexadecimal digits of a question, and whether its answers stand in order.
 *
 * @param {{ask: string, prompt: *, answers: *[]}} question - As the service sent it.
 * @param {number[]|null} levels - Of ratings: a rating is another judgment than a thumb.
 */
export async function canonical({ ask, prompt, answers }, levels = null) {
  const start = framed(encoded(prompt));
  const digests = await Promise.all(answers.map((answer) => digest(joined(start, framed(encoded(answer))))));
  const names = digests.map(hexadecimal);
  const sorted = digests.toSorted((one, other) => (hexadecimal(one) < hexadecimal(other) ? -1 : 1));
  let key = await digest(sorted.reduce(joined));
  if (ask === "rating") key = await digest(joined(key, new TextEncoder().encode(levels.join(".."))));
  const ordered = names.every((name, place) => place === 0 || names[place - 1] < name);
  return { id: hexadecimal(key).slice(0, 32), ordered };
}

/** How many answers a question has, by what it asks for; Infinity for as many as the die has. */
const SIDES = { pair: 2, thumb: 1, rating: 1, choice: Infinity, ranking: Infinity };

/**
 * Tell whether questions are called by their own names, in canonical order, and differ, and whether
 * the study has a coin or a die for what they ask.
 *
 * @param {{id: string, ask: string, prompt: *, answers: *[]}[]} questions - As the service sent them.
 * @param {object} terms - Of the study.
 */
export async function wellNamed(questions, terms) {
  if (new Set(questions.map(({ id }) => id)).size < questions.length) return false;
  for (const question of questions) {
    const sides = Object.hasOwn(SIDES, question.ask) ? SIDES[question.ask] : NaN;
    const wanted = sides === Infinity ? terms.die?.categories : sides;
    if (question.answers.length !== wanted || (question.ask === "rating" && !terms.levels)) return false;
    const { id, ordered } = await canonical(question, terms.levels);
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
