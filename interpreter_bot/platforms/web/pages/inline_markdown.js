// Inline elements of Markdown.

import { el } from "./dom.js";
import { formula } from "./formulas.js";

const MAX_DEPTH = 6;
const MAX_LABEL_CHARACTERS = 1000;
const MAX_ADDRESS_CHARACTERS = 2000;
const MAX_OPEN = 64;
// Without the beginnings of formulas; other escapes keep their backslash.
const ESCAPED = /[#$&*+\-./<=>?@\\\]^_`{|}~"'%\n]|!(?=\[)/y;
const OPENING = /\\[([]|\${1,2}/y;
const CLOSING = { "\\(": "\\)", "\\[": "\\]", $: "$", $$: "$$" };
const MAX_FORMULA_CHARACTERS = 2000;
const MONEY = /^\d[\d.,]*\s(?!.*[\\^_=+*/<>])/s;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const BARE_URL = /https?:\/\/[^\s<>"'`\\]{1,2000}/y;
const ANGLE_BRACKET_URL = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
const DESTINATION = /\(\s{0,9}(?:<([^<>\n]{0,2000})>|((?:[^\s()\\]|\\[^]|\([^\s()]{0,500}\)){0,2000}))(?:\s{1,9}(?:"[^"]{0,500}"|'[^']{0,500}'))?\s{0,9}\)/y;
// Addresses of files in answers of models, which no browser can open.
const FILE_DESTINATION = /\(\s{0,9}<?(?:(?:sandbox|attachment):\/{0,3}(?:mnt\/data\/)?|(?:file:\/\/)?\/?mnt\/data\/)((?:[^()<>\n]|\([^()\n]{0,200}\)){1,500})>?\)/y;
const BARE_FILE = /sandbox:\/{0,3}(?:mnt\/data\/)?([^\s()<>[\]"'`]{1,500})/y;
const WORD = /[\p{L}\p{N}]/u;

/** Return the nodes of a text; `linkFile` returns a link for the name of a file, or null. */
export function inlineNodes(text, linkFile, depth = 0) {
  const parts = [];
  const closingIndexes = new Map();
  let plainText = "";
  let index = 0;
  const flush = () => {
    if (plainText) parts.push({ node: document.createTextNode(plainText) });
    plainText = "";
  };
  const push = (node, end) => {
    flush();
    parts.push({ node });
    index = end;
  };
  while (index < text.length) {
    const character = text[index];
    const found = character === "$" || character === "\\" ? parseFormula(text, index, closingIndexes) : null;
    if (found) {
      push(found.node, found.end);
    } else if (character === "\\" && matchAt(ESCAPED, text, index + 1)) {
      if (text[index + 1] === "\n") push(el("br"), index + 2);
      else (plainText += text[index + 1]), (index += 2);
    } else if (character === "\n") {
      plainText = plainText.trimEnd();
      push(el("br"), index + 1);
    } else if (character === "`") {
      const [end, code] = parseCode(text, index, closingIndexes);
      if (code === null) (plainText += text.slice(index, end)), (index = end);
      else push(linkFile(code) ?? el("code", { dir: "ltr" }, code), end);
    } else if (character === "[" || (character === "!" && text[index + 1] === "[")) {
      const link = depth < MAX_DEPTH ? parseLink(text, index, linkFile, depth) : null;
      if (link) push(link.node, link.end);
      else (plainText += character), index++;
    } else if (character === "<" && matchAt(ANGLE_BRACKET_URL, text, index)) {
      const found = matchAt(ANGLE_BRACKET_URL, text, index);
      push(linkNode(found[1], [found[1]]), index + found[0].length);
    } else if (character === "h" && !WORD.test(text[index - 1] ?? "") && matchAt(BARE_URL, text, index)) {
      const address = trimUrlEnd(matchAt(BARE_URL, text, index)[0]);
      push(linkNode(address, [address]), index + address.length);
    } else if (character === "s" && !WORD.test(text[index - 1] ?? "") && matchAt(BARE_FILE, text, index)) {
      const [whole, name] = matchAt(BARE_FILE, text, index);
      const end = /[.,;:!?*_]*$/.exec(name)[0].length;
      push(fileNode(name.slice(0, name.length - end), linkFile), index + whole.length - end);
    } else if (character === "*" || character === "_" || character === "~") {
      let end = index;
      while (text[end] === character) end++;
      flush();
      parts.push(makeDelimiter(text, index, end));
      index = end;
    } else {
      plainText += character;
      index++;
    }
  }
  flush();
  return applyEmphasis(parts);
}

function matchAt(pattern, text, index) {
  pattern.lastIndex = index;
  return pattern.exec(text);
}

/** A formula: \(…\), \[…\], $$…$$, or $…$ that touches what is in it and is no sum of money. */
function parseFormula(text, index, closingIndexes) {
  const opening = matchAt(OPENING, text, index)?.[0];
  if (!opening) return null;
  const closing = CLOSING[opening];
  const start = index + opening.length;
  let end = closingIndexes.get(closing) ?? -1;
  if (end < start) {
    // Each text is searched once, however many formulas begin in it.
    end = text.indexOf(closing, start);
    if (end < 0) end = Infinity;
    closingIndexes.set(closing, end);
  }
  if (end - start > MAX_FORMULA_CHARACTERS) return null;
  const tex = text.slice(start, end);
  if (!tex.trim()) return null;
  const after = end + closing.length;
  if (opening === "$" && !isFormula(tex, text[index - 1] ?? "", text[after] ?? "")) return null;
  return { node: formula(tex, text.slice(index, after), opening === "\\[" || opening === "$$"), end: after };
}

function isFormula(tex, before, after) {
  return !/^\s|\s$|`|\\$/.test(tex) && !/[\p{L}\p{N}]/u.test(before) && !/\d/.test(after) && !MONEY.test(tex);
}

function parseCode(text, index, closingIndexes) {
  let start = index;
  while (text[start] === "`") start++;
  const length = start - index;
  // Where no run of that length followed once, none follows later.
  if (!closingIndexes.has(length))
    for (let end = start; end < text.length; ) {
      const tick = text.indexOf("`", end);
      if (tick < 0) break;
      end = tick;
      while (text[end] === "`") end++;
      if (end - tick === length) return [end, stripCode(text.slice(start, tick))];
    }
  closingIndexes.set(length, true);
  return [start, null];
}

function stripCode(code) {
  const flat = code.replace(/\n/g, " ");
  return flat.startsWith(" ") && flat.endsWith(" ") && flat.trim() ? flat.slice(1, -1) : flat;
}

function parseLink(text, index, linkFile, nesting) {
  const start = text[index] === "!" ? index + 2 : index + 1;
  let depth = 1;
  let end = start;
  for (; end < text.length && end - start < MAX_LABEL_CHARACTERS; end++) {
    if (text[end] === "\\") end++;
    else if (text[end] === "[") depth++;
    else if (text[end] === "]" && --depth === 0) break;
  }
  if (text[end] !== "]" || text[end + 1] !== "(") return null;
  const fileMatch = matchAt(FILE_DESTINATION, text, end + 1);
  const match = fileMatch ?? matchAt(DESTINATION, text, end + 1);
  if (match === null) return null;
  const label = inlineNodes(text.slice(start, end), linkFile, nesting + 1);
  if (fileMatch) return { node: fileNode(fileMatch[1], linkFile, text.slice(start, end), label), end: end + 1 + fileMatch[0].length };
  const address = (match[1] ?? match[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1");
  return { node: linkNode(address, label), end: end + 1 + match[0].length };
}

/** Name a file of the conversation, as the bot does in the last words: behind a label that says something else. */
function fileNode(path, linkFile, label = "", nodes = []) {
  let name = path.trim();
  try {
    name = decodeURIComponent(name);
  } catch {
    // A percent sign of its own.
  }
  const node = linkFile(name) ?? el("code", { dir: "ltr" }, name);
  const plainLabel = label.replace(/^[`*\s]+|[`*\s]+$/g, "");
  return plainLabel && !name.endsWith(plainLabel) ? el("span", {}, nodes, " (", node, ")") : node;
}

/** A link where the address is one of the web or of mail; otherwise the label alone. */
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

function trimUrlEnd(address) {
  let end = address.length;
  while (end > 8 && ".,;:!?*_~)]}".includes(address[end - 1])) {
    const last = address[end - 1];
    if (last === ")" && address.slice(0, end).split("(").length >= address.slice(0, end).split(")").length) break;
    end--;
  }
  return address.slice(0, end);
}

function makeDelimiter(text, index, end) {
  const before = text[index - 1] ?? " ";
  const after = text[end] ?? " ";
  const isSpace = (character) => /\s/.test(character);
  const opens = !isSpace(after) && (!PUNCTUATION.test(after) || isSpace(before) || PUNCTUATION.test(before));
  const closes = !isSpace(before) && (!PUNCTUATION.test(before) || isSpace(after) || PUNCTUATION.test(after));
  const mark = text[index];
  const isInWord = mark === "_" && WORD.test(before) && WORD.test(after);
  return { mark, length: end - index, opens: opens && !isInWord, closes: closes && !isInWord };
}

function applyEmphasis(parts) {
  const openDelimiters = [];
  const output = [];
  for (const part of parts) {
    if (part.node) {
      output.push(part);
      continue;
    }
    if (part.closes) closeEmphasis(part, openDelimiters, output);
    if (part.length > 0) {
      output.push(part);
      if (part.opens && openDelimiters.length < MAX_OPEN) openDelimiters.push(part);
    }
  }
  return output.map((part) => part.node ?? document.createTextNode(part.mark.repeat(part.length)));
}

function closeEmphasis(part, openDelimiters, output) {
  while (part.length > 0) {
    const openerIndex = openDelimiters.findLastIndex((candidate) => candidate.mark === part.mark);
    if (openerIndex < 0) return;
    const opener = openDelimiters[openerIndex];
    const markCount = part.mark === "~" ? 2 : Math.min(2, opener.length, part.length);
    if (opener.length < markCount || part.length < markCount) return;
    const start = output.lastIndexOf(opener) + 1;
    const inner = output.splice(start).map((child) => child.node ?? document.createTextNode(child.mark.repeat(child.length)));
    const tag = part.mark === "~" ? "del" : markCount === 2 ? "strong" : "em";
    output.push({ node: el(tag, {}, inner) });
    opener.length -= markCount;
    part.length -= markCount;
    openDelimiters.length = opener.length > 0 ? openerIndex + 1 : openerIndex;
    if (opener.length === 0) output.splice(start - 1, 1);
  }
}
