// The variables of Python, as they are after each run.

import { el, cleanText, formatSize } from "./dom.js";
import { inLocalTime, factTable } from "./panels.js";
import { variableWords } from "./later_words.js";
import { buttonWords } from "./words.js";

const notice = el("div", {});
const list = el("ul", { class: "variables" });
const imported = el("p", { class: "muted" });
const tableBox = el("div", { class: "inside" });
const factBox = el("div", { class: "facts" });
let openedVariable = null;

/** Draw the variables; while Python is busy, the last ones stay. Returns whether it was busy. */
export function draw(body, { rows: facts, lost_cells: lostCellCount, variables, problem, is_busy: isBusy }, { sendAction, runAgain }, { isFresh }) {
  if (isFresh) body.replaceChildren(notice, list, imported, tableBox, factBox);
  const noticeText = problem || (variables.length ? "" : variableWords.none);
  notice.replaceChildren(...(noticeText ? [el("p", { class: "muted" }, noticeText)] : []));
  // The first fact is the names, which are listed already.
  factBox.replaceChildren(factTable(facts.slice(variables.length && 1).map(([name, ...values]) => [name, ...values.map(inLocalTime)])));
  if (lostCellCount) factBox.append(el("button", { type: "button", class: "quiet", onclick: runAgain }, variableWords.rebuild(lostCellCount)));
  if (problem && !isFresh) return isBusy;
  const focusedName = document.activeElement.closest("[data-variable]")?.dataset.variable;
  const isModule = ({ type }) => type === "module";
  list.replaceChildren(...variables.filter((variable) => !isModule(variable)).map((variable) => variableItem(variable, sendAction)));
  const modules = variables.filter(isModule).map(({ name }) => cleanText(name));
  imported.textContent = modules.length ? variableWords.imported(modules) : "";
  if (focusedName) focusVariable(focusedName);
  if (isFresh || !variables.some(({ name, handle }) => name === openedVariable?.name && handle === openedVariable.handle)) tableBox.replaceChildren();
  return isBusy;
}

function focusVariable(name) {
  [...list.children].find((item) => item.dataset.variable === name)?.querySelector("button, summary")?.focus();
}

function variableItem(variable, sendAction) {
  const { name, type, shape, text, handle, size_bytes: bytes, uses = [] } = variable;
  const details = [cleanText(type), shape.map((length) => length.toLocaleString("en")).join(" × "), bytes === null ? "" : formatSize(bytes)];
  const explore = () => showTable(variable, sendAction);
  return el("li", { "data-variable": name },
    el("div", { class: "variable" }, el("code", {}, cleanText(name)), el("span", { class: "muted" }, details.filter(Boolean).join(" · ")),
      handle ? el("button", { type: "button", class: "small", "aria-label": variableWords.explore(cleanText(name)), onclick: explore }, buttonWords.explore) : null),
    handle || text === `<${type}>` ? null : el("div", { class: "value-line", dir: "auto", title: cleanText(text) }, cleanText(text)),
    usesDetails(uses));
}

/** The cells that made or read a variable; each leads to where it ran. */
function usesDetails(uses) {
  if (!uses.length) return null;
  const reveal = ({ turn_id: turn }) => dispatchEvent(new CustomEvent("reveal", { detail: turn }));
  const cell = (use) => el("li", {}, el("button", { type: "button", class: "small", onclick: () => reveal(use) }, use.is_assignment ? variableWords.madeBy : variableWords.readBy, el("code", { dir: "ltr" }, cleanText(use.line))));
  return el("details", { class: "uses" }, el("summary", {}, variableWords.usedBy(uses.length)), el("ul", {}, uses.map(cell)));
}

/** Show all rows of a variable that is a table. */
async function showTable(variable, sendAction) {
  const { LiveTable } = await import("./tables.js");
  const onGone = (sentence) => tableBox.replaceChildren(...(sentence ? [el("p", { class: "notice" }, sentence)] : []));
  const liveTable = new LiveTable(variable, { sendAction, onGone, close: () => (onGone(""), focusVariable(variable.name)) });
  openedVariable = variable;
  tableBox.replaceChildren(el("h2", {}, el("code", {}, cleanText(variable.name))), liveTable.element);
  tableBox.scrollIntoView({ block: "nearest" });
  liveTable.search.focus();
}
