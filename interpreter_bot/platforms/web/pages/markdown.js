// Markdown as nodes. Foreign text only becomes text, only addresses of the web and of mail become
// links, and no picture is loaded from elsewhere.

import { el, copyButton, makeScrollable } from "./dom.js";
import { highlightPython } from "./python_highlighting.js";
import { formula } from "./formulas.js";
import { inlineNodes } from "./inline_markdown.js";
import { buttonWords, outputWords } from "./words.js";

const MAX_DEPTH = 8;
const MANY_BLOCKS = 100;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( +)(.*)|$)/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const FORMULA_START = /^ {0,3}(?:(\$\$|\\\[)|(\\begin\{((?:align|alignat|aligned|cases|eqnarray|equation|gather|gathered|multline|split|[bpvBV]?matrix)\*?)\}))/;
const MAX_FORMULA_LINES = 200;

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
    const blocks = renumberHeadings(parseBlocks(this.text.split("\n")));
    let unchangedCount = 0;
    while (unchangedCount < blocks.length && unchangedCount < this.drawnSources.length && blocks[unchangedCount].source === this.drawnSources[unchangedCount]) unchangedCount++;
    while (this.element.childNodes.length > unchangedCount) this.element.lastChild.remove();
    const newBlocks = blocks.slice(unchangedCount);
    // For every added node, a browser would determine the direction anew from all text before it.
    if (newBlocks.length > MANY_BLOCKS) this.element.removeAttribute("dir");
    for (const block of newBlocks) this.element.append(drawBlock(block, this.linkFile, 0));
    this.element.dir = "auto";
    this.drawnSources = blocks.map((block) => block.source);
  }
}

function parseBlocks(lines) {
  const blocks = [];
  let index = 0;
  while (index < lines.length) {
    if (!lines[index].trim()) {
      index++;
      continue;
    }
    const [end, block] = parseBlock(lines, index);
    block.source = lines.slice(index, end).join("\n");
    blocks.push(block);
    index = end;
  }
  return blocks;
}

/** Renumber the levels of headings so that none is missing, for people who navigate by them. */
function renumberHeadings(blocks) {
  const openLevels = [];
  for (const block of blocks.filter((candidate) => candidate.kind === "heading")) {
    while (openLevels.length && openLevels.at(-1) >= block.level) openLevels.pop();
    openLevels.push(block.level);
    block.level = openLevels.length;
  }
  return blocks;
}

function parseBlock(lines, index) {
  const line = lines[index];
  const fence = FENCE.exec(line);
  if (fence) return parseFence(lines, index, fence);
  const heading = HEADING.exec(line);
  if (heading) return [index + 1, { kind: "heading", level: heading[1].length, text: stripClosingHashes(heading[2] ?? "") }];
  if (RULE.test(line)) return [index + 1, { kind: "rule" }];
  const display = parseFormulaBlock(lines, index);
  if (display) return display;
  if (QUOTE.test(line)) {
    const end = findEnd(lines, index, (line) => QUOTE.test(line));
    return [end, { kind: "quote", lines: lines.slice(index, end).map((line) => line.replace(QUOTE, "")) }];
  }
  if (isTable(lines, index)) {
    const end = findEnd(lines, index + 2, (line) => line.includes("|"));
    return [end, { kind: "table", rows: lines.slice(index, end) }];
  }
  if (ITEM.test(line)) return parseList(lines, index);
  const end = findEnd(lines, index + 1, (line, index) => line.trim() && !startsBlock(lines, index));
  return [end, { kind: "paragraph", text: lines.slice(index, end).map((line) => line.trimStart()).join("\n") }];
}

/** A formula on lines of its own. */
function parseFormulaBlock(lines, index) {
  const opening = FORMULA_START.exec(lines[index]);
  if (!opening) return null;
  const [whole, mark, , name] = opening;
  const closing = mark ? { "$$": "$$", "\\[": "\\]" }[mark] : `\\end{${name}}`;
  for (let end = index; end < lines.length && end - index < MAX_FORMULA_LINES; end++) {
    const closingIndex = lines[end].indexOf(closing, end === index ? whole.length : 0);
    if (closingIndex < 0) continue;
    // If text follows, it is a paragraph that begins with a formula.
    if (!/^[\s.,;]*$/.test(lines[end].slice(closingIndex + closing.length))) return null;
    const source = lines.slice(index, end + 1).join("\n").trim();
    const tex = source.slice(mark ? mark.length : 0, mark ? source.lastIndexOf(closing) : undefined);
    return [end + 1, { kind: "formula", text: tex, source }];
  }
  return null;
}

function findEnd(lines, index, isContinued) {
  while (index < lines.length && isContinued(lines[index], index)) index++;
  return index;
}

function stripClosingHashes(text) {
  let end = text.length;
  while (end > 0 && " \t#".includes(text[end - 1])) end--;
  return text.slice(0, end);
}

function startsBlock(lines, index) {
  const line = lines[index];
  const item = ITEM.exec(line);
  return (
    FENCE.test(line) || HEADING.test(line) || FORMULA_START.test(line) || QUOTE.test(line) || RULE.test(line) || isTable(lines, index) ||
    (item !== null && item[4] !== undefined && (item[2].length === 1 || Number.parseInt(item[2], 10) === 1))
  );
}

