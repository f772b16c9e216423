// The columns of the tables that are loaded: their names, types, and a first value.

import { el, cleanText } from "./dom.js";
import { readTable } from "./kernel_lookups.js";
import { tableWords, variableWords } from "./later_words.js";
import { pythonWords } from "./words.js";

const PAGE_COLUMNS = 40;
const MAX_COLUMNS = 200;
let lastDrawing = 0;

/** Draw the columns of all variables that are tables; returns whether Python was busy. */
export async function draw(body, { variables, problem, is_busy: isBusy }, { sendAction }, { isFresh }) {
  const drawingNumber = ++lastDrawing;
  const tables = variables.filter(({ handle }) => handle);
  if (isFresh) body.replaceChildren(el("p", { class: "muted", role: "status" }, problem || pythonWords.asked));
  if (problem) return isBusy;
  const sections = [];
  for (const table of tables) {
    const columns = await loadColumns(table, sendAction);
    // Meanwhile another tab may have been opened, or the columns drawn again.
    if (drawingNumber !== lastDrawing || body.dataset.tab !== "schema") return false;
    if (columns.is_busy) return true;
    sections.push(tableSection(table, columns));
  }
  const closedNames = new Set([...body.querySelectorAll("details:not([open])")].map((section) => section.dataset.variable));
  for (const section of sections) section.open = !closedNames.has(section.dataset.variable);
  body.replaceChildren(...(sections.length ? sections : [el("p", { class: "muted" }, variableWords.noTables)]));
  return false;
}

/** Ask for the columns of a table and its first row; returns {columns, total}, or a problem of `readTable`. */
async function loadColumns({ handle }, sendAction) {
  const columns = [];
  let total = 1;
  while (columns.length < Math.min(total, MAX_COLUMNS)) {
    const page = await readTable(sendAction, handle, { rows: [0, 1], columns: [columns.length, PAGE_COLUMNS], sort: null, search: "", filters: [] });
    if (page.problem) return page;
    total = page.column_count;
    const startColumn = columns.length;
    columns.push(...page.columns.map((column, offset) => ({ ...column, isIndex: startColumn + offset < page.index_count, value: page.rows[0]?.[offset] ?? "" })));
    if (!page.columns.length) break;
  }
  return { columns, total };
}

function tableSection({ name, shape }, { columns = [], total, problem }) {
  const row = ({ name: title, dtype, isIndex, value }) =>
    el("tr", {}, el("th", { scope: "row", dir: "auto" }, cleanText(title) || (isIndex ? tableWords.index : variableWords.noName)), el("td", {}, cleanText(dtype)), el("td", { class: "value-line", dir: "auto" }, cleanText(value)));
  const head = [variableWords.column, variableWords.type, variableWords.firstValue].map((heading) => el("th", { scope: "col" }, heading));
  return el("details", { class: "schema", "data-variable": name },
    el("summary", {}, el("code", {}, cleanText(name)), " ", el("span", { class: "muted" }, shape.map((length) => length.toLocaleString("en")).join(" × "))),
    problem ? el("p", { class: "notice" }, problem) : el("table", { class: "columns" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, columns.map(row))),
    total > columns.length ? el("p", { class: "muted" }, variableWords.moreColumns(total - columns.length)) : null);
}
