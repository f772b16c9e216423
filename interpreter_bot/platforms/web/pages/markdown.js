// Markdown as nodes. Foreign text only becomes text, only addresses of the web and of mail become
// links, and no picture is loaded from elsewhere.

import { el, copier, scrollable } from "./dom.js";
import { highlighted } from "./python_highlighting.js";
import { formula } from "./formulas.js";
import { inline } from "./inline_markdown.js";
import { buttonWords, outputWords } from "./words.js";

const DEEPEST = 8;
const MANY = 100;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( +)(.*)|$)/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const DISPLAY = /^ {0,3}(?:(\$\$|\\\[)|(\\begin\{((?:align|alignat|aligned|cases|eqnarray|equation|gather|gathered|multline|split|[bpvBV]?matrix)\*?)\}))/;
const MAX_FORMULA_LINES = 200;

/** Markdown that may grow; blocks that did not change are not drawn again. */
export class Words {
  constructor() {
    this.element = el("div", { class: "words", dir: "auto" });
    this.text = "";
    this.drawn = [];
    this.fileNamed = () => null;
    this.isScheduled = false;
  }

  add(delta) {
    this.text += delta;
    this.schedule();
  }

  set(text) {
    this.text = text;
    this.schedule();
  }

  /** Draw anew, with code that names a file as a link. */
  link(fileNamed) {
    this.fileNamed = fileNamed;
    this.drawn = [];
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
    const blocks = levelled(parsed(this.text.split("\n")));
    let same = 0;
    while (same < blocks.length && same < this.drawn.length && blocks[same].source === this.drawn[same]) same++;
    while (this.element.childNodes.length > same) this.element.lastChild.remove();
    const fresh = blocks.slice(same);
    // For every added node, a browser would determine the direction anew from all text before it.
    if (fresh.length > MANY) this.element.removeAttribute("dir");
    for (const block of fresh) this.element.append(drawn(block, this.fileNamed, 0));
    this.element.dir = "auto";
    this.drawn = blocks.map((block) => block.source);
  }
}

function parsed(lines) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    const [end, block] = next(lines, at);
    block.source = lines.slice(at, end).join("\n");
    blocks.push(block);
    at = end;
  }
  return blocks;
}

/** Renumber the levels of headings so that none is missing, for people who navigate by them. */
function levelled(blocks) {
  const open = [];
  for (const block of blocks.filter((candidate) => candidate.kind === "heading")) {
    while (open.length && open.at(-1) >= block.level) open.pop();
    open.push(block.level);
    block.level = open.length;
  }
  return blocks;
}

function next(lines, at) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [at + 1, { kind: "heading", level: heading[1].length, text: unhashed(heading[2] ?? "") }];
  if (RULE.test(line)) return [at + 1, { kind: "rule" }];
  const display = displayed(lines, at);
  if (display) return display;
  if (QUOTE.test(line)) {
    const end = endOf(lines, at, (line) => QUOTE.test(line));
    return [end, { kind: "quote", lines: lines.slice(at, end).map((line) => line.replace(QUOTE, "")) }];
  }
  if (isTable(lines, at)) {
    const end = endOf(lines, at + 2, (line) => line.includes("|"));
    return [end, { kind: "table", rows: lines.slice(at, end) }];
  }
  if (ITEM.test(line)) return list(lines, at);
  const end = endOf(lines, at + 1, (line, index) => line.trim() && !breaks(lines, index));
  return [end, { kind: "paragraph", text: lines.slice(at, end).map((line) => line.trimStart()).join("\n") }];
}

/** A formula on lines of its own. */
function displayed(lines, at) {
  const opening = DISPLAY.exec(lines[at]);
  if (!opening) return null;
  const [whole, mark, , name] = opening;
  const closing = mark ? { "$$": "$$", "\\[": "\\]" }[mark] : `\\end{${name}}`;
  for (let end = at; end < lines.length && end - at < MAX_FORMULA_LINES; end++) {
    const place = lines[end].indexOf(closing, end === at ? whole.length : 0);
    if (place < 0) continue;
    // If text follows, it is a paragraph that begins with a formula.
    if (!/^[\s.,;]*$/.test(lines[end].slice(place + closing.length))) return null;
    const written = lines.slice(at, end + 1).join("\n").trim();
    const inner = written.slice(mark ? mark.length : 0, mark ? written.lastIndexOf(closing) : undefined);
    return [end + 1, { kind: "formula", text: inner, written }];
  }
  return null;
}

function endOf(lines, at, goesOn) {
  while (at < lines.length && goesOn(lines[at], at)) at++;
  return at;
}

function unhashed(text) {
  let end = text.length;
  while (end > 0 && " \t#".includes(text[end - 1])) end--;
  return text.slice(0, end);
}

function breaks(lines, at) {
  const line = lines[at];
  const item = ITEM.exec(line);
  return (
    FENCE.test(line) || HEADING.test(line) || DISPLAY.test(line) || QUOTE.test(line) || RULE.test(line) || isTable(lines, at) ||
    (item !== null && item[4] !== undefined && (item[2].length === 1 || Number.parseInt(item[2], 10) === 1))
  );
}

function fenced(lines, at, fence) {
  const [, marks, info] = fence;
  const closing = new RegExp(`^ {0,3}${marks[0]}{${Math.min(marks.length, 1000)},}[ \\t]*$`);
  const end = endOf(lines, at + 1, (line) => !closing.test(line));
  const block = { kind: "code", language: info.trim().split(/\s/)[0], text: lines.slice(at + 1, end).join("\n") };
  return [Math.min(end + 1, lines.length), block];
}

