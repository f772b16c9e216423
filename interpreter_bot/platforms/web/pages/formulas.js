// Formulas, typeset by `typesetting.js`, which is fetched when the first one appears. What cannot be
// typeset stands as it was written.

import { el, scrollable } from "./dom.js";

/** What was typeset, by its text; null for what cannot be. */
export const kept = new Map();
let typesetting = null;

/**
 * Give a formula; it is typeset a moment later, or at once where it was before.
 * @param {string} tex without its delimiters
 * @param {string} written with them
 */
export function formula(tex, written, isDisplay) {
  const place = el("span", { class: isDisplay ? "math display" : "math", dir: "ltr", title: written.slice(0, 500) }, written);
  if (isDisplay) scrollable(place);
  const entry = { place, tex: tex.trim(), isDisplay, key: `${isDisplay}${tex.trim()}` };
  if (kept.has(entry.key)) put(entry);
  else typeset(entry);
  return place;
}

async function typeset(entry) {
  try {
    typesetting ??= import("./typesetting.js");
    (await typesetting).add(entry);
  } catch {
    // There is no connection: it stands as it was written, and the next one tries again.
    typesetting = null;
  }
}

export function put({ place, key }) {
  const drawn = kept.get(key);
  if (drawn) place.replaceChildren(...drawn.cloneNode(true).childNodes);
  else place.classList.add("raw");
}
