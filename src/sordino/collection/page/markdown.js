/**
 * Markdown as nodes that can do nothing.
 *
 * Two walls, each with a list of its own. The first makes an element for each mark that it knows;
 * no HTML is ever written or read, so none can be brought in. The second, DOMPurify, looks at the
 * finished nodes and takes away what is not on its list. Nothing is asked of any other place: a link
 * is its words and its address, both as text, and a picture lies in the text itself or is not shown.
 */

import { say } from "./texts.js";
import MarkdownIt from "./vendor/markdown-it.esm.min.mjs";
import DOMPurify from "./vendor/purify.es.mjs";

const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,[a-z0-9+/]+={0,2}$/i;
const FORMULA = /\$\$[^$]+\$\$|\$(?![\s$])(?:[^\\$]|\\[^])*(?<!\s)\$(?!\d)|\\\([^]{1,2000}?\\\)|\\\[[^]{1,2000}?\\\]/y;
const ENDS = { "$$": "$$", "\\[": "\\]" };
const LONGEST = 200; // lines of one formula

const TAGS = ["p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "table", "thead",
  "tbody", "tr", "th", "td", "em", "strong", "s", "br"];
const KEPT = {
  ALLOWED_TAGS: ["#text", "div", "span", "p", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "table",
    "thead", "tbody", "tr", "th", "td", "em", "strong", "s", "br", "code", "pre", "img"],
  ALLOWED_ATTR: ["class", "dir", "start", "src", "alt", "data-language"],
  ALLOWED_URI_REGEXP: PICTURE,
  ADD_URI_SAFE_ATTR: ["dir", "start", "data-language"],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  KEEP_CONTENT: false,
  IN_PLACE: true,
  TRUSTED_TYPES_POLICY: null, // nodes come in and go out: there is no HTML that a policy could bless
};

const reader = new MarkdownIt({ html: false, linkify: false, typographer: false, breaks: true });
reader.inline.ruler.before("escape", "formula", formula);
reader.inline.ruler.before("escape", "break", lineBreak);
reader.block.ruler.before("fence", "formula", formulas, { alt: ["paragraph", "reference", "blockquote", "list"] });

/** Return a text in Markdown as one element. */
export function markdown(text) {
  const whole = node("div", { class: "passage rich", dir: "auto" });
  fill(whole, reader.parse(text, {}));
  return DOMPurify.sanitize(whole, KEPT);
}

function node(name, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

/** Put the elements of some marks into a place. */
function fill(place, tokens) {
  const open = [place];
  const addresses = [];
  for (const token of tokens) {
    const here = open.at(-1);
    if (token.type === "inline") fill(here, token.children);
    else if (token.type === "link_open") addresses.push(token.markup === "autolink" ? "" : token.attrGet("href"));
    else if (token.type === "link_close") here.append(...address(addresses.pop()));
    else if (token.nesting === 1) open.push(opened(token, here));
    else if (token.nesting === -1) open.pop()[token.hidden ? "append" : "after"](token.block ? "\n" : "");
    else here.append(single(token));
  }
}

/** Return the element that a mark begins, or where it is anyway: in a list without gaps a paragraph is none. */
function opened(token, here) {
  if (token.hidden || !TAGS.includes(token.tag)) return here;
  const made = node(named(token.tag), here.matches(".passage") ? { dir: "auto" } : {});
  const side = /^text-align:(center|right)$/.exec(token.attrGet("style") ?? "");
  if (side) made.className = side[1];
  if (token.tag === "ol" && token.attrGet("start")) made.setAttribute("start", token.attrGet("start"));
  here.append(made);
  return made;
}

/** Return the name of an element: the first heading of the page is the page's own. */
function named(tag) {
  return /^h[1-5]$/.test(tag) ? `h${Number(tag[1]) + 1}` : tag;
}

/** Return a mark that has no end. Whatever is not known is its own source text. */
function single(token) {
  const { type, content } = token;
  if (type === "softbreak" || type === "hardbreak") return node("br");
  if (type === "hr") return node("hr");
  if (type === "image") return picture(token);
  if (type === "code_inline") return node("code", { dir: "ltr" }, content);
  if (type === "formula") return node("code", { class: "formula", dir: "ltr" }, content);
  if (!["fence", "code_block", "formulas"].includes(type)) return content;
  const about = type === "formulas" ? { class: "formula" } : { "data-language": token.info.trim().split(/\s+/)[0] };
  const block = node("pre", { dir: "ltr", ...about });
  block.append(node("code", {}, content.replace(/\n$/, "")));
  return block;
}

function picture(token) {
  const source = token.attrGet("src");
  const words = reader.renderer.renderInlineAsText(token.children, reader.options, {});
  if (PICTURE.test(source)) return node("img", { src: source, alt: words });
  return node("span", { class: "missing" }, say("passage.picture", { words, address: source }));
}

/** Return where a link would lead, to be read and not to be followed. */
function address(target) {
  return target ? [" ", node("span", { class: "address", dir: "ltr" }, `(${target})`)] : [];
}

/** Read a formula within a line. Marks inside it mean nothing. */
function formula(state, silent) {
  FORMULA.lastIndex = state.pos;
  const found = FORMULA.exec(state.src)?.[0];
  if (!found || state.pos + found.length > state.posMax) return false;
  if (!silent) state.push("formula", "", 0).content = found;
  state.pos += found.length;
  return true;
}

/** Read formulas on lines of their own. A blank line ends what was none. */
function formulas(state, start, end, silent) {
  const line = (at) => state.src.slice(state.bMarks[at] + state.tShift[at], state.eMarks[at]).trimEnd();
  const closing = ENDS[line(start).slice(0, 2)];
  if (closing === undefined || state.sCount[start] - state.blkIndent >= 4) return false;
  for (let at = start; at < Math.min(end, start + LONGEST); at += 1) {
    const place = line(at).indexOf(closing, at === start ? 2 : 0);
    if (place >= 0 && place < line(at).length - 2) return false; // words go on behind it
    if (place >= 0) {
      if (silent) return true;
      const token = state.push("formulas", "", 0);
      token.block = true;
      token.content = state.getLines(start, at + 1, state.blkIndent, false);
      state.line = at + 1;
      return true;
    }
    if (line(at) === "" || state.sCount[at] < state.blkIndent) return false;
  }
  return false;
}

/** Read the one tag that people write for want of a mark: a new line in a cell of a table. */
function lineBreak(state, silent) {
  const found = /^<br ?\/?>/i.exec(state.src.slice(state.pos, state.pos + 6))?.[0];
  if (!found) return false;
  if (!silent) state.push("hardbreak", "br", 0);
  state.pos += found.length;
  return true;
}