function parseFence(lines, index, fence) {
  const [, marks, info] = fence;
  const closing = new RegExp(`^ {0,3}${marks[0]}{${Math.min(marks.length, 1000)},}[ \\t]*$`);
  const end = findEnd(lines, index + 1, (line) => !closing.test(line));
  const block = { kind: "code", language: info.trim().split(/\s/)[0], text: lines.slice(index + 1, end).join("\n") };
  return [Math.min(end + 1, lines.length), block];
}

function isTable(lines, index) {
  const delimiterRow = lines[index + 1];
  return delimiterRow !== undefined && lines[index].includes("|") && delimiterRow.includes("-") && DELIMITERS.test(delimiterRow) &&
    splitRow(lines[index]).length === splitRow(delimiterRow).length;
}

function parseList(lines, index) {
  const first = ITEM.exec(lines[index]);
  const isOrdered = first[2].length > 1;
  const block = { kind: "list", isOrdered, start: Number.parseInt(first[2], 10), items: [], isLoose: false };
  let width = 0;
  for (; index < lines.length; index++) {
    const item = ITEM.exec(lines[index]);
    const indent = lines[index].length - lines[index].trimStart().length;
    if (item && indent < Math.max(width, 1) + (block.items.length ? 0 : 4) && (item[2].length > 1) === isOrdered && !RULE.test(lines[index])) {
      width = item[1].length + item[2].length + Math.min(item[3]?.length ?? 1, 4);
      block.items.push([item[4] ?? ""]);
    } else if (!lines[index].trim()) {
      const nextLine = lines.slice(index + 1, index + 2)[0];
      const isContinued = nextLine !== undefined && nextLine.trim() && (nextLine.startsWith(" ".repeat(Math.min(width, 2))) || isSameListKind(nextLine, isOrdered));
      if (!isContinued) break;
      block.items.at(-1).push("");
    } else if (indent >= Math.min(width, 2)) block.items.at(-1).push(lines[index].slice(Math.min(indent, width)));
    else if (startsBlock(lines, index) || block.items.at(-1).at(-1) === "") break;
    else block.items.at(-1).push(lines[index]);
  }
  block.isLoose = block.items.some((item, index) => item.includes("") && (index < block.items.length - 1 || item.at(-1) !== ""));
  return [index, block];
}

function isSameListKind(line, isOrdered) {
  const item = ITEM.exec(line);
  return item !== null && item[2].length > 1 === isOrdered;
}

function splitRow(row) {
  const matches = row.trim().replace(/^\|/, "").match(/(?:[^|\\]|\\[^]|\\$)*(?:\||$)/g) ?? [];
  const texts = matches.map((match) => match.replace(/\|$/, "").replace(/\\\|/g, "|").trim());
  // The last match is empty.
  texts.pop();
  return texts;
}

function drawBlock(block, linkFile, depth) {
  switch (block.kind) {
    case "heading":
      // Headings of an answer are below that of its turn.
      return el(`h${Math.min(block.level + 2, 6)}`, {}, inlineNodes(block.text, linkFile));
    case "rule":
      return el("hr");
    case "code":
      return codeBox(block.text, block.language);
    case "formula":
      return el("p", {}, formula(block.text, block.source, true));
    case "quote":
      return el("blockquote", {}, drawLines(block.lines, linkFile, depth));
    case "table":
      return drawTable(block.rows, linkFile);
    case "list":
      return drawList(block, linkFile, depth);
    default:
      return el("p", {}, inlineNodes(block.text, linkFile));
  }
}

function drawLines(lines, linkFile, depth) {
  if (depth >= MAX_DEPTH) return [document.createTextNode(lines.join("\n"))];
  return parseBlocks(lines).map((block) => drawBlock(block, linkFile, depth + 1));
}

function drawList(block, linkFile, depth) {
  const items = block.items.map((lines) => {
    const task = /^\[([ xX])\] /.exec(lines[0]);
    const itemLines = task ? [lines[0].slice(4), ...lines.slice(1)] : lines;
    const children = drawLines(itemLines, linkFile, depth);
    // In a tight list, the text of an item is no paragraph.
    const itemNodes = block.isLoose ? children : children.flatMap((child) => (child.nodeName === "P" ? [...child.childNodes] : [child]));
    const box = task ? el("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": task[1] === " " ? outputWords.toDo : outputWords.done }) : null;
    return el("li", { class: task ? "task" : null }, box, itemNodes);
  });
  return el(block.isOrdered ? "ol" : "ul", { start: block.isOrdered && block.start !== 1 ? block.start : null }, items);
}

function drawTable(rows, linkFile) {
  const alignments = splitRow(rows[1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "end") : "start"));
  const row = (rowSource, tag) => {
    const texts = splitRow(rowSource);
    return el("tr", {}, alignments.map((side, index) => el(texts[index] ? tag : "td", { class: side }, inlineNodes(texts[index] ?? "", linkFile))));
  };
  return makeScrollable(el("div", { class: "wide-table" },
    el("table", {}, el("thead", {}, row(rows[0], "th")), el("tbody", {}, rows.slice(2).map((rowSource) => row(rowSource, "td"))))));
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
