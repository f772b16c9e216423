// The variables of Python, as they are after each run.

import { el, plain, size } from "./dom.js";
import { inLocalTime, rows } from "./panels.js";
import { variableWords } from "./later_words.js";
import { buttonWords } from "./words.js";

const notice = el("div", {});
const list = el("ul", { class: "variables" });
const imported = el("p", { class: "muted" });
const inside = el("div", { class: "inside" });
const facts = el("div", { class: "facts" });
let explored = null;

/**
 * Draw the variables; while Python cannot tell them, those that it told last stay.
 * @param {{rows: string[][], lost_cells: number, variables: object[], problem: string}} told
 * @param {{isAnother: boolean}} wanted whether nothing of them is there yet
 * @returns whether Python was busy, and is to be asked again
 */
export function draw(body, { rows: about, lost_cells: cells, variables, problem, is_busy: isBusy }, { say, runAgain }, { isAnother }) {
  if (isAnother) body.replaceChildren(notice, list, imported, inside, facts);
  const words = problem || (variables.length ? "" : variableWords.none);
  notice.replaceChildren(...(words ? [el("p", { class: "muted" }, words)] : []));
  // The first fact is the names, which are listed already.
  facts.replaceChildren(rows(about.slice(variables.length && 1).map(([name, ...rest]) => [name, ...rest.map(inLocalTime)])));
  if (cells) facts.append(el("button", { type: "button", class: "quiet", onclick: runAgain }, variableWords.rebuild(cells)));
  if (problem && !isAnother) return isBusy;
  const focused = document.activeElement.closest("[data-variable]")?.dataset.variable;
  const isModule = ({ type }) => type === "module";
  list.replaceChildren(...variables.filter((one) => !isModule(one)).map((one) => entry(one, say)));
  const modules = variables.filter(isModule).map(({ name }) => plain(name));
  imported.textContent = modules.length ? variableWords.imported(modules) : "";
  if (focused) focusOn(focused);
  if (isAnother || !variables.some(({ name, handle }) => name === explored?.name && handle === explored.handle)) inside.replaceChildren();
  return isBusy;
}

function focusOn(name) {
  [...list.children].find((one) => one.dataset.variable === name)?.querySelector("button, summary")?.focus();
}

function entry(variable, say) {
  const { name, type, shape, text, handle, size_bytes: bytes, uses = [] } = variable;
  const about = [plain(type), shape.map((number) => number.toLocaleString("en")).join(" × "), bytes === null ? "" : size(bytes)];
  const explore = () => open(variable, say);
  return el("li", { "data-variable": name },
    el("div", { class: "variable" }, el("code", {}, plain(name)), el("span", { class: "muted" }, about.filter(Boolean).join(" · ")),
      handle ? el("button", { type: "button", class: "small", "aria-label": variableWords.explore(plain(name)), onclick: explore }, buttonWords.explore) : null),
    handle || text === `<${type}>` ? null : el("div", { class: "value-line", dir: "auto", title: plain(text) }, plain(text)),
    users(uses));
}

/** The cells that made or read a variable; each leads to where it ran. */
function users(uses) {
  if (!uses.length) return null;
  const reveal = ({ turn_id: turn }) => dispatchEvent(new CustomEvent("reveal", { detail: turn }));
  const cell = (use) => el("li", {}, el("button", { type: "button", class: "small", onclick: () => reveal(use) }, use.is_assignment ? variableWords.madeBy : variableWords.readBy, el("code", { dir: "ltr" }, plain(use.line))));
  return el("details", { class: "uses" }, el("summary", {}, variableWords.usedBy(uses.length)), el("ul", {}, uses.map(cell)));
}

/** Show all rows of a variable that is a table. */
async function open(variable, say) {
  const { LiveTable } = await import("./tables.js");
  const gone = (sentence) => inside.replaceChildren(...(sentence ? [el("p", { class: "notice" }, sentence)] : []));
  const live = new LiveTable(variable, { say, gone, close: () => (gone(""), focusOn(variable.name)) });
  explored = variable;
  inside.replaceChildren(el("h2", {}, el("code", {}, plain(variable.name))), live.element);
  inside.scrollIntoView({ block: "nearest" });
  live.search.focus();
}
