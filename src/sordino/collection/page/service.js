/** Every request that the page makes. There are seven, and nothing else is ever sent. */

/** Where the service is: at the root of a host, or mounted somewhere below. */
export const HOME = new URL("..", import.meta.url);

/** The server, or the way to it, said no. */
export class Refusal extends Error {
  /**
   * @param {string} code - What is wrong, as the service names it; "offline" if it was not reached.
   * @param {number} status - The HTTP status, 0 if there was no answer.
   * @param {number} retryAfter - How many seconds the server asks to wait.
   */
  constructor(code, status = 0, retryAfter = 0) {
    super(code);
    this.code = code;
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Return the languages with all their texts. */
export function readTexts() {
  return ask("api/texts", { signal: AbortSignal.timeout(6000) });
}

/** Return the name of the study that is asked here, or null if the service does not say. */
export function readStudy() {
  const told = ask("api/health", { signal: AbortSignal.timeout(6000) });
  return told.then(({ study }) => String(study), () => null);
}

/** Open an invitation for this device and return the terms and the questions. */
export function openInvitation(token, device) {
  return post("api/open", token, { device });
}

/** Return terms and questions as they might be; nothing is kept there. Some services ask for a token. */
export function readPreview(token) {
  return post("api/preview", token, {});
}

/** Take over from the device that shows a code; return terms, questions and what is stored. */
export function claimStudy(code, device, study) {
  return post("api/claim", device, { study, code });
}

/**
 * Ask for a code by which another device takes over, take it back, or look whether it was used.
 *
 * @param {"code"|"stay"|"look"} step - Which of the three.
 */
export function askMove(step, device, study) {
  return post("api/move", device, { study, step });
}

/**
 * Send randomized answers.
 *
 * The body is written from four public fields in a fixed order; an answer is one digit, so that
 * not even the length depends on it.
 *
 * @param {object[]} [questions] - The questions themselves, where the service does not have them.
 */
export function sendAnswers(secret, study, answers, questions) {
  const plain = answers.map(({ id, question, revision, answer }) => ({ id, question, revision, answer }));
  return post("api/answers", secret, { study, answers: plain, questions });
}

function post(path, bearer, body) {
  return ask(path, {
    method: "POST",
    headers: { "Authorization": `Bearer ${bearer}`, "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(30000),
  });
}

/** Return the JSON of a response, or throw a Refusal. */
export async function ask(path, options = {}) {
  const response = await reach(path, options);
  return response.json().catch(() => {
    throw new Refusal("offline"); // a gate of some network answered in the server's place
  });
}

/** Return a response that is no error, or throw a Refusal. */
export async function reach(path, options = {}) {
  let response;
  try {
    response = await fetch(new URL(path, HOME), { credentials: "omit", cache: "no-store", redirect: "error", ...options });
  } catch {
    throw new Refusal("offline");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  const wait = Number(response.headers.get("Retry-After"));
  throw new Refusal(told?.error?.code ?? "other", response.status, Number.isFinite(wait) ? wait : 0);
}
