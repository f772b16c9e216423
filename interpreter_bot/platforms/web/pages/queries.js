// The queries of code to data connections, below an answer.

import { el, nameElement, makeScrollable, loadStyles } from "./dom.js";
import { queryCount } from "./later_words.js";

await loadStyles("/forms.css");

/** Return a folded list of queries, each with its outcome. */
export function queryList(queries) {
  const queryItem = ({ connection, statement, outcome }) => connection
    ? el("li", {}, el("p", { class: "muted" }, nameElement(connection), `: ${outcome}`), makeScrollable(el("pre", {}, el("code", { dir: "ltr" }, statement))))
    : el("li", { class: "muted" }, statement);
  const summary = el("summary", {}, queryCount(queries.length));
  return el("details", { class: "queries" }, summary, el("ol", {}, queries.map(queryItem)));
}
