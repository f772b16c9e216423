// MathML of formulas, by Temml. Of what it makes nothing is taken that leads anywhere. Whoever wrote
// a formula is not trusted: it is short, defines nothing, names no address, and waits its turn where
// there are many.

import { loadStyles } from "./dom.js";
import { typesetFormulas, showFormula } from "./formulas.js";
import temml from "./temml.js";

await loadStyles("/temml.css");

const MAX_CHARACTERS = 2000;
const MAX_DEPTH = 60;
const MAX_STORED = 500;
const SLICE_MILLISECONDS = 8;
const DEFINITIONS = /\\(?:def|[gex]def|let|futurelet|(?:re)?newcommand|providecommand|newenvironment|global|long)(?![a-zA-Z])/;
const FORBIDDEN_ELEMENTS = "a, img, iframe, script, [href], [src]";
const OPTIONS = { throwOnError: true, trust: false, strict: false, maxExpand: 200, maxSize: [20, 20] };

const queue = [];

/** Typeset a formula a moment later. */
export function queueFormula(entry) {
  if (!isAllowed(entry.tex)) return entry.element.classList.add("raw");
  queue.push(entry);
  if (queue.length === 1) setTimeout(typesetQueued);
}

function isAllowed(tex) {
  if (!tex || tex.length > MAX_CHARACTERS || DEFINITIONS.test(tex)) return false;
  let depth = 0;
  for (const character of tex) {
    if (character === "{") depth++;
    else if (character === "}") depth--;
    if (depth > MAX_DEPTH) return false;
  }
  return true;
}

/** Typeset some, and leave time for everything else. */
function typesetQueued() {
  const deadline = performance.now() + SLICE_MILLISECONDS;
  let count = 0;
  while (count < queue.length && performance.now() < deadline) {
    const entry = queue[count++];
    // What was drawn anew meanwhile is typeset where it is now.
    if (!typesetFormulas.has(entry.key)) storeFormula(entry.key, typeset(entry));
    showFormula(entry);
  }
  queue.splice(0, count);
  if (queue.length) setTimeout(typesetQueued);
}

function storeFormula(key, element) {
  typesetFormulas.set(key, element);
  if (typesetFormulas.size > MAX_STORED) typesetFormulas.delete(typesetFormulas.keys().next().value);
}

/** Typeset a formula; null where that cannot be done. */
function typeset({ tex, isDisplay }) {
  const element = document.createElement("span");
  try {
    temml.render(tex, element, { ...OPTIONS, displayMode: isDisplay });
  } catch {
    // No formula, or one that is not known: of errors of theirs, and of ours on what they sent.
    return null;
  }
  return element.querySelector(FORBIDDEN_ELEMENTS) ? null : element;
}
