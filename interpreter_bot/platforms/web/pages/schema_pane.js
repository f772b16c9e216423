// The columns of the tables that are loaded: their names, types, and a first value.

import { el, plain } from "./dom.js";
import { look } from "./kernel_lookups.js";
import { tableWords, variableWords } from "./later_words.js";
import { pythonWords } from "./words.js";

const PAGE = 40;
const MAX_COLUMNS = 200;
let drawing = 0;

/**
 * Draw the columns of all variables that are tables.
 * @param {{variables: object[], problem: string}} told
 * @param {{isAnother: boolean}} wanted whether nothing of them is there yet
 * @returns whether Python was busy, and is to be asked again
 */
export async function draw(body, { variables, problem, is_busy: isBusy }, { say }, { isAnother }) {
  const number = ++drawing;
  const tables = variables.filter(({ handle }) => handle);
  if (isAnother) body.replaceChildren(el("p", { class: "muted", role: "status" }, problem || pythonWords.asked));
  if (problem) return isBusy;
  const sections = [];
  for (const table of tables) {
    const found = await columnsOf(table, say);
    // Meanwhile somebody may look elsewhere, or code may have run.
    if (number !== drawing || body.dataset.tab !== "schema") return false;
    if (found.is_busy) return true;
    sections.push(section(table, found));
  }
  const closed = new Set([...body.querySelectorAll("details:not([open])")].map((one) => one.dataset.variable));
  for (const one of sections) one.open = !closed.has(one.dataset.variable);
  body.replaceChildren(...(sections.length ? sections : [el("p", { class: "muted" }, variableWords.noTables)]));
  return false;
}

/** Ask for the columns of a table and its first row; gives {columns, total}, or what `look` gives of a problem. */
async function columnsOf({ handle }, say) {
  const columns = [];
  let total = 1;
  while (columns.length < Math.min(total, MAX_COLUMNS)) {
    const page = await look(say, handle, { rows: [0, 1], columns: [columns.length, PAGE], sort: null, search: "", filters: [] });
    if (page.problem) return page;
    total = page.column_count;
    const left = columns.length;
    columns.push(...page.columns.map((column, place) => ({ ...column, isIndex: left + place < page.index_count, value: page.rows[0]?.[place] ?? "" })));
    if (!page.columns.length) break;
  }
  return { columns, total };
}

function section({ name, shape }, { columns = [], total, problem }) {
  const row = ({ name: title, dtype, isIndex, value }) =>
    el("tr", {}, el("th", { scope: "row", dir: "auto" }, plain(title) || (isIndex ? tableWords.index : variableWords.noName)), el("td", {}, plain(dtype)), el("td", { class: "value-line", dir: "auto" }, plain(value)));
  const head = [variableWords.column, variableWords.type, variableWords.firstValue].map((words) => el("th", { scope: "col" }, words));
  return el("details", { class: "schema", "data-variable": name },
    el("summary", {}, el("code", {}, plain(name)), " ", el("span", { class: "muted" }, shape.map((one) => one.toLocaleString("en")).join(" × "))),
    problem ? el("p", { class: "notice" }, problem) : el("table", { class: "columns" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, columns.map(row))),
    total > columns.length ? el("p", { class: "muted" }, variableWords.moreColumns(total - columns.length)) : null);
}
