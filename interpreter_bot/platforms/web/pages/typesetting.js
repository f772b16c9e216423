// MathML of formulas, by Temml. Of what it makes nothing is taken that leads anywhere.

import { styled } from "./dom.js";
import temml from "./temml.js";

await styled("/temml.css");

const FOREIGN = "a, img, iframe, script, [href], [src]";
const OPTIONS = { throwOnError: true, trust: false, strict: false, maxExpand: 200, maxSize: [20, 20] };

/** Typeset a formula; null where that cannot be done. */
export function typeset({ tex, isDisplay }) {
  const drawn = document.createElement("span");
  try {
    temml.render(tex, drawn, { ...OPTIONS, displayMode: isDisplay });
  } catch {
    // No formula, or one that is not known: of errors of theirs, and of ours on what they sent.
    return null;
  }
  return drawn.querySelector(FOREIGN) ? null : drawn;
}
