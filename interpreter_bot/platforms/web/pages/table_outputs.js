// Tables that code showed: the part of each that came with it, and the way to the rest.

import { copier, el, icon, scrollable } from "./dom.js";
import { columnCount, rowCount, tableWords } from "./later_words.js";
import { buttonWords } from "./words.js";

const NUMERIC = /^\s*[-+]?(?:[\d,. ]+(?:e[-+]?\d+)?%?|nan|inf|<NA>|None)\s*$/i;
const SHORT = 40;

export function table(event, say) {
  const numeric = event.columns.map((_, place) => event.rows.length > 0 && event.rows.every((row) => NUMERIC.test(row[place] ?? "")));
  const side = (place) => (numeric[place] && place >= event.index_count ? "end" : "start");
  const cell = (row, place) =>
    place < event.index_count
      ? el("th", { scope: "row", dir: "auto" }, opened(row[place]))
      : el("td", { class: side(place), dir: "auto" }, opened(row[place]));
  // A heading without words is none.
  const head = el("tr", {}, event.columns.map((name, place) =>
    name ? el("th", { scope: "col", class: side(place), dir: "auto" }, opened(name)) : el("td", {})));
  const rows = event.rows.map((row) => el("tr", {}, row.map((_, place) => cell(row, place))));
  const asText = () => [event.columns, ...event.rows].map((row) => row.join("\t")).join("\n");
  const still = scrollable(el("div", { class: "wide-table" }, el("table", { class: "data" }, el("thead", {}, head), el("tbody", {}, rows))));
  const size = el("span", { class: "muted" }, extent(event));
  const copy = copier(asText);
  const said = el("div", { class: "output-tools" }, size, copy);
  const full = button(buttonWords.fullScreen, "full", async () => (await import("./rooms.js")).enlargeStill(still, full, size.textContent));
  said.append(...(event.handle ? ofWhole(event, { still, size, copy, say }) : [full]));
  return el("figure", {}, still, said);
}

function button(words, glyph, onclick) {
  return el("button", { type: "button", class: "small", onclick }, icon(glyph), el("span", {}, words));
}

/** What can be done with a table of which Python has more, as long as it has it. */
function ofWhole(event, { still, size, copy, say }) {
  const save = (suffix) => () => dispatchEvent(new CustomEvent("table", { detail: { table: event.handle, suffix } }));
  const explore = button(buttonWords.explore, "filter", open);
  const full = button(buttonWords.fullScreen, "full", async () => (await open()).enlarge());
  async function open() {
    const { LiveTable } = await import("./tables.js");
    const live = new LiveTable(event, { say, gone, close: () => gone("") });
    live.element.addEventListener("keydown", (pressed) => pressed.key === "Escape" && !live.room && (pressed.stopPropagation(), gone("")));
    still.replaceWith(live.element);
    for (const one of small) one.hidden = true;
    live.search.focus();
    return live;
    function gone(sentence) {
      live.room?.close();
      live.element.replaceWith(still);
      for (const one of small) one.hidden = false;
      size.textContent = [extent(event), sentence].filter(Boolean).join(". ");
      explore.focus();
    }
  }
  const small = [explore, full, size, copy];
  return [explore, full, button(tableWords.asCsv, "down", save("csv")), button(tableWords.asParquet, "down", save("parquet"))];
}

/** A long text of a cell stands on one line until somebody wants to read it. */
function opened(text) {
  if (text.length <= SHORT && !text.includes("\n")) return text;
  const button = el("button", { type: "button", class: "long", "aria-expanded": "false", title: tableWords.showCell, onclick: turn }, text);
  function turn() {
    button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") === "false"));
  }
  return button;
}

/** Say how large a table is, and which part of it is here. */
function extent({ columns, rows, row_count: allRows, column_count: allColumns, index_count: index }) {
  const parts = [];
  if (rows.length < allRows) parts.push(rowCount(rows.length));
  if (columns.length - index < allColumns) parts.push(columnCount(columns.length - index));
  const size = `${rowCount(allRows)} × ${columnCount(allColumns)}`;
  return parts.length ? size + tableWords.firstShown(parts) : size;
}
