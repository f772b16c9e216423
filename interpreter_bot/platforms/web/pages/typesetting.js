// MathML of formulas, by Temml. Of what it makes nothing is taken that leads anywhere. Whoever wrote
// a formula is not trusted: it is short, defines nothing, names no address, and waits its turn where
// there are many.

import { styled } from "./dom.js";
import { kept, put } from "./formulas.js";
import temml from "./temml.js";

await styled("/temml.css");

const LONGEST = 2000;
const DEEPEST = 60;
const MAX_KEPT = 500;
const SLICE_MILLISECONDS = 8;
const DEFINING = /\\(?:def|[gex]def|let|futurelet|(?:re)?newcommand|providecommand|newenvironment|global|long)(?![a-zA-Z])/;
const FOREIGN = "a, img, iframe, script, [href], [src]";
const OPTIONS = { throwOnError: true, trust: false, strict: false, maxExpand: 200, maxSize: [20, 20] };

const waiting = [];

/** Typeset a formula a moment later. */
export function add(entry) {
  if (!isFit(entry.tex)) return entry.place.classList.add("raw");
  waiting.push(entry);
  if (waiting.length === 1) setTimeout(work);
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

/** Typeset some, and leave time for everything else. */
function work() {
  const until = performance.now() + SLICE_MILLISECONDS;
  let done = 0;
  while (done < waiting.length && performance.now() < until) {
    const entry = waiting[done++];
    // What was drawn anew meanwhile is typeset where it is now.
    if (!kept.has(entry.key)) keep(entry.key, typeset(entry));
    put(entry);
  }
  waiting.splice(0, done);
  if (waiting.length) setTimeout(work);
}

function keep(key, drawn) {
  kept.set(key, drawn);
  if (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value);
}

/** Typeset a formula; null where that cannot be done. */
function typeset({ tex, isDisplay }) {
  const drawn = document.createElement("span");
  try {
    temml.render(tex, drawn, { ...OPTIONS, displayMode: isDisplay });
  } catch {
    // No formula, or one that is not known: of errors of theirs, and of ours on what they sent.
    return null;
  }
  return drawn.querySelector(FOREIGN) ? null : drawn;
}
