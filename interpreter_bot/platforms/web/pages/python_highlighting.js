// Colours for Python. Each pattern takes a token at once and never goes back, so that the time is
// in proportion to the code, whoever wrote it.

const KEYWORDS = new Set(
  ("False None True and as assert async await break class continue def del elif else except finally for from " +
    "global if import in is lambda nonlocal not or pass raise return try while with yield match case").split(" "),
);
const BUILTINS = new Set(
  ("abs all any bool bytes dict enumerate filter float format getattr hasattr input int isinstance iter len list " +
    "map max min next object open print range repr reversed round set setattr sorted str sum super tuple type " +
    "zip display self cls").split(" "),
);
const MAX_CHARACTERS = 200_000;

const TOKEN = new RegExp(
  [
    /(?<comment>#[^\n]*)/,
    /(?<string>[rbfuRBFU]{0,2}(?:"""(?:[^"\\]|\\[^]|"(?!""))*(?:"""|$)|'''(?:[^'\\]|\\[^]|'(?!''))*(?:'''|$)|"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?))/,
    /(?<number>\b(?:0[xob][\da-f_]+|\d[\d_]*(?:\.[\d_]*)?(?:e[+-]?\d+)?j?)\b|\.\d[\d_]*)/,
    /(?<decorator>@[\p{L}_][\p{L}\d_.]*)/,
    /(?<name>[\p{L}_][\p{L}\p{N}_]*)/,
    /(?<other>[^]?)/,
  ]
    .map((pattern) => pattern.source)
    .join("|"),
  "yiu",
);

/** Return code as coloured nodes. */
export function highlightPython(code) {
  const fragment = document.createDocumentFragment();
  if (code.length > MAX_CHARACTERS) {
    fragment.append(code);
    return fragment;
  }
  let plainText = "";
  let previousName = "";
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < code.length) {
    const match = TOKEN.exec(code);
    const kind = match === null ? null : tokenKind(match.groups, previousName, code, TOKEN.lastIndex);
    const text = match === null ? code[TOKEN.lastIndex++] : match[0];
    if (match?.groups.name) previousName = text;
    else if (text.trim()) previousName = "";
    if (kind === null) {
      plainText += text;
      continue;
    }
    if (plainText) fragment.append(plainText);
    plainText = "";
    const span = document.createElement("span");
    span.className = `py-${kind}`;
    span.textContent = text;
    fragment.append(span);
  }
  fragment.append(plainText);
  return fragment;
}

function tokenKind(groups, previousName, code, end) {
  if (groups.comment) return "comment";
  if (groups.string) return "string";
  if (groups.number) return "number";
  if (groups.decorator) return "call";
  if (!groups.name) return null;
  if (KEYWORDS.has(groups.name)) return "keyword";
  if (previousName === "def" || previousName === "class") return "call";
  if (BUILTINS.has(groups.name)) return "builtin";
  return code[end] === "(" ? "call" : null;
}
