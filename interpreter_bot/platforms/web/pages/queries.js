// What code asked of data connections, below an answer.

import { el, named, scrollable, styled } from "./dom.js";
import { queryCount } from "./later_words.js";

await styled("/forms.css");

/** What code asked of data connections, folded: each statement, and what came of it. */
export function queriesOf(queries) {
  const one = ({ connection, statement, outcome }) => connection
    ? el("li", {}, el("p", { class: "muted" }, named(connection), `: ${outcome}`), scrollable(el("pre", {}, el("code", { dir: "ltr" }, statement))))
    : el("li", { class: "muted" }, statement);
  const summary = el("summary", {}, queryCount(queries.length));
  return el("details", { class: "queries" }, summary, el("ol", {}, queries.map(one)));
}
