/**
 * The page of a person who answers: opens the invitation, shows one view at a time, and follows
 * keys. It hands a choice on to `release` and keeps none.
 */

import { answeredList, lastPage, restate } from "./answered.js";
import { wellNamed } from "./canonical.js";
import { announce, button, element, heading, readAsMarkdown, show } from "./elements.js";
import { explanation } from "./explanation.js";
import { openMemory, whichStudy } from "./memory.js";
import { QuestionView } from "./question.js";
import { CLOSED, Sender } from "./sending.js";
import { openInvitation, readStudy } from "./service.js";
import { budget, languages, topBar } from "./status.js";
import { answersLeft, sameTerms, wrongTerms } from "./terms.js";
import { loadTexts, say, speak, trouble } from "./texts.js";

const at = (id) => document.getElementById(id);

let memory = null;
let sender = null;
let state = null; // { terms, questions, progress }
let view = "explanation";
let asked = null; // the QuestionView on the page
let begun = false;
let shortcuts = true;
let resumable = false; // whether a study is stored here that a wrong link must not end
let shown = ""; // what the last tick found
let failed = null; // the code of what keeps the page from working at all

/** Start the page. */
async function start() {
  const token = location.hash.slice(1);
  const here = token === "" ? null : await readStudy();
  const study = await whichStudy(here).catch(() => undefined);
  if (study) memory = await openMemory(study).catch(() => null);
  await loadTexts(memory);
  if (!isSecureContext) return refuse("not-secure"); // on the way somebody could change this page
  if (study === null) return refuse(token === "" ? "no-invitation" : "offline");
  if (memory === null) return refuse("no-storage");
  try {
    const kept = await memory.recall();
    resumable = token !== "" && kept !== null;
    if (token === "" && kept === null) return refuse("no-invitation");
    const asked = token === "" ? kept : await opened(token, kept, study);
    if (asked !== null) await enter(asked);
  } catch (error) {
    refuse(error.code ?? "storage");
  }
}

/** Open the invitation and return the study, or null when it was refused. */
async function opened(token, kept, name) {
  const secret = await memory.secret();
  let answer;
  try {
    answer = await openInvitation(token, secret);
  } catch (error) {
    if (error.code === "offline" && kept !== null) return kept;
    throw error;
  }
  const wrong = answer.study.id === name ? wrongTerms(answer.study) : "terms-changed";
  if (wrong) return refuse(wrong);
  if (!(await wellNamed(answer.questions, answer.study))) return refuse("terms-wrong");
  const study = await memory.remember(answer.study, answer.questions);
  await memory.learn(answer.questions);
  const told = new Set(answer.questions.map(({ id }) => id));
  const same = study.questions.every(({ id }) => told.has(id));
  if (!same || !sameTerms(study.terms, answer.study)) return refuse("terms-changed");
  history.replaceState(null, "", location.pathname); // the invitation has done its work
  return study;
}

/** Show a study that was opened. */
async function enter(study) {
  const wrong = wrongTerms(study.terms);
  if (wrong) return refuse(wrong);
  state = { ...study, progress: await memory.progress() };
  begun = (await memory.setting("begun")) === true;
  shortcuts = (await memory.setting("shortcuts")) !== false;
  document.title = state.terms.title;
  readAsMarkdown(state.terms.markdown !== false);
  sender = new Sender(memory, state.terms, await memory.secret(), refresh);
  sender.start();
  addEventListener("online", status);
  addEventListener("offline", status);
  go(begun ? "question" : "explanation");
}

/** Say why the page takes no answers. */
function refuse(code) {
  failed = code;
  at("bar").replaceChildren(element("p", { class: "name", text: say("page.name") }), languages(chooseLanguage));
  document.title = say("error.title");
  const ways = [button(say("error.again"), () => location.reload(), { class: "quiet" })];
  if (resumable && !code.startsWith("terms-")) ways.push(button(say("error.resume"), resume, { class: "quiet" }));
  show(at("main"), heading(say("error.title")), element("p", { class: "lead", text: trouble(code) }),
    element("div", { class: "actions" }, ...ways));
  return null;
}

/** Go on with the study that is stored here, after a link that did not open. */
function resume() {
  history.replaceState(null, "", location.pathname);
  location.reload();
}

/** Go to a view. A choice that was not sent is forgotten on the way. */
function go(to) {
  asked?.forget();
  asked = null;
  view = to;
  frame();
  if (to === "explanation") show(at("main"), ...explanation(state, begun, begin));
  else if (to === "list") show(at("main"), ...answeredList(state, change, () => go("question"), closed()));
  else ask();
}

