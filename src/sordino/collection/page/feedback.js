/**
 * The page inside a frame of another site: one question about the answers that stand beside it.
 *
 * The page around sends texts. It is told that the frame is ready, how high it is, and that somebody
 * answered. What was pressed lives in one variable of this file until the coin is tossed, and moves
 * nothing that the page around could see: every state of the question is as high as every other, and
 * the buttons stand in a random order, because a page sees where the pointer enters a frame.
 */

import { canonical, wellNamed } from "./canonical.js";
import { announce, button, element } from "./elements.js";
import { explanation } from "./explanation.js";
import { randomOrder } from "./identifiers.js";
import { openMemory, whichStudy } from "./memory.js";
import { FIRST, SECOND, UNDECIDED } from "./randomize.js";
import { CLOSED, Sender } from "./sending.js";
import { openInvitation, readPreview } from "./service.js";
import { answersLeft, flipProbability, sameTerms, wrongTerms } from "./terms.js";
import { loadTexts, say, speak, trouble } from "./texts.js";
import { openWallet, release } from "./wallet.js";

const JUDGMENTS = { up: FIRST, down: SECOND, first: FIRST, second: SECOND, tie: UNDECIDED, skip: UNDECIDED };
const ASKED = { thumb: ["up", "down"], pair: ["first", "second"] };
const LONGEST = 48 * 1024; // bytes of a question, so that a request has room for it

const main = document.getElementById("main");
const about = new URLSearchParams(location.hash.slice(1));
const host = about.get("origin");
const token = about.get("invitation");

let memory = null;
let terms = null;
let sender = null;
let wallet = null; // of this device on this site, where the study belongs to a project
let heard = null; // what the page around sent last
let posed = null; // what is about to be asked
let asked = null; // { id, ask, prompt, answers, turned, order }
let choice = null;
let layers = null; // by name, one above the other
let failed = null;
let others = null; // frames of this study on this device

/** Tell the page around one of three things. */
function tell(what, more = {}) {
  parent.postMessage({ sordino: what, ...more }, host);
}

async function start() {
  if (parent === window || host === null) return;
  const height = () => ({ pixels: Math.ceil(main.getBoundingClientRect().height) });
  new ResizeObserver(() => main.hasChildNodes() && tell("height", height())).observe(main); // empty it says nothing
  try {
    const begun = await begin();
    if (!begun) return;
    sender = new Sender(memory, terms, await memory.secret(), look, join);
    sender.start(await memory.phase());
    others = new BroadcastChannel(`sordino-${terms.id}`);
    others.addEventListener("message", look);
  } catch (error) {
    return refuse(error.code ?? "storage");
  }
  addEventListener("message", hear);
  tell("ready");
}

/** Read the terms, which are kept after the first time; nobody is counted as a person yet. */
async function begin() {
  const last = isSecureContext ? await whichStudy(null).catch(() => undefined) : null;
  if (last) memory = await openMemory(last).catch(() => null);
  await loadTexts(memory);
  if (host === location.origin) return refuse("same-origin");
  if (!isSecureContext) return refuse("not-secure");
  if (last === undefined) return refuse("no-storage");
  const kept = memory && (await memory.setting("invitation")) === token ? await memory.recall() : null;
  terms = kept?.terms ?? (await first());
  if (terms === null) return null;
  const wrong = wrongTerms(terms);
  if (wrong) return refuse(wrong);
  if (terms.project) {
    wallet = await openWallet();
    await wallet.open(terms, (await memory.progress()).given.length);
  }
  return true;
}

/** Return the terms of a study that is new here, and keep them. */
async function first() {
  const { study } = await readPreview(token);
  const wrong = wrongTerms(study);
  if (wrong || !study.feedback) return refuse(wrong ?? "unknown-question");
  await whichStudy(study.id);
  memory = await openMemory(study.id).catch(() => null);
  if (memory === null) return refuse("no-storage");
  const kept = await memory.remember(study, []);
  if (!sameTerms(kept.terms, study)) return refuse("terms-changed");
  await memory.keep("invitation", token);
  return kept.terms;
}

