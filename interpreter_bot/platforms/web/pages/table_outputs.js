// Tables that code showed: the rows that came with the output, and buttons for the rest.

import { copyButton, el, makeScrollable, smallButton } from "./dom.js";
import { columnCount, rowCount, tableWords } from "./later_words.js";
import { buttonWords } from "./words.js";

const NUMERIC_TEXT = /^\s*[-+]?(?:[\d,. ]+(?:e[-+]?\d+)?%?|nan|inf|<NA>|None)\s*$/i;
const MAX_SHORT_CHARACTERS = 40;

export function tableFigure(event, sendAction) {
  const isNumericColumn = event.columns.map((_, column) => event.rows.length > 0 && event.rows.every((row) => NUMERIC_TEXT.test(row[column] ?? "")));
  const alignment = (column) => (isNumericColumn[column] && column >= event.index_count ? "end" : "start");
  const cell = (row, column) =>
    column < event.index_count
      ? el("th", { scope: "row", dir: "auto" }, expandableText(row[column]))
      : el("td", { class: alignment(column), dir: "auto" }, expandableText(row[column]));
  // An empty heading becomes a plain cell.
  const head = el("tr", {}, event.columns.map((name, column) =>
    name ? el("th", { scope: "col", class: alignment(column), dir: "auto" }, expandableText(name)) : el("td", {})));
  const rows = event.rows.map((row) => el("tr", {}, row.map((_, column) => cell(row, column))));
  const toText = () => [event.columns, ...event.rows].map((row) => row.join("\t")).join("\n");
  const staticTable = makeScrollable(el("div", { class: "wide-table" }, el("table", { class: "data" }, el("thead", {}, head), el("tbody", {}, rows))));
  const sizeLabel = el("span", { class: "muted" }, sizeText(event));
  const copyTool = copyButton(toText);
  const tools = el("div", { class: "output-tools" }, sizeLabel, copyTool);
  tools.append(...(event.handle ? liveTableButtons(event, { staticTable, sizeLabel, copyTool, sendAction }) : fullScreenButtons(() => staticTable.requestFullscreen())));
  return el("figure", {}, staticTable, tools);
}

/** Return the button that gives a table the whole screen; iPhones do so for films only, and get none. */
function fullScreenButtons(onclick) {
  return document.fullscreenEnabled ? [smallButton(buttonWords.fullScreen, "full", onclick)] : [];
}

/** Return the buttons for a table of which Python has more rows or columns. */
function liveTableButtons(event, { staticTable, sizeLabel, copyTool, sendAction }) {
  const download = (suffix) => () => dispatchEvent(new CustomEvent("table", { detail: { table: event.handle, suffix } }));
  const exploreButton = smallButton(buttonWords.explore, "filter", openLiveTable);
  const fullScreen = fullScreenButtons(async () => (await openLiveTable()).element.requestFullscreen());
  async function openLiveTable() {
    const { LiveTable } = await import("./tables.js");
    const liveTable = new LiveTable(event, { sendAction, onGone: closeLiveTable, close: () => closeLiveTable("") });
    liveTable.element.addEventListener("keydown", (event) => event.key === "Escape" && (event.stopPropagation(), closeLiveTable("")));
    staticTable.replaceWith(liveTable.element);
    for (const element of hiddenWhileLive) element.hidden = true;
    liveTable.search.focus();
    return liveTable;
    function closeLiveTable(sentence) {
      liveTable.element.replaceWith(staticTable);
      for (const element of hiddenWhileLive) element.hidden = false;
      sizeLabel.textContent = [sizeText(event), sentence].filter(Boolean).join(". ");
      exploreButton.focus();
    }
  }
  const hiddenWhileLive = [exploreButton, ...fullScreen, sizeLabel, copyTool];
  return [exploreButton, ...fullScreen, smallButton(tableWords.asCsv, "down", download("csv")), smallButton(tableWords.asParquet, "down", download("parquet"))];
}

/** Return a cell's text; a long one is a button that unfolds it. */
function expandableText(text) {
  if (text.length <= MAX_SHORT_CHARACTERS && !text.includes("\n")) return text;
  const button = el("button", { type: "button", class: "long", "aria-expanded": "false", title: tableWords.showCell, onclick: toggle }, text);
  function toggle() {
    button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") === "false"));
  }
  return button;
}

/** Say how large a table is, and which part of it is here. */
function sizeText({ columns, rows, row_count: allRows, column_count: allColumns, index_count: indexCount }) {
  const parts = [];
  if (rows.length < allRows) parts.push(rowCount(rows.length));
  if (columns.length - indexCount < allColumns) parts.push(columnCount(columns.length - indexCount));
  const size = `${rowCount(allRows)} × ${columnCount(allColumns)}`;
  return parts.length ? size + tableWords.firstShown(parts) : size;
}
