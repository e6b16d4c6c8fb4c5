/**
 * The page of whoever runs the study.
 *
 * The token is pasted, never part of the address: browsers write addresses to their history. It
 * stays in this file's memory and is gone when the page is loaded again.
 */

import { announce, bar, button, element, heading } from "./elements.js";
import { show } from "./passage.js";
import { ask, reach } from "./service.js";
import { languages } from "./status.js";
import { loadTexts, percent, say, speak, trouble } from "./texts.js";

const at = (id) => document.getElementById(id);

let token = "";
let told = null; // what the server said last
let problem = null;

const bearer = () => ({ headers: { Authorization: `Bearer ${token}` } });

async function load() {
  problem = null;
  try {
    told = await ask("api/admin/status", bearer());
  } catch (error) {
    problem = error.code ?? "other";
  }
  draw();
}

/** Fetch the answers and hand them to the browser as a file. The token is in no address. */
async function download() {
  try {
    const response = await reach("api/admin/export", bearer());
    const address = URL.createObjectURL(await response.blob());
    element("a", { href: address, download: `${told.study}.zip` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
    announce(say("admin.exported"));
  } catch (error) {
    problem = error.code ?? "other";
    draw();
  }
}

function draw() {
  const title = told?.title ?? say("admin.title");
  document.title = `${say("admin.title")} · ${title}`;
  at("bar").replaceChildren(
    element("p", { class: "name" }, element("span", { text: say("admin.title") })), element("nav"), languages(choose));
  const warning = problem ? element("p", { class: "warning", role: "alert", text: trouble(problem) }) : null;
  const parts = token === "" || problem === "not-admin" ? [gate()] : told === null ? [actions()] : [totals(), actions(), foreseen(), table(), promise()];
  show(at("main"), ...[heading(title), warning, ...parts].filter(Boolean));
}

/** Ask for the token. A password field: browsers keep what is typed into others. */
function gate() {
  const field = element("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false" });
  const form = element("form", { class: "gate" },
    element("label", { for: "token", text: say("admin.ask") }), field,
    element("button", { class: "primary", text: say("admin.enter") }));
  form.addEventListener("submit", (event) => {
    event.preventDefault(); // it goes into a header of a request, not into an address
    token = field.value.trim();
    if (token !== "") load();
  });
  return form;
}

function choose(code) {
  speak(code);
  draw();
  document.querySelector("select").focus();
}

function totals() {
  const { invitations, answers, persons, questions } = told;
  const fact = (key, value) => element("div", {},
    element("dt", { text: say(`admin.${key}`) }), element("dd", { text: say("number", { value }) }));
  return element("dl", { class: "facts" },
    fact("answers", answers), fact("persons", persons), fact("questions", questions),
    fact("made", invitations.made), fact("opened", invitations.opened),
    fact("revoked", invitations.revoked), fact("expired", invitations.expired));
}

function actions() {
  return element("div", { class: "actions" },
    told === null ? null : button(say("admin.export"), download, { class: "primary" }),
    button(say("admin.reload"), load, { class: "quiet" }));
}

/** What the answers are good for, from their number alone: now, at the minimum, and if all answer. */
function foreseen() {
  if (told.forecast.length === 0) return null;
  const rows = told.forecast.map(({ when, answers, accuracy, standard_error: error }) => element("tr", {},
    element("th", { scope: "row", text: say(`admin.forecast.${when}`) }),
    ...[say("number", { value: answers }), percent(accuracy, Math.floor), say("number", { value: error })]
      .map((text) => element("td", { class: "count", text }))));
  const head = ["when", "answers", "accuracy", "error"].map((key) => element("th", { scope: "col", text: say(`admin.column.${key}`) }));
  const few = told.answers < told.minimum;
  return element("section", { class: "forecast" },
    element("table", {},
      element("caption", { text: say("admin.forecast") }),
      element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)),
    few ? element("p", { class: "warning", text: say("admin.few", { minimum: told.minimum }) }) : null,
    element("p", { class: "muted", text: say("admin.forecast.how") }));
}

function table() {
  const most = Math.max(1, ...told.per_question.map(({ answers }) => answers));
  const head = ["question", "answers"].map((key) => element("th", { scope: "col", text: say(`admin.column.${key}`) }));
  const rows = told.per_question.map(({ prompt, answers }) => element("tr", {},
    element("th", { scope: "row", dir: "auto", text: prompt }),
    element("td", {}, element("span", { class: "count", text: say("number", { value: answers }) }), bar(answers, most))));
  return element("table", {},
    element("caption", { text: say("admin.table") }),
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function promise() {
  const { epsilon, cap, person_epsilon: total, closed, flip_probability: flip } = told;
  return element("section", { class: "note" },
    element("h2", { text: say("admin.promise") }),
    element("div", {},
      element("p", { text: say("admin.coin", { epsilon, flip: percent(flip, Math.floor) }) }),
      element("p", { text: say("admin.person", { cap, total }) }),
      element("p", { text: say("admin.never") }),
      closed ? element("p", { class: "warning", text: say("admin.closed") }) : null));
}

await loadTexts(null);
draw();