/** Become a person of the study, at a tick: when somebody pressed shows nowhere. */
async function join() {
  if ((await memory.setting("joined")) === true) return;
  const { study } = await openInvitation(token, await memory.secret());
  if (!sameTerms(terms, study)) throw Object.assign(new Error(), { code: "terms-changed" });
  await memory.keep("joined", true);
}

/** Take the texts from the page around, and from nobody else. */
async function hear({ source, origin, data }) {
  if (source !== parent || origin !== host || data?.sordino !== "ask") return;
  heard = data;
  if (typeof data.lang === "string" && data.lang) speak(data.lang.toLowerCase().split("-")[0]);
  try {
    const question = await named(data);
    if (heard !== data) return; // another one came meanwhile
    if (question === null) return refuse("bad-question");
    failed = null;
    await pose(question);
  } catch {
    refuse("storage");
  }
}

/** Return a question under its own name, as the service makes it, or null if it is none. */
async function named({ ask, prompt, answers }) {
  const plain = (text) => (typeof text === "string" ? text : text.map(({ role, content }) => ({ role, content })));
  let question;
  try {
    question = { ask, prompt: plain(prompt), answers: answers.map(plain) };
  } catch {
    return null;
  }
  if (!Object.hasOwn(ASKED, ask) || !fits(question)) return null;
  const { id, ordered } = await canonical(question, terms.levels);
  const turned = ask === "pair" && !ordered;
  if (turned) question.answers.reverse();
  return (await wellNamed([{ id, ...question }], terms)) ? { id, ...question, turned } : null;
}

/** Tell whether texts are texts or messages, say something, and are not too long. */
function fits({ prompt, answers }) {
  const parts = (text) => (typeof text === "string" ? [text] : text.flatMap(({ role, content }) => [role, content]));
  const all = [prompt, ...answers].map(parts);
  const form = all.flat().every((part) => typeof part === "string" && part.isWellFormed());
  const kinds = new Set(answers.map((text) => typeof text));
  const bytes = new TextEncoder().encode(JSON.stringify({ prompt, answers })).length;
  return form && kinds.size === 1 && bytes <= LONGEST && all.slice(1).every((one) => one.join("").trim() !== "");
}

/** Show a question: the buttons, or that it was answered here, or why nothing more is taken. */
async function pose(question) {
  posed = question;
  const now = await standing(question);
  if (posed !== question) return; // another one came meanwhile
  const ways = [...ASKED[question.ask], ...(terms.ties && question.ask === "pair" ? ["tie"] : []), ...(terms.skips ? ["skip"] : [])];
  const again = asked?.id === question.id;
  asked = { ...question, ways: again ? asked.ways : randomOrder(ways.length).map((place) => ways[place]) };
  choice = null;
  draw();
  if (now === "ask" || now === "done") reveal(now);
  else refuse(now);
}

/** Return how a question stands on this device: "ask", "done", or the code of why it is not asked. */
async function standing({ id }) {
  const { given, moving } = await memory.progress();
  if (given.some(({ question }) => question === id)) return "done";
  const against = closed() ?? moving;
  if (against !== null) return against;
  if (answersLeft(terms, given.length) === 0) return "cap-reached";
  return wallet !== null && !(await wallet.affords(terms)) ? "wallet-empty" : "ask";
}

/** Look again: another frame may have answered, and the service may take nothing more. */
async function look() {
  const question = asked;
  const asking = () => failed === null && question !== null && asked === question && layers?.done.inert;
  const now = asking() ? await standing(question).catch(() => "ask") : "ask";
  if (now === "ask" || !asking()) return;
  if (now !== "done") return refuse(now);
  if (main.className === "explaining") return; // it is read in peace, and leads back to this
  if (choice !== null) announce(say("feedback.done")); // in place of what was chosen
  choice = null;
  reveal("done");
}

