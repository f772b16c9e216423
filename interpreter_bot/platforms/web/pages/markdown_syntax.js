// Markdown as tokens, by markdown-it, with formulas and with links to files of the conversation.

import MarkdownIt from "./markdown_it.js";

// Without the beginnings of formulas; other escapes keep their backslash.
const ESCAPED = /[#$&*+\-./<=>?@\\\]^_`{|}~"'%\n]|!(?=\[)/y;
const OPENING = /\\[([]|\${1,2}/y;
const CLOSING = { "\\(": "\\)", "\\[": "\\]", $: "$", $$: "$$" };
const MONEY = /^\d[\d.,]*\s(?!.*[\\^_=+*/<>])/s;
const MAX_FORMULA_CHARACTERS = 2000;
const FORMULA_START = /^(?:(\$\$|\\\[)|\\begin\{((?:align|alignat|aligned|cases|eqnarray|equation|gather|gathered|multline|split|[bpvBV]?matrix)\*?)\})/;
const MAX_FORMULA_LINES = 200;
// Addresses of files in answers of models, which no browser can open.
const HAS_FILES = /\]\(\s{0,9}<?(?:sandbox:|attachment:|file:|\/?mnt\/)/;
const FILE_DESTINATION = /\(\s{0,9}<?(?:(?:sandbox|attachment):\/{0,3}(?:mnt\/data\/)?|(?:file:\/\/)?\/?mnt\/data\/)((?:[^()<>\n]|\([^()\n]{0,200}\)){1,500})>?\)/y;
// Without limits, a few kilobytes could take the parser minutes, or become millions of cells.
const MAX_STEPS = 400_000;
const MAX_TOKENS = 250_000;

const parser = new MarkdownIt({ breaks: true, linkify: true });
// Lines that are indented are no code, a line of dashes is a rule, and no line is left out.
parser.disable(["code", "lheading", "reference"]);
parser.linkify.add("ftp:", null).add("//", null).add("mailto:", null);
// The page decides which addresses become links.
parser.validateLink = () => true;
parser.normalizeLink = parser.normalizeLinkText = (address) => address;
parser.inline.ruler.at("escape", escape);
parser.inline.ruler.before("escape", "formula", formula);
parser.inline.ruler.before("link", "file_link", fileLink);
parser.block.ruler.before("fence", "formula", formulaBlock, { alt: ["paragraph", "blockquote", "list"] });
// The first rules are called at each step.
parser.block.ruler.before("table", "cost", checkCost, { alt: ["paragraph", "blockquote", "list"] });
parser.inline.ruler.before("text", "cost", checkCost);

/** Steps since the last call of `parseBlocks`, with which each drawing begins. */
let stepCount = 0;

/** Return the tokens of a text's blocks; text in blocks is parsed when it is drawn. A text that takes too long becomes code. */
export function parseBlocks(text) {
  stepCount = 0;
  const code = Object.assign(new MarkdownIt.Token("fence", "code", 0), { content: text, map: [0, text.split("\n").length] });
  return parseWith(parser.block, text, code);
}

export function parseInline(text) {
  return parseWith(parser.inline, text, Object.assign(new MarkdownIt.Token("text", "", 0), { content: text }));
}

function parseWith(parserPart, text, unparsed) {
  const tokens = [];
  try {
    parserPart.parse(text, parser, {}, tokens);
  } catch (error) {
    if (!(error instanceof CostError)) throw error;
    return [unparsed];
  }
  return tokens;
}

class CostError extends Error {}

function checkCost({ tokens }) {
  if (++stepCount > MAX_STEPS || tokens.length > MAX_TOKENS) throw new CostError();
  return false;
}

function matchAt(pattern, text, index) {
  pattern.lastIndex = index;
  return pattern.exec(text);
}

function escape(state, isSilent) {
  if (state.src[state.pos] !== "\\" || !matchAt(ESCAPED, state.src, state.pos + 1)) return false;
  const character = state.src[state.pos + 1];
  if (!isSilent && character === "\n") state.push("hardbreak", "br", 0);
  else if (!isSilent) state.pending += character;
  state.pos += 2;
  return true;
}

/** A formula: \(…\), \[…\], $$…$$, or $…$ that touches what is in it and is no sum of money. */
function formula(state, isSilent) {
  const { src: text, pos } = state;
  const opening = matchAt(OPENING, text, pos)?.[0];
  if (!opening) return false;
  const closing = CLOSING[opening];
  const start = pos + opening.length;
  // Each text is searched once, however many formulas begin in it.
  state.closingIndexes ??= new Map();
  let end = state.closingIndexes.get(closing) ?? -1;
  if (end < start) {
    end = text.indexOf(closing, start);
    if (end < 0) end = Infinity;
    state.closingIndexes.set(closing, end);
  }
  const after = end + closing.length;
  if (end - start > MAX_FORMULA_CHARACTERS || after > state.posMax) return false;
  const tex = text.slice(start, end);
  if (!tex.trim() || (opening === "$" && !isFormula(tex, text[pos - 1] ?? "", text[after] ?? ""))) return false;
  if (!isSilent) Object.assign(state.push("formula", "", 0), { content: tex, markup: text.slice(pos, after), meta: { isDisplay: opening === "\\[" || opening === "$$" } });
  state.pos = after;
  return true;
}

function isFormula(tex, before, after) {
  return !/^\s|\s$|`|\\$/.test(tex) && !/[\p{L}\p{N}]/u.test(before) && !/\d/.test(after) && !MONEY.test(tex);
}

/** A formula on lines of its own. */
function formulaBlock(state, startLine, endLine, isSilent) {
  const lineAt = (line) => state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]);
  const opening = FORMULA_START.exec(lineAt(startLine));
  if (!opening || isSilent) return Boolean(opening);
  const [whole, mark, name] = opening;
  const closing = mark ? CLOSING[mark] : `\\end{${name}}`;
  const lines = [];
  for (let line = startLine; line < Math.min(endLine, startLine + MAX_FORMULA_LINES) && (line === startLine || state.sCount[line] >= state.blkIndent); line++) {
    lines.push(lineAt(line));
    const closingIndex = lines.at(-1).indexOf(closing, line === startLine ? whole.length : 0);
    if (closingIndex < 0) continue;
    // If text follows, it is a paragraph that begins with a formula.
    if (!/^[\s.,;]*$/.test(lines.at(-1).slice(closingIndex + closing.length))) return false;
    const source = lines.join("\n").trim();
    const content = mark ? source.slice(mark.length, source.lastIndexOf(closing)) : source;
    Object.assign(state.push("formula_block", "", 0), { content, markup: source, map: [startLine, line + 1] });
    state.line = line + 1;
    return true;
  }
  return false;
}

/** A link or picture whose address names a file; such names may contain spaces and parentheses. */
function fileLink(state, isSilent) {
  const start = state.pos + (state.src[state.pos] === "!");
  if (state.src[start] !== "[") return false;
  // Each text is searched once, however many labels begin in it.
  state.hasFiles ??= HAS_FILES.test(state.src);
  if (!state.hasFiles) return false;
  const end = parser.helpers.parseLinkLabel(state, start, false);
  const match = end < 0 ? null : matchAt(FILE_DESTINATION, state.src, end + 1);
  if (!match) return false;
  if (!isSilent) Object.assign(state.push("file_link", "", 0), { content: match[1], meta: { label: state.src.slice(start + 1, end) } });
  state.pos = end + 1 + match[0].length;
  return true;
}
