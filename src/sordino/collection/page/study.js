/**
 * The page of a person who answers: opens the invitation, shows one view at a time, and follows
 * keys. It hands a choice on to `release` and keeps none.
 */

import { answeredList, lastPage, restate } from "./answered.js";
import { wellNamed } from "./canonical.js";
import { announce, button, element, heading } from "./elements.js";
import { explanation } from "./explanation.js";
import { openMemory, whichStudy } from "./memory.js";
import { keepPage } from "./offline.js";
import { codeForm, codeOf, Mover } from "./moving.js";
import { readAsMarkdown, show } from "./passage.js";
import { banner, isPreview, Preview } from "./preview.js";
import { QuestionView } from "./question.js";
import { CLOSED, Sender } from "./sending.js";
import { claimStudy, openInvitation, readPreview, readStudy } from "./service.js";
import { budget, languages, topBar } from "./status.js";
import { answersLeft, sameTerms, wellStored, wrongTerms } from "./terms.js";
import { loadTexts, say, speak, trouble } from "./texts.js";
import { openWallet, release, walletView } from "./wallet.js";

const at = (id) => document.getElementById(id);

let memory = null;
let sender = null;
let mover = null;
let wallet = null; // of this device, where the study belongs to a project
let state = null; // { terms, questions, progress, poor, projects }
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
  if (isPreview) return rehearse(token);
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
    const moved = (await memory.setting("moving")) === "moved"; // and may come back
    if (codeOf(token) && resumable && !moved) return refuse("device-in-use");
    if (token === "" && kept === null) return refuse("no-invitation");
    const joins = moved && !codeOf(token) && kept?.terms.open; // by a link for anybody, as one more person
    const asked = token === "" || joins ? kept : await opened(token, kept, study, moved);
    if (asked !== null) await enter(asked);
  } catch (error) {
    refuse(error.code ?? "storage");
  }
}

/** Show a study without keeping anything: whoever loads the page again begins anew. */
async function rehearse(token) {
  memory = new Preview();
  await loadTexts(memory);
  history.replaceState(null, "", location.pathname + location.search);
  try {
    const { study, questions } = await readPreview(token);
    await enter(await memory.remember(study, questions));
  } catch (error) {
    refuse(error.code ?? "other");
  }
}

/** Open the invitation, or take over by a code; return the study, or null when it was refused. */
async function opened(token, kept, name, moved) {
  const secret = await memory.secret();
  const code = codeOf(token);
  let answer;
  try {
    answer = await (code ? claimStudy(code, secret, name) : openInvitation(token, secret));
  } catch (error) {
    if (error.code === "offline" && kept !== null) return kept;
    throw error;
  }
  const wrong = answer.study.id === name ? wrongTerms(answer.study) : "terms-changed";
  if (wrong) return refuse(wrong);
  if (!(await wellNamed(answer.questions, answer.study))) return refuse("terms-wrong");
  const stored = answer.stored ?? [];
  if (!wellStored(stored, answer.questions, answer.study)) return refuse("terms-wrong");
  const given = stored.reduce((sum, { revision }) => sum + revision, 0);
  if (answer.study.project) await (await openWallet()).open(answer.study, given); // it counts here first
  const study = await memory.remember(answer.study, answer.questions, stored, code !== null || moved);
  const live = study.terms.choose !== "fewest"; // more questions may have come meanwhile, and only then
  const same = study.questions.every(({ id }, place) => id === answer.questions[place]?.id)
    && (live || study.questions.length === answer.questions.length);
  if (!same || !sameTerms(study.terms, answer.study)) return refuse("terms-changed");
  if (live) await memory.learn(answer.questions);
  history.replaceState(null, "", location.pathname); // the invitation has done its work
  return study;
}

