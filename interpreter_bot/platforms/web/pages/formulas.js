// Formulas, typeset by `typesetting.js`, which is loaded when the first one appears. A formula that
// cannot be typeset is shown as it was written.

import { el, makeScrollable } from "./dom.js";

/** Typeset formulas, by their text; null for one that cannot be typeset. */
export const typesetFormulas = new Map();
let typesetting = null;

/** Return a formula, typeset a moment later, or at once if it was before; `source` has its delimiters. */
export function formula(tex, source, isDisplay) {
  const element = el("span", { class: isDisplay ? "math display" : "math", dir: "ltr", title: source.slice(0, 500) }, source);
  if (isDisplay) makeScrollable(element);
  const entry = { element, tex: tex.trim(), isDisplay, key: `${isDisplay}${tex.trim()}` };
  if (typesetFormulas.has(entry.key)) showFormula(entry);
  else requestTypesetting(entry);
  return element;
}

async function requestTypesetting(entry) {
  try {
    typesetting ??= import("./typesetting.js");
    (await typesetting).queueFormula(entry);
  } catch {
    // Without a connection the formula stays as it was written, and the next one tries again.
    typesetting = null;
  }
}

export function showFormula({ element, key }) {
  const formulaElement = typesetFormulas.get(key);
  if (formulaElement) element.replaceChildren(...formulaElement.cloneNode(true).childNodes);
  else element.classList.add("raw");
}
