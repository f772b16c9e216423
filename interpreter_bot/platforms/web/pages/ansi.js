// Colours of terminals: what an escape changes about how text looks, and text that looks so. The
// sixteen with names are the page's own; of others the values, which the browser checks.

import { el } from "./dom.js";

const STEPS = [0, 95, 135, 175, 215, 255];
const FLAGS = { 1: "bold", 2: "dim", 3: "italic", 4: "under", 7: "inverse", 9: "struck" };
const ENDS = { 21: ["bold"], 22: ["bold", "dim"], 23: ["italic"], 24: ["under"], 27: ["inverse"], 29: ["struck"] };

/** Give the style after an escape; null is none. `parameters` is what stands between [ and m. */
export function restyled(style, parameters) {
  const next = { ...style };
  const codes = parameters.split(/[;:]/).map(Number);
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at];
    const place = code >= 100 || (code >= 40 && code < 50) ? "back" : "fore";
    if (code === 0) for (const name of Object.keys(next)) delete next[name];
    else if (FLAGS[code]) next[FLAGS[code]] = true;
    else if (ENDS[code]) for (const name of ENDS[code]) delete next[name];
    else if (code === 39 || code === 49) delete next[place];
    else if (code === 38 || code === 48) {
      const isIndexed = codes[at + 1] === 5;
      next[place] = isIndexed ? indexed(codes[at + 2]) : rgb(codes.slice(at + 2, at + 5));
      at += isIndexed ? 2 : 4;
    } else if (code >= 30 && code < 48) next[place] = code % 10;
    else if (code >= 90 && code < 108) next[place] = (code % 10) + 8;
  }
  return Object.keys(next).length ? next : null;
}

function indexed(number) {
  if (number < 16) return number;
  if (!(number < 256)) return undefined;
  if (number >= 232) return rgb(Array(3).fill((number - 232) * 10 + 8));
  const place = number - 16;
  return rgb([Math.floor(place / 36), Math.floor(place / 6) % 6, place % 6].map((step) => STEPS[step]));
}

function rgb(values) {
  return values.length === 3 ? `rgb(${values})` : undefined;
}

/** Text of a style, as an element. */
export function dyed(text, style) {
  const names = Object.keys(style).filter((name) => style[name] === true).map((name) => `ansi-${name}`);
  const span = el("span", {}, text);
  const [fore, back] = style.inverse ? [style.back, style.fore] : [style.fore, style.back];
  const colour = typeof fore === "number" ? `var(--ansi-${fore})` : fore;
  if (typeof back === "number") {
    span.style.background = `color-mix(in srgb, var(--ansi-${back}) 16%, transparent)`;
    // Halfway to the ink each can be read on each.
    span.style.color = `color-mix(in srgb, ${colour ?? "var(--ink)"}, var(--ink))`;
  } else if (back) {
    span.style.background = back;
    const [r, g, b] = back.match(/\d+/g);
    span.style.color = colour && fore ? colour : 2.9 * r ** 2.2 + 9.9 * g ** 2.2 + b ** 2.2 > 488e3 ? "black" : "white";
  } else if (colour && !style.inverse) span.style.color = colour;
  span.className = names.join(" ");
  return span;
}
