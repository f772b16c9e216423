// Inline elements of Markdown.

import { el } from "./dom.js";
import { formula } from "./formulas.js";

const DEEPEST = 6;
const LONGEST_LABEL = 1000;
const LONGEST_ADDRESS = 2000;
const MAX_OPEN = 64;
// Without the beginnings of formulas; other escapes keep their backslash.
const ESCAPED = /[#$&*+\-./<=>?@\\\]^_`{|}~"'%\n]|!(?=\[)/y;
const OPENING = /\\[([]|\${1,2}/y;
const CLOSING = { "\\(": "\\)", "\\[": "\\]", $: "$", $$: "$$" };
const LONGEST_FORMULA = 2000;
const MONEY = /^\d[\d.,]*\s(?!.*[\\^_=+*/<>])/s;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const BARE = /https?:\/\/[^\s<>"'`\\]{1,2000}/y;
const ANGLED = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
const DESTINATION = /\(\s{0,9}(?:<([^<>\n]{0,2000})>|((?:[^\s()\\]|\\[^]|\([^\s()]{0,500}\)){0,2000}))(?:\s{1,9}(?:"[^"]{0,500}"|'[^']{0,500}'))?\s{0,9}\)/y;
// Addresses of files in answers of models, which no browser can open.
const TO_FILE = /\(\s{0,9}<?(?:(?:sandbox|attachment):\/{0,3}(?:mnt\/data\/)?|(?:file:\/\/)?\/?mnt\/data\/)((?:[^()<>\n]|\([^()\n]{0,200}\)){1,500})>?\)/y;
const BARE_FILE = /sandbox:\/{0,3}(?:mnt\/data\/)?([^\s()<>[\]"'`]{1,500})/y;
const WORD = /[\p{L}\p{N}]/u;

/**
 * Give the nodes of a text.
 * @param {(name: string) => Node | null} fileNamed a link for code that names a file
 */
export function inline(text, fileNamed, depth = 0) {
  const parts = [];
  const closed = new Map();
  let plain = "";
  let at = 0;
  const flush = () => {
    if (plain) parts.push({ node: document.createTextNode(plain) });
    plain = "";
  };
  const push = (node, end) => {
    flush();
    parts.push({ node });
    at = end;
  };
  while (at < text.length) {
    const character = text[at];
    const found = character === "$" || character === "\\" ? formulaAt(text, at, closed) : null;
    if (found) {
      push(found.node, found.end);
    } else if (character === "\\" && matchAt(ESCAPED, text, at + 1)) {
      if (text[at + 1] === "\n") push(el("br"), at + 2);
      else (plain += text[at + 1]), (at += 2);
    } else if (character === "\n") {
      plain = plain.trimEnd();
      push(el("br"), at + 1);
    } else if (character === "`") {
      const [end, code] = codeAt(text, at, closed);
      if (code === null) (plain += text.slice(at, end)), (at = end);
      else push(fileNamed(code) ?? el("code", { dir: "ltr" }, code), end);
    } else if (character === "[" || (character === "!" && text[at + 1] === "[")) {
      const link = depth < DEEPEST ? linkAt(text, at, fileNamed, depth) : null;
      if (link) push(link.node, link.end);
      else (plain += character), at++;
    } else if (character === "<" && matchAt(ANGLED, text, at)) {
      const found = matchAt(ANGLED, text, at);
      push(linked(found[1], [found[1]]), at + found[0].length);
    } else if (character === "h" && !WORD.test(text[at - 1] ?? "") && matchAt(BARE, text, at)) {
      const address = withoutEnd(matchAt(BARE, text, at)[0]);
      push(linked(address, [address]), at + address.length);
    } else if (character === "s" && !WORD.test(text[at - 1] ?? "") && matchAt(BARE_FILE, text, at)) {
      const [whole, name] = matchAt(BARE_FILE, text, at);
      const end = /[.,;:!?*_]*$/.exec(name)[0].length;
      push(file(name.slice(0, name.length - end), fileNamed), at + whole.length - end);
    } else if (character === "*" || character === "_" || character === "~") {
      let end = at;
      while (text[end] === character) end++;
      flush();
      parts.push(delimiter(text, at, end));
      at = end;
    } else {
      plain += character;
      at++;
    }
  }
  flush();
  return emphasised(parts);
}

function matchAt(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

/** A formula: \(…\), \[…\], $$…$$, or $…$ that touches what is in it and is no sum of money. */
function formulaAt(text, at, closed) {
  const opening = matchAt(OPENING, text, at)?.[0];
  if (!opening) return null;
  const closing = CLOSING[opening];
  const from = at + opening.length;
  let end = closed.get(closing) ?? -1;
  if (end < from) {
    // Each text is searched once, however many formulas begin in it.
    end = text.indexOf(closing, from);
    if (end < 0) end = Infinity;
    closed.set(closing, end);
  }
  if (end - from > LONGEST_FORMULA) return null;
  const tex = text.slice(from, end);
  if (!tex.trim()) return null;
  const after = end + closing.length;
  if (opening === "$" && !isFormula(tex, text[at - 1] ?? "", text[after] ?? "")) return null;
  return { node: formula(tex, text.slice(at, after), opening === "\\[" || opening === "$$"), end: after };
}

function isFormula(tex, before, after) {
  return !/^\s|\s$|`|\\$/.test(tex) && !/[\p{L}\p{N}]/u.test(before) && !/\d/.test(after) && !MONEY.test(tex);
}

function codeAt(text, at, closed) {
  let start = at;
  while (text[start] === "`") start++;
  const length = start - at;
  // Where no run of that length followed once, none follows later.
  if (!closed.has(length))
    for (let end = start; end < text.length; ) {
      const tick = text.indexOf("`", end);
      if (tick < 0) break;
      end = tick;
      while (text[end] === "`") end++;
      if (end - tick === length) return [end, stripped(text.slice(start, tick))];
    }
  closed.set(length, true);
  return [start, null];
}

function stripped(code) {
  const flat = code.replace(/\n/g, " ");
  return flat.startsWith(" ") && flat.endsWith(" ") && flat.trim() ? flat.slice(1, -1) : flat;
}

function linkAt(text, at, fileNamed, depth) {
  const start = text[at] === "!" ? at + 2 : at + 1;
  let open = 1;
  let end = start;
  for (; end < text.length && end - start < LONGEST_LABEL; end++) {
    if (text[end] === "\\") end++;
    else if (text[end] === "[") open++;
    else if (text[end] === "]" && --open === 0) break;
  }
  if (text[end] !== "]" || text[end + 1] !== "(") return null;
  const ours = matchAt(TO_FILE, text, end + 1);
  const found = ours ?? matchAt(DESTINATION, text, end + 1);
  if (found === null) return null;
  const label = inline(text.slice(start, end), fileNamed, depth + 1);
  if (ours) return { node: file(ours[1], fileNamed, text.slice(start, end), label), end: end + 1 + ours[0].length };
  const address = (found[1] ?? found[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1");
  return { node: linked(address, label), end: end + 1 + found[0].length };
}

/** Name a file of the conversation, as the bot does in the last words: behind a label that says something else. */
function file(written, fileNamed, label = "", nodes = []) {
  let name = written.trim();
  try {
    name = decodeURIComponent(name);
  } catch {
    // A percent sign of its own.
  }
  const node = fileNamed(name) ?? el("code", { dir: "ltr" }, name);
  const words = label.replace(/^[`*\s]+|[`*\s]+$/g, "");
  return words && !name.endsWith(words) ? el("span", {}, nodes, " (", node, ")") : node;
}

/** A link where the address is one of the web or of mail; otherwise the label alone. */
function linked(address, label) {
  let target = null;
  try {
    target = address.length <= LONGEST_ADDRESS && /^[a-z]/i.test(address) ? new URL(address) : null;
  } catch {
    target = null;
  }
  if (target === null || !["http:", "https:", "mailto:"].includes(target.protocol)) return el("span", {}, label);
  return el("a", { href: target.href, title: target.href, target: "_blank", rel: "noopener noreferrer nofollow" }, label);
}

function withoutEnd(address) {
  let end = address.length;
  while (end > 8 && ".,;:!?*_~)]}".includes(address[end - 1])) {
    const last = address[end - 1];
    if (last === ")" && address.slice(0, end).split("(").length >= address.slice(0, end).split(")").length) break;
    end--;
  }
  return address.slice(0, end);
}

function delimiter(text, at, end) {
  const before = text[at - 1] ?? " ";
  const after = text[end] ?? " ";
  const isSpace = (one) => /\s/.test(one);
  const opens = !isSpace(after) && (!PUNCTUATION.test(after) || isSpace(before) || PUNCTUATION.test(before));
  const closes = !isSpace(before) && (!PUNCTUATION.test(before) || isSpace(after) || PUNCTUATION.test(after));
  const mark = text[at];
  const isInWord = mark === "_" && WORD.test(before) && WORD.test(after);
  return { mark, length: end - at, opens: opens && !isInWord, closes: closes && !isInWord };
}

function emphasised(parts) {
  const open = [];
  const out = [];
  for (const part of parts) {
    if (part.node) {
      out.push(part);
      continue;
    }
    if (part.closes) close(part, open, out);
    if (part.length > 0) {
      out.push(part);
      if (part.opens && open.length < MAX_OPEN) open.push(part);
    }
  }
  return out.map((part) => part.node ?? document.createTextNode(part.mark.repeat(part.length)));
}

function close(part, open, out) {
  while (part.length > 0) {
    const place = open.findLastIndex((one) => one.mark === part.mark);
    if (place < 0) return;
    const opener = open[place];
    const used = part.mark === "~" ? 2 : Math.min(2, opener.length, part.length);
    if (opener.length < used || part.length < used) return;
    const start = out.lastIndexOf(opener) + 1;
    const inner = out.splice(start).map((one) => one.node ?? document.createTextNode(one.mark.repeat(one.length)));
    const tag = part.mark === "~" ? "del" : used === 2 ? "strong" : "em";
    out.push({ node: el(tag, {}, inner) });
    opener.length -= used;
    part.length -= used;
    open.length = opener.length > 0 ? place + 1 : place;
    if (opener.length === 0) out.splice(start - 1, 1);
  }
}