function isTable(lines, at) {
  const under = lines[at + 1];
  return under !== undefined && lines[at].includes("|") && under.includes("-") && DELIMITERS.test(under) &&
    cells(lines[at]).length === cells(under).length;
}

function list(lines, at) {
  const first = ITEM.exec(lines[at]);
  const isOrdered = first[2].length > 1;
  const block = { kind: "list", isOrdered, start: Number.parseInt(first[2], 10), items: [], isLoose: false };
  let width = 0;
  for (; at < lines.length; at++) {
    const item = ITEM.exec(lines[at]);
    const indent = lines[at].length - lines[at].trimStart().length;
    if (item && indent < Math.max(width, 1) + (block.items.length ? 0 : 4) && (item[2].length > 1) === isOrdered && !RULE.test(lines[at])) {
      width = item[1].length + item[2].length + Math.min(item[3]?.length ?? 1, 4);
      block.items.push([item[4] ?? ""]);
    } else if (!lines[at].trim()) {
      const after = lines.slice(at + 1, at + 2)[0];
      const goesOn = after !== undefined && after.trim() && (after.startsWith(" ".repeat(Math.min(width, 2))) || sameKind(after, isOrdered));
      if (!goesOn) break;
      block.items.at(-1).push("");
    } else if (indent >= Math.min(width, 2)) block.items.at(-1).push(lines[at].slice(Math.min(indent, width)));
    else if (breaks(lines, at) || block.items.at(-1).at(-1) === "") break;
    else block.items.at(-1).push(lines[at]);
  }
  block.isLoose = block.items.some((item, index) => item.includes("") && (index < block.items.length - 1 || item.at(-1) !== ""));
  return [at, block];
}

function sameKind(line, isOrdered) {
  const item = ITEM.exec(line);
  return item !== null && item[2].length > 1 === isOrdered;
}

function cells(row) {
  const matches = row.trim().replace(/^\|/, "").match(/(?:[^|\\]|\\[^]|\\$)*(?:\||$)/g) ?? [];
  const texts = matches.map((match) => match.replace(/\|$/, "").replace(/\\\|/g, "|").trim());
  // The last match is empty.
  texts.pop();
  return texts;
}

function drawn(block, fileNamed, depth) {
  switch (block.kind) {
    case "heading":
      // Headings of an answer are below that of its turn.
      return el(`h${Math.min(block.level + 2, 6)}`, {}, inline(block.text, fileNamed));
    case "rule":
      return el("hr");
    case "code":
      return codeBlock(block.text, block.language);
    case "formula":
      return el("p", {}, formula(block.text, block.written, true));
    case "quote":
      return el("blockquote", {}, within(block.lines, fileNamed, depth));
    case "table":
      return table(block.rows, fileNamed);
    case "list":
      return listed(block, fileNamed, depth);
    default:
      return el("p", {}, inline(block.text, fileNamed));
  }
}

function within(lines, fileNamed, depth) {
  if (depth >= DEEPEST) return [document.createTextNode(lines.join("\n"))];
  return parsed(lines).map((block) => drawn(block, fileNamed, depth + 1));
}

function listed(block, fileNamed, depth) {
  const items = block.items.map((lines) => {
    const task = /^\[([ xX])\] /.exec(lines[0]);
    const rest = task ? [lines[0].slice(4), ...lines.slice(1)] : lines;
    const children = within(rest, fileNamed, depth);
    // In a tight list, the text of an item is no paragraph.
    const tight = block.isLoose ? children : children.flatMap((child) => (child.nodeName === "P" ? [...child.childNodes] : [child]));
    const box = task ? el("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": task[1] === " " ? outputWords.toDo : outputWords.done }) : null;
    return el("li", { class: task ? "task" : null }, box, tight);
  });
  return el(block.isOrdered ? "ol" : "ul", { start: block.isOrdered && block.start !== 1 ? block.start : null }, items);
}

function table(rows, fileNamed) {
  const sides = cells(rows[1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "end") : "start"));
  const row = (source, tag) => {
    const texts = cells(source);
    return el("tr", {}, sides.map((side, index) => el(texts[index] ? tag : "td", { class: side }, inline(texts[index] ?? "", fileNamed))));
  };
  return scrollable(el("div", { class: "wide-table" },
    el("table", {}, el("thead", {}, row(rows[0], "th")), el("tbody", {}, rows.slice(2).map((source) => row(source, "td"))))));
}

/** A button that asks the page to do something with a text: "run", "edit" or "ask". */
export function requester(kind, text, words) {
  const request = ({ currentTarget }) => currentTarget.dispatchEvent(new CustomEvent(kind, { bubbles: true, detail: text }));
  return el("button", { type: "button", class: `small to-${kind}`, onclick: request }, words);
}

/** Code with its language, and buttons to copy and use it. */
export function codeBlock(text, language) {
  const isPython = /^(?:python3?|py|ipython)$/i.test(language);
  const name = language.slice(0, 20);
  const uses = isPython ? [requester("run", text, buttonWords.run), requester("edit", text, buttonWords.edit)] : [];
  return el("div", { class: "code" },
    el("div", { class: "code-head" }, el("span", { class: "language" }, isPython ? "Python" : name || outputWords.text), uses, copier(() => text)),
    scrollable(el("pre", {}, el("code", { dir: "ltr" }, isPython ? highlighted(text) : text))));
}
