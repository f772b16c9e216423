// Formulas, typeset by `typesetting.js`, which is fetched when the first one appears. What cannot be
// typeset stands as it was written. Whoever wrote a formula is not trusted: it is short, defines
// nothing, names no address, and waits its turn where there are many.

import { el, scrollable } from "./dom.js";

const LONGEST = 2000;
const DEEPEST = 60;
const MOST_KEPT = 500;
const SLICE_MILLISECONDS = 8;
const DEFINING = /\\(?:def|[gex]def|let|futurelet|(?:re)?newcommand|providecommand|newenvironment|global|long)(?![a-zA-Z])/;

const kept = new Map();
let waiting = [];
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
  else if (isFit(entry.tex)) {
    waiting.push(entry);
    if (waiting.length === 1) start();
  } else place.classList.add("raw");
  return place;
}

function isFit(tex) {
  if (!tex || tex.length > LONGEST || DEFINING.test(tex)) return false;
  let depth = 0;
  for (const letter of tex) {
    if (letter === "{") depth++;
    else if (letter === "}") depth--;
    if (depth > DEEPEST) return false;
  }
  return true;
}

async function start() {
  try {
    typesetting ??= import("./typesetting.js");
    setTimeout(work, 0, (await typesetting).typeset);
  } catch {
    // There is no connection: they stand as they were written, and the next one tries again.
    typesetting = null;
    waiting = [];
  }
}

/** Typeset some, and leave time for everything else. */
function work(typeset) {
  const until = performance.now() + SLICE_MILLISECONDS;
  let done = 0;
  while (done < waiting.length && performance.now() < until) {
    const entry = waiting[done++];
    // What was drawn anew meanwhile is typeset where it is now.
    if (!kept.has(entry.key)) keep(entry.key, typeset(entry));
    put(entry);
  }
  waiting.splice(0, done);
  if (waiting.length) setTimeout(work, 0, typeset);
}

function keep(key, drawn) {
  kept.set(key, drawn);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
}

function put({ place, key }) {
  const drawn = kept.get(key);
  if (drawn) place.replaceChildren(...drawn.cloneNode(true).childNodes);
  else place.classList.add("raw");
}
