// MathML of formulas, by Temml. Formulas are not trusted: they must be short and define nothing, and
// a result with a link or an address is not shown. Many formulas are typeset in slices of time, so
// that the page stays responsive.

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
    // A formula that was drawn several times is typeset once.
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

/** Return a typeset formula; null if it cannot be typeset. */
function typeset({ tex, isDisplay }) {
  const element = document.createElement("span");
  try {
    temml.render(tex, element, { ...OPTIONS, displayMode: isDisplay });
  } catch {
    // Temml raises an error for anything that it does not know.
    return null;
  }
  return element.querySelector(FORBIDDEN_ELEMENTS) ? null : element;
}
