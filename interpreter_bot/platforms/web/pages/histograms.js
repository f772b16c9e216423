// The distribution of the values of a column, as a small drawing and in words.

import { el, cleanText } from "./dom.js";
import { tableWords } from "./later_words.js";

const WIDTH_PIXELS = 96, HEIGHT_PIXELS = 22, MAX_EXACT_DISTINCT = 1000;

/** Draw a column's `live_data_views.Summary`; undefined if it is not here yet. */
export function histogram(summary) {
  if (!summary) return el("div", { class: "spread" });
  const missingWords = summary.missing ? tableWords.missing(summary.missing, summary.is_sampled) : "";
  if (summary.bins.length) return histogramBox(summary.bins, tableWords.range(cleanText(summary.minimum), cleanText(summary.maximum)) + missingWords);
  if (!summary.top.length) return el("div", { class: "spread muted" }, summary.missing ? tableWords.allMissing : "");
  // Only a sample of a large table is counted.
  const words = tableWords.distinct(summary.distinct, summary.is_sampled && summary.distinct > MAX_EXACT_DISTINCT) + missingWords;
  if (summary.distinct > summary.top.length) return el("div", { class: "spread muted", title: words }, words);
  return histogramBox(summary.top.map(([, count]) => count), `${summary.top.map(([text]) => cleanText(text)).join(", ")}${missingWords}`);
}

function histogramBox(bins, words) {
  return el("div", { class: "spread", title: words }, svgBars(bins, words));
}

function svgBars(bins, words) {
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  const maxCount = Math.max(...bins), barPixels = WIDTH_PIXELS / bins.length;
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${WIDTH_PIXELS} ${HEIGHT_PIXELS}`, width: WIDTH_PIXELS, height: HEIGHT_PIXELS, role: "img", "aria-label": words, preserveAspectRatio: "none" }))
    svg.setAttribute(name, value);
  const path = document.createElementNS(namespace, "path");
  const barHeight = (count) => (count ? Math.max((count / maxCount) * HEIGHT_PIXELS, 1) : 0);
  path.setAttribute("d", bins.map((count, index) => `M${(index * barPixels).toFixed(2)} ${HEIGHT_PIXELS}v${-barHeight(count).toFixed(2)}h${(barPixels - 0.8).toFixed(2)}V${HEIGHT_PIXELS}z`).join(""));
  svg.append(path);
  return svg;
}