function begin() {
  begun = true;
  memory.keep("begun", true);
  navigator.storage?.persist?.().catch(() => {}); // asks that what this device keeps is not cleared away
  go("question");
}

/** Ask the next question in this person's order, or show the last page. */
function ask() {
  const given = new Set(state.progress.given.map(({ question }) => question));
  const next = state.questions.find(({ id }) => !given.has(id));
  const full = answersLeft(state.terms, state.progress.given.length) === 0;
  const more = given.size < state.terms.asks; // chosen when answers have arrived
  if (next === undefined && more && !full && !closed()) show(at("main"), heading(say("next.title")), element("p", { class: "lead", text: say("next.wait", { seconds: state.terms.tick_seconds }) }));
  else if (next === undefined || full || closed()) show(at("main"), ...lastPage(state, closed()));
  else pose(next, 1);
}

/** Return the code of why the server takes nothing more, or null. */
function closed() {
  return CLOSED.includes(sender.problem) ? sender.problem : null;
}

/** Answer a question once more: a new coin, paid from the person's own budget. */
function change(question, revision) {
  view = "question";
  frame();
  pose(question, revision);
}

function pose(question, revision) {
  const about = { number: question.place + 1, total: state.terms.asks, again: revision > 1 };
  asked = new QuestionView(question, state.terms, about, {
    send: (judgment) => commit(question, revision, judgment),
    leave: () => go("list"),
    shortcuts: () => shortcuts,
    toggle: toggleShortcuts,
  });
  show(at("main"), asked.node);
}

/** Randomize, keep and queue, then ask the next question. */
async function commit({ id, ask }, revision, judgment) {
  if (closed()) return go("question"); // nobody takes it: no coin is tossed
  let outcome;
  try {
    outcome = await memory.release({ question: id, ask, revision, judgment }, state.terms);
  } catch {
    return refuse("storage"); // nothing was kept, so nothing will be sent
  }
  try {
    state.progress = await memory.progress();
  } catch {
    return refuse("storage-later");
  }
  go("question");
  if (outcome !== "released") announce(trouble(outcome));
}

/** Read again how far this device is; other tabs may have answered, the server stored. */
async function refresh() {
  const before = shown;
  state.progress = await memory.progress();
  if (state.terms.choose !== "fewest") state.questions = (await memory.recall()).questions;
  shown = JSON.stringify([state.progress, state.questions.length, sender.problem]);
  if (shown === before) return; // whoever reads the page is left in peace
  status();
  if (view === "list") restate(at("main"), state);
  const moved = view === "question" && asked === null;
  if (failed === null && (moved || (closed() && asked !== null))) go("question");
}

/** Draw what stands around a view. */
function frame() {
  at("bar").replaceChildren(...topBar(state.terms.title, { view, go, open: begun }, chooseLanguage));
  status();
}

/** Draw the numbers below. Nothing there can hold the focus, so a tick takes it from nobody. */
function status() {
  if (failed !== null) return;
  at("foot").replaceChildren(...(begun ? budget(state, sender.problem) : []));
}

async function chooseLanguage(code) {
  speak(code);
  memory?.keep("language", code);
  if (failed !== null) refuse(failed);
  else if (asked !== null) {
    asked.draw();
    frame();
  } else go(view);
  document.querySelector("select")?.focus();
}

function toggleShortcuts() {
  shortcuts = !shortcuts;
  memory.keep("shortcuts", shortcuts);
  asked.draw();
  asked.node.querySelector(".shortcuts").focus();
}

document.addEventListener("keydown", (event) => {
  // A key that is held down must not choose and send in one go.
  if (event.repeat && event.key === "Enter") event.preventDefault();
  const plain = !(event.repeat || event.ctrlKey || event.altKey || event.metaKey || event.isComposing);
  if (!plain || !shortcuts || asked === null || event.target.closest("select")) return;
  if (event.key === "Enter" && event.target.closest("button")) return; // the button does it
  if (asked.key(event.key)) event.preventDefault();
});

addEventListener("pagehide", () => asked?.forget()); // nothing is left in a page put aside
addEventListener("hashchange", () => location.reload()); // another invitation was opened here

/** Keep the page on this device. It works without; only a reload then needs a connection. */
function keepPage() {
  if (!navigator.serviceWorker) return;
  const only = (path) => {
    if (path !== "worker.js") throw new TypeError("No other script.");
    return path;
  };
  const policy = globalThis.trustedTypes?.createPolicy("worker", { createScriptURL: only });
  const path = policy ? policy.createScriptURL("worker.js") : "worker.js";
  navigator.serviceWorker.register(path, { scope: "./", updateViaCache: "none" }).catch(() => {});
}

keepPage();
start();
