// Colours of terminals: the style of text after an escape, and text drawn in a style. The sixteen
// named colours are the page's own; the browser checks the values of all others.

import { el } from "./dom.js";

const CUBE_LEVELS = [0, 95, 135, 175, 215, 255];
const FLAG_BY_CODE = { 1: "bold", 2: "dim", 3: "italic", 4: "under", 7: "inverse", 9: "struck" };
const FLAGS_ENDED_BY_CODE = { 21: ["bold"], 22: ["bold", "dim"], 23: ["italic"], 24: ["under"], 27: ["inverse"], 29: ["struck"] };

/** Return the style after an escape; null is no style. `parameters` stands between [ and m. */
export function applySgr(style, parameters) {
  const newStyle = { ...style };
  const codes = parameters.split(/[;:]/).map(Number);
  for (let index = 0; index < codes.length; index++) {
    const code = codes[index];
    const layer = code >= 100 || (code >= 40 && code < 50) ? "background" : "foreground";
    if (code === 0) for (const name of Object.keys(newStyle)) delete newStyle[name];
    else if (FLAG_BY_CODE[code]) newStyle[FLAG_BY_CODE[code]] = true;
    else if (FLAGS_ENDED_BY_CODE[code]) for (const name of FLAGS_ENDED_BY_CODE[code]) delete newStyle[name];
    else if (code === 39 || code === 49) delete newStyle[layer];
    else if (code === 38 || code === 48) {
      const isIndexed = codes[index + 1] === 5;
      newStyle[layer] = isIndexed ? paletteColour(codes[index + 2]) : rgb(codes.slice(index + 2, index + 5));
      index += isIndexed ? 2 : 4;
    } else if (code >= 30 && code < 48) newStyle[layer] = code % 10;
    else if (code >= 90 && code < 108) newStyle[layer] = (code % 10) + 8;
  }
  return Object.keys(newStyle).length ? newStyle : null;
}

function paletteColour(index) {
  if (index < 16) return index;
  if (!(index < 256)) return undefined;
  if (index >= 232) return rgb(Array(3).fill((index - 232) * 10 + 8));
  const cubeIndex = index - 16;
  return rgb([Math.floor(cubeIndex / 36), Math.floor(cubeIndex / 6) % 6, cubeIndex % 6].map((level) => CUBE_LEVELS[level]));
}

function rgb(channels) {
  return channels.length === 3 ? `rgb(${channels})` : undefined;
}

/** Return text in a style, as an element. */
export function styledSpan(text, style) {
  const classNames = Object.keys(style).filter((name) => style[name] === true).map((name) => `ansi-${name}`);
  const span = el("span", {}, text);
  const [foreground, background] = style.inverse ? [style.background, style.foreground] : [style.foreground, style.background];
  const colour = typeof foreground === "number" ? `var(--ansi-${foreground})` : foreground;
  if (typeof background === "number") {
    span.style.background = `color-mix(in srgb, var(--ansi-${background}) 16%, transparent)`;
    // Mixed half with the ink, each colour can be read on each background.
    span.style.color = `color-mix(in srgb, ${colour ?? "var(--ink)"}, var(--ink))`;
  } else if (background) {
    span.style.background = background;
    const [r, g, b] = background.match(/\d+/g);
    span.style.color = colour && foreground ? colour : 2.9 * r ** 2.2 + 9.9 * g ** 2.2 + b ** 2.2 > 488e3 ? "black" : "white";
  } else if (colour && !style.inverse) span.style.color = colour;
  span.className = classNames.join(" ");
  return span;
}