/** Show a study that was opened. */
async function enter(study) {
  const wrong = study.terms.feedback && !isPreview ? "feedback" : wrongTerms(study.terms);
  if (wrong) return refuse(wrong);
  state = { ...study, progress: await memory.progress(), poor: false, projects: [] };
  if (study.terms.project) {
    wallet = await openWallet(isPreview);
    await wallet.open(study.terms, state.progress.given.length);
  }
  await count();
  begun = (await memory.setting("begun")) === true;
  shortcuts = (await memory.setting("shortcuts")) !== false;
  document.title = state.terms.title;
  readAsMarkdown(state.terms.markdown !== false);
  const secret = await memory.secret();
  mover = new Mover(memory, state.terms, secret, () => refresh(true));
  sender = new Sender(memory, state.terms, secret, refresh);
  sender.start();
  addEventListener("online", status);
  addEventListener("offline", status);
  go(begun ? "question" : "explanation");
}

/** Say why the page takes no answers. */
function refuse(code) {
  failed = code;
  at("bar").replaceChildren(...banner(), element("p", { class: "name", text: say("page.name") }), languages(chooseLanguage));
  document.title = say("error.title");
  const ways = [button(say("error.again"), () => location.reload(), { class: "quiet" })];
  if (resumable && !code.startsWith("terms-") && code !== "feedback") ways.push(button(say("error.resume"), resume, { class: "quiet" }));
  show(at("main"), heading(say("error.title")), element("p", { class: "lead", text: trouble(code) }),
    element("div", { class: "actions" }, ...ways),
    ...(["no-invitation", "unknown-code"].includes(code) && isSecureContext ? [codeForm()] : []));
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
  view = state.progress.moving !== null && to !== "explanation" ? "move" : to;
  frame();
  const back = () => go("question");
  const move = isPreview || !begun ? null : () => go("move");
  if (view === "explanation") show(at("main"), ...explanation(state, begun, begin, move));
  else if (view === "move") show(at("main"), ...mover.view(state, back));
  else if (view === "wallet") show(at("main"), ...walletView(state.projects, state.terms, back));
  else if (view === "list") show(at("main"), ...answeredList(state, change, back, closed()));
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

/** Return the code of why no more answers are taken, or null. */
function closed() {
  if (CLOSED.includes(sender.problem)) return sender.problem;
  return state.poor ? "wallet-empty" : null;
}

/** Look again what is in the wallet. */
async function count() {
  if (wallet === null) return;
  state.poor = !(await wallet.affords(state.terms));
  state.projects = await wallet.projects();
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
    outcome = await release(memory, wallet, { question: id, ask, revision, judgment }, state.terms);
  } catch {
    return refuse("storage"); // nothing was kept, so nothing will be sent
  }
  try {
    state.progress = await memory.progress();
    await count();
  } catch {
    return refuse("storage-later");
  }
  go("question");
  if (outcome !== "released") announce(trouble(outcome));
}

/** Read again how far this device is; other tabs may have answered, the server stored. */
async function refresh(anyway = false) {
  const before = shown;
  state.progress = await memory.progress();
  await count();
  if (state.progress.moving === "moving" && anyway !== true) mover.look();
  if (state.terms.choose !== "fewest") state.questions = (await memory.recall()).questions;
  shown = JSON.stringify([state.progress, state.questions.length, state.poor, sender.problem]);
  if (shown === before && anyway !== true) return; // whoever reads the page is left in peace
  status();
  const leaves = state.progress.moving !== null && view !== "explanation";
  if (failed === null && (view === "move" || leaves)) return go("move");
  if (view === "list") restate(at("main"), state);
  const moved = view === "question" && asked === null;
  if (failed === null && (moved || (closed() && asked !== null))) go("question");
}

/** Draw what stands around a view. */
function frame() {
  at("bar").replaceChildren(...banner(), ...topBar(state.terms.title, { view, go, views: views() }, chooseLanguage));
  status();
}

function views() {
  if (!begun) return [];
  return ["question", "explanation", "list", ...(wallet === null ? [] : ["wallet"])];
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

if (!isPreview) keepPage();
start();