/** Return the code of why the service takes nothing more, or null. */
function closed() {
  return [...CLOSED, "study-full"].includes(sender.problem) ? sender.problem : null;
}

function draw() {
  main.className = "";
  main.lang = document.documentElement.lang;
  const odds = Math.ceil(1 / flipProbability(terms));
  const name = say(`feedback.${asked.ask}`);
  layers = {
    ask: element("div", { role: "group", "aria-label": name },
      element("p", { class: "question-asked", "aria-hidden": "true", text: name }),
      element("div", { class: "row choices" }, ...asked.ways.map((way) =>
        button(say(`feedback.${way}`), () => choose(way), { class: way })))),
    pending: element("div", { role: "group", "aria-label": say("pending.label") },
      element("div", { class: "layers said" }, ...asked.ways.map((way) =>
        element("p", { class: "question-asked off", "data-way": way, text: say("feedback.chose", { choice: say(`feedback.${way}`) }) }))),
      element("div", { class: "row" },
        button(say("feedback.send"), send, { class: "primary send" }),
        button(say("pending.undo"), undo, { class: "quiet" }))),
    done: element("p", { class: "question-asked", text: say("feedback.done") }),
  };
  main.replaceChildren(
    element("div", { class: "layers" }, ...Object.values(layers)),
    element("p", { class: "note" }, say("feedback.coin", { odds }), " ",
      button(say("feedback.how"), explain, { class: "how" })));
}

/** Show one of the states; the others keep their place and are hidden. */
function reveal(name) {
  for (const [key, node] of Object.entries(layers)) {
    node.classList.toggle("off", key !== name);
    node.inert = key !== name;
  }
  for (const line of layers.pending.querySelectorAll("[data-way]")) line.classList.toggle("off", line.dataset.way !== choice);
}

function choose(way) {
  choice = way;
  reveal("pending");
  announce(say("feedback.chose", { choice: say(`feedback.${way}`) }));
  layers.pending.querySelector(".send").focus();
}

/** Take the choice back. Nothing was drawn, kept or sent. */
function undo() {
  choice = null;
  reveal("ask");
  announce(say("pending.undone"));
  layers.ask.querySelector("button").focus();
}

/** Randomize, keep and queue: from here on not even this page knows the choice. */
async function send() {
  if (choice === null) return;
  const { id, ask, prompt, answers, turned } = asked;
  const [part, whole] = JUDGMENTS[choice];
  const judgment = turned ? [whole - part, whole] : [part, whole];
  choice = null;
  reveal("done"); // a second click must not answer twice
  announce(say("feedback.done"));
  try {
    const texts = { prompt, answers };
    const outcome = await release(memory, wallet, { question: id, ask, revision: 1, judgment, texts }, terms);
    if (!["released", "already"].includes(outcome)) return refuse(outcome);
  } catch {
    return refuse("storage"); // nothing was kept, so nothing will be sent
  }
  others.postMessage("answered"); // which one they see for themselves
  tell("answered");
}

/** Say what happens to an answer, in place of the question. */
function explain() {
  if (choice !== null) undo();
  main.className = "explaining";
  main.replaceChildren(...explanation({ terms, questions: [asked] }, true, back));
  main.querySelector("h1").focus();
}

async function back() {
  await pose(asked);
  if (failed !== null) return;
  main.querySelector(".how")?.focus();
}

/** Say why nothing is asked here. */
function refuse(code) {
  failed = code;
  choice = null;
  announce(document.hasFocus() ? trouble(code) : ""); // in place of what was chosen
  layers = null; // one of its lines says what was chosen
  main.className = "";
  main.replaceChildren(element("p", { class: "note", text: trouble(code) }));
  return null;
}

addEventListener("keydown", (event) => {
  // A key that is held down must not choose and send in one go.
  if (event.repeat && event.key === "Enter") event.preventDefault();
  if (event.key === "Escape" && choice !== null) undo();
});
addEventListener("pageshow", look); // of a page that was put aside
addEventListener("pagehide", () => choice !== null && undo()); // nothing is left in a page put aside

start();
