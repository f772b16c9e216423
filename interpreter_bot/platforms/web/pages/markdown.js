// Markdown as nodes. Foreign text only becomes text, only addresses of the web and of mail become
// links, and no picture is loaded from elsewhere.

import { el, copyButton, makeScrollable } from "./dom.js";
import { highlightPython } from "./python_highlighting.js";
import { formula } from "./formulas.js";
import { parseBlocks, parseInline } from "./markdown_syntax.js";
import { buttonWords, outputWords } from "./words.js";

const MANY_BLOCKS = 100;
const MAX_ADDRESS_CHARACTERS = 2000;
const MAX_DEPTH = 100;
const BARE_FILE = /(?<![\p{L}\p{N}])sandbox:\/{0,3}(?:mnt\/data\/)?([^\s()<>[\]"'`]{0,499}[^\s()<>[\]"'`.,;:!?*_])/gu;
const TAGS = { s: "del" };
const ALIGNMENTS = { "text-align:left": "start", "text-align:center": "center", "text-align:right": "end" };

/** Markdown that may grow; blocks that did not change are not drawn again. */
export class MarkdownView {
  constructor() {
    this.element = el("div", { class: "words", dir: "auto" });
    this.text = "";
    this.drawnSources = [];
    this.linkFile = () => null;
    this.isScheduled = false;
  }

  append(delta) {
    this.text += delta;
    this.schedule();
  }

  setText(text) {
    this.text = text;
    this.schedule();
  }

  /** Draw anew, with code that names a file as a link. */
  linkFiles(linkFile) {
    this.linkFile = linkFile;
    this.drawnSources = [];
    this.element.replaceChildren();
    this.schedule();
  }

  schedule() {
    // Text of a past turn is complete, so it is drawn before its element is shown.
    if (!this.element.isConnected) return this.draw();
    if (this.isScheduled) return;
    this.isScheduled = true;
    if (document.hidden) setTimeout(() => this.draw(), 100);
    else requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.isScheduled = false;
    const blocks = splitBlocks(this.text.replace(/\r\n?/g, "\n"));
    let unchangedCount = 0;
    while (unchangedCount < blocks.length && blocks[unchangedCount].source === this.drawnSources[unchangedCount]) unchangedCount++;
    while (this.element.childNodes.length > unchangedCount) this.element.lastChild.remove();
    const newBlocks = blocks.slice(unchangedCount);
    // For every added node, a browser would determine the direction anew from all text before it.
    if (newBlocks.length > MANY_BLOCKS) this.element.removeAttribute("dir");
    for (const { tokens } of newBlocks) this.element.append(drawTokens(tokens, this.linkFile));
    this.element.dir = "auto";
    this.drawnSources = blocks.map(({ source }) => source);
  }
}

/** Return the outermost blocks of a text, each with its tokens and its source. */
function splitBlocks(text) {
  const lines = text.split("\n");
  const blocks = [];
  for (const token of renumberHeadings(parseBlocks(text))) {
    if (token.level === 0 && token.nesting >= 0) blocks.push({ tokens: [], source: `${token.tag}${lines.slice(...token.map).join("\n")}` });
    blocks.at(-1).tokens.push(token);
  }
  return blocks;
}

/** Renumber the levels of headings so that none is missing, for people who navigate by them. */
function renumberHeadings(tokens) {
  const openLevels = [];
  for (const token of tokens) {
    if (token.type !== "heading_open" || token.level > 0) continue;
    const level = Number(token.tag[1]);
    while (openLevels.length && openLevels.at(-1) >= level) openLevels.pop();
    openLevels.push(level);
    // Headings of an answer are below that of its turn.
    token.tag = `h${Math.min(openLevels.length + 2, 6)}`;
  }
  return tokens;
}

/** Return the nodes of tokens: one that opens an element has a counterpart that closes it. */
function drawTokens(tokens, linkFile) {
  const root = document.createDocumentFragment();
  const parents = [root];
  for (const [index, token] of tokens.entries()) {
    const parent = parents.at(-1);
    if (token.nesting < 0) parents.pop();
    else if (token.nesting === 0) parent.append(...[drawLeaf(token, parent, linkFile)].flat());
    else {
      // In a tight list, the text of an item is no paragraph. Browsers take minutes to lay out deeply nested elements.
      const element = token.hidden || parents.length > MAX_DEPTH ? parent : openElement(token, tokens[index + 1]);
      if (element !== parent) parent.append(token.tag === "table" ? makeScrollable(el("div", { class: "wide-table" }, element)) : element);
      parents.push(element);
    }
  }
  return root;
}

function openElement(token, nextToken) {
  if (token.type === "link_open") return linkNode(token.attrGet("href"), []);
  if (token.tag === "ol") return el("ol", { start: token.attrGet("start") });
  if (token.tag !== "th" && token.tag !== "td") return el(TAGS[token.tag] ?? token.tag);
  // An empty heading becomes a plain cell.
  return el(nextToken.content ? token.tag : "td", { class: ALIGNMENTS[token.attrGet("style")] ?? "start" });
}

function drawLeaf(token, parent, linkFile) {
  switch (token.type) {
    case "inline":
      return drawInline(token.content, parent, linkFile);
    case "fence":
      return codeBox(token.content.replace(/\n$/, ""), token.info.trim().split(/\s/)[0]);
    case "formula_block":
      return el("p", {}, formula(token.content, token.markup, true));
    case "formula":
      return formula(token.content, token.markup, token.meta.isDisplay);
    case "code_inline":
      return linkFile(token.content) ?? el("code", { dir: "ltr" }, token.content);
    case "file_link":
      return fileNode(token.content, linkFile, token.meta.label);
    case "image":
      return linkNode(token.attrGet("src"), drawTokens(token.children, linkFile));
    case "text":
      // The names of files are the odd parts.
      return token.content.split(BARE_FILE).map((part, index) => (index % 2 ? fileNode(part, linkFile) : part));
    default:
      return token.tag ? el(token.tag) : token.content;
  }
}

function drawInline(text, parent, linkFile) {
  const item = parent.closest?.("li");
  // Looking at all text of the item would take quadratic time, as it may have many paragraphs.
  const isFirst = item && (item.firstChild ?? parent) === parent && !parent.hasChildNodes();
  const task = isFirst ? /^\[([ xX])\] /.exec(text) : null;
  // Not an array: a text can have more lines than a call can have arguments.
  const fragment = drawTokens(parseInline(task ? text.slice(task[0].length) : text), linkFile);
  if (!task) return fragment;
  item.className = "task";
  const isDone = task[1] !== " ";
  fragment.prepend(el("input", { type: "checkbox", disabled: true, checked: isDone, "aria-label": isDone ? outputWords.done : outputWords.toDo }));
  return fragment;
}

/** Draw the name of a file of the conversation, behind its label if that says something else. */
function fileNode(path, linkFile, label = "") {
  let name = path.trim();
  try {
    name = decodeURIComponent(name);
  } catch {
    // The name has a percent sign that begins no escape.
  }
  const node = linkFile(name) ?? el("code", { dir: "ltr" }, name);
  // A link in a link may be nested thousands of times.
  const labelNodes = label.includes("](") ? label : drawTokens(parseInline(label), linkFile);
  const plainLabel = label.replace(/^[`*\s]+|[`*\s]+$/g, "");
  return plainLabel && !name.endsWith(plainLabel) ? el("span", {}, labelNodes, " (", node, ")") : node;
}

/** Return a link if the address is one of the web or of mail; otherwise the label alone. */
function linkNode(address, label) {
  let url = null;
  try {
    url = address.length <= MAX_ADDRESS_CHARACTERS && /^[a-z]/i.test(address) ? new URL(address) : null;
  } catch {
    url = null;
  }
  if (url === null || !["http:", "https:", "mailto:"].includes(url.protocol)) return el("span", {}, label);
  return el("a", { href: url.href, title: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, label);
}

/** A button that asks the page to do something with a text: "run", "edit" or "ask". */
export function requestButton(eventName, text, label) {
  const request = ({ currentTarget }) => currentTarget.dispatchEvent(new CustomEvent(eventName, { bubbles: true, detail: text }));
  return el("button", { type: "button", class: `small to-${eventName}`, onclick: request }, label);
}

/** Code with its language, and buttons to copy and use it. */
export function codeBox(text, language) {
  const isPython = /^(?:python3?|py|ipython)$/i.test(language);
  const name = language.slice(0, 20);
  const uses = isPython ? [requestButton("run", text, buttonWords.run), requestButton("edit", text, buttonWords.edit)] : [];
  return el("div", { class: "code" },
    el("div", { class: "code-head" }, el("span", { class: "language" }, isPython ? "Python" : name || outputWords.text), uses, copyButton(() => text)),
    makeScrollable(el("pre", {}, el("code", { dir: "ltr" }, isPython ? highlightPython(text) : text))));
}
