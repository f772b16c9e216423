// The distribution of the values of a column, as a small drawing and in words.

import { el, plain } from "./dom.js";
import { tableWords } from "./later_words.js";

const WIDTH = 96, HEIGHT = 22, FEW = 1000;

/** @param {object | undefined} summary see `live_data_views.Summary` */
export function spread(summary) {
  if (!summary) return el("div", { class: "spread" });
  const gaps = summary.missing ? tableWords.missing(summary.missing, summary.is_sampled) : "";
  if (summary.bins.length) return drawn(summary.bins, tableWords.range(plain(summary.least), plain(summary.most)) + gaps);
  if (!summary.top.length) return el("div", { class: "spread muted" }, summary.missing ? tableWords.allMissing : "");
  // Of a large table only a part was looked at.
  const words = tableWords.distinct(summary.distinct, summary.is_sampled && summary.distinct > FEW) + gaps;
  if (summary.distinct > summary.top.length) return el("div", { class: "spread muted", title: words }, words);
  return drawn(summary.top.map(([, times]) => times), `${summary.top.map(([text]) => plain(text)).join(", ")}${gaps}`);
}

function drawn(bins, words) {
  return el("div", { class: "spread", title: words }, bars(bins, words));
}

function bars(bins, words) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const most = Math.max(...bins), wide = WIDTH / bins.length;
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": words, preserveAspectRatio: "none" }))
    svg.setAttribute(name, value);
  const path = document.createElementNS(space, "path");
  const tall = (times) => (times ? Math.max((times / most) * HEIGHT, 1) : 0);
  path.setAttribute("d", bins.map((times, place) => `M${(place * wide).toFixed(2)} ${HEIGHT}v${-tall(times).toFixed(2)}h${(wide - 0.8).toFixed(2)}V${HEIGHT}z`).join(""));
  svg.append(path);
  return svg;
}
