// A table that one can touch: sorted, filtered and searched by the Python that has it. Fetched when
// the first one is opened. What is asked next waits for the answer to what was asked before.

import { copier, el, icon, plain } from "./dom.js";
import { Grid } from "./grids.js";
import { spread } from "./histograms.js";
import { look } from "./kernel_lookups.js";
import { enlarge } from "./rooms.js";
import { columnCount, rowCount, tableWords } from "./later_words.js";
import { buttonWords, pythonWords } from "./words.js";

const BLOCK = 100;
const MAX_BLOCKS = 60;
const MAX_COLUMNS = 40;
const MAX_COPIED = 2000;
const TYPING_MILLISECONDS = 250;
const BUSY_MILLISECONDS = 1000;
const OPERATORS = {
  text: ["contains", "=", "≠", "<", ">", "missing", "present"],
  number: ["=", "≠", "<", "≤", ">", "≥", "missing", "present"],
  time: ["<", "≤", ">", "≥", "=", "≠", "missing", "present"],
  truth: ["=", "missing", "present"],
  other: ["missing", "present"],
};

export class LiveTable {
  /**
   * @param {{handle: string, row_count?: number, is_cut?: boolean}} table
   * @param {{say(message: object): boolean, gone(sentence: string): void}} user
   */
  constructor(table, user) {
    this.table = table;
    this.user = user;
    this.view = { sort: null, search: "", filters: [] };
    this.known = null;
    this.summaries = new Map();
    this.grid = new Grid(this, tableWords.table);
    this.filtering = el("div", { class: "table-filters" });
    this.status = el("span", { class: "muted", role: "status" }, pythonWords.asked);
    this.detail = el("p", { class: "cell-detail", dir: "auto", hidden: true });
    this.search = el("input", { type: "search", placeholder: tableWords.search, "aria-label": tableWords.search, maxlength: 200, oninput: () => this.typed() });
    const copy = copier(() => this.copied(), tableWords.copyCells);
    this.enlarger = el("button", { type: "button", class: "small", "aria-pressed": "false", onclick: () => this.enlarge() }, icon("full"), el("span", {}, buttonWords.fullScreen));
    this.element = el("div", { class: "live-table" },
      el("div", { class: "table-bar" }, this.search, this.status,
        el("div", { class: "table-tools" }, copy, this.enlarger, user.close ? el("button", { type: "button", class: "small close", onclick: user.close }, buttonWords.close) : null)),
      this.filtering, this.grid.element, this.detail);
    this.grid.element.addEventListener("keydown", (event) => {
      if (event.key === "c" && (event.ctrlKey || event.metaKey) && !getSelection().toString()) copy.click();
    });
    this.renew();
  }

  /** Give the table all of the window, or take it back. */
  enlarge() {
    if (this.room) return this.room.close();
    const tell = (isLarge) => {
      this.enlarger.lastChild.textContent = isLarge ? buttonWords.leaveFullScreen : buttonWords.fullScreen;
      this.enlarger.setAttribute("aria-pressed", String(isLarge));
      this.enlarger.focus();
    };
    const closed = () => {
      this.room = null;
      tell(false);
    };
    this.room = enlarge(this.element, { move: (put) => this.grid.move(put), closed });
    tell(true);
  }

  // ---- what is wanted, and what is there

  typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.change({ search: this.search.value.trim() }), TYPING_MILLISECONDS);
  }

  change(view) {
    this.view = { ...this.view, ...view };
    if (this.known) this.grid.drawHead();
    this.renew();
    this.drawFilters();
  }

  renew() {
    this.blocks = new Map();
    this.names = new Map();
    this.version = (this.version ?? 0) + 1;
    this.isNew = true;
    this.wanted = { start: 0, stop: 1, first: 0, end: 1 };
    this.fetch();
  }

  /** Fetch what is seen and not here; one question at a time, so that nobody waits for what is past. */
  async fetch() {
    if (this.isAsking) return;
    const question = this.nextQuestion();
    if (!question) return;
    const { version } = this;
    this.isAsking = true;
    const found = await look(this.user.say, this.table.handle, question);
    this.isAsking = false;
    if (found.problem) return this.refused(found, version);
    if (found.summaries) this.takeSummaries(found.summaries);
    else if (version === this.version && question.columns[0] === 0 && question.columns[1] === this.pinned) this.takeNames(found);
    else if (version === this.version) this.takeRows(found);
    this.fetch();
  }

  nextQuestion() {
    const { start, stop, first, end } = this.wanted;
    for (let block = Math.floor(start / BLOCK); block * BLOCK < Math.max(stop, 1); block++) {
      const page = this.blocks.get(block);
      if (page?.left > 0 && this.pinned && !this.names.has(block)) return { rows: [block * BLOCK, BLOCK], columns: [0, this.pinned], ...this.view };
      if (!this.covers(page, first, end)) {
        const left = this.known && this.known.column_count > MAX_COLUMNS ? Math.max(Math.min(first - 5, this.known.column_count - MAX_COLUMNS), 0) : 0;
        return { rows: [block * BLOCK, BLOCK], columns: [left, MAX_COLUMNS], ...this.view };
      }
    }
    for (let column = first; this.known && column < end; column++)
      if (!this.summaries.has(column)) return { summaries: [column] };
    return null;
  }

  covers(block, first, end) {
    return block && block.left <= first && end <= block.left + MAX_COLUMNS;
  }

  refused({ problem, is_busy: isBusy, is_gone: isGone }, version) {
    if (!this.element.isConnected) return;
    if (isGone) return this.user.gone(problem);
    this.status.textContent = problem;
    this.status.classList.add("problem");
    if (isBusy) setTimeout(() => this.fetch(), BUSY_MILLISECONDS);
    else if (version !== this.version) this.fetch();
  }

  takeRows(page) {
    const hasChanged = this.known && page.row_count !== this.known.row_count;
    if (hasChanged) for (const known of [this.blocks, this.names]) known.clear();
    this.known = { ...page, columns: { ...(this.known?.columns ?? {}) } };
    for (const [place, column] of page.columns.entries()) this.known.columns[page.left + place] = column;
    this.blocks.set(Math.floor(page.first / BLOCK), page);
    // The last block of a table that became shorter begins earlier than was asked.
    if (this.blocks.size > MAX_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
    this.grid.resize(page.found, page.column_count, { isNew: this.isNew });
    this.grid.setWidths(page.left, page.columns.map((column, place) => widthOf(column, page.rows, place)));
    if (this.isNew || hasChanged) this.tell();
    this.isNew = false;
    this.grid.drawNow();
  }

  /** Take the names of rows whose other columns are far to the right. */
  takeNames(page) {
    this.names.set(Math.floor(page.first / BLOCK), page);
    if (this.names.size > MAX_BLOCKS) this.names.delete(this.names.keys().next().value);
    this.grid.setWidths(0, page.columns.map((column, place) => widthOf(column, page.rows, place)));
    this.grid.drawNow();
  }

  /** How many columns stay in sight: those of the index. */
  get pinned() {
    return this.known?.index_count ?? 0;
  }

  takeSummaries(summaries) {
    for (const one of summaries) this.summaries.set(one.column, one);
    this.grid.drawHead();
  }

  tell() {
    const { found, row_count: all, column_count: columns, index_count: index } = this.known;
    const rows = found < all ? tableWords.found(found, all) : rowCount(all);
    const whole = this.table.is_cut ? tableWords.firstOfMore : this.table.row_count > all ? tableWords.firstOf(this.table.row_count) : "";
    this.status.classList.remove("problem");
    this.status.textContent = `${rows}${whole} × ${columnCount(columns - index)}`;
  }

  // ---- what the grid asks for

  seen(range) {
    this.wanted = range;
    this.fetch();
  }

  cell(row, column) {
    const block = Math.floor(row / BLOCK);
    const wide = this.blocks.get(block);
    const page = wide && column < wide.left ? this.names.get(block) : wide;
    return page?.rows[row - page.first]?.[column - page.left];
  }

  isEnd(column) {
    return column >= this.known.index_count && this.known.columns[column]?.kind === "number";
  }

  heading(column) {
    const about = this.known.columns[column] ?? { name: "", dtype: "", kind: "other" };
    const [sorted, isDescending] = this.view.sort ?? [];
    const direction = sorted === column ? (isDescending ? "descending" : "ascending") : null;
    const name = plain(about.name) || (column < this.known.index_count ? tableWords.index : tableWords.columnNumber(column + 1));
    const next = { ascending: [column, true], descending: null }[direction] ?? [column, false];
    const sort = el("button", { type: "button", class: "sort", title: name, onclick: () => this.change({ sort: direction === "descending" ? null : next }) },
      el("bdi", {}, name), el("span", { "aria-hidden": "true", class: "arrow" }, { ascending: "↑", descending: "↓" }[direction] ?? ""));
    const filter = el("button", { type: "button", class: "icon", "aria-label": tableWords.filterColumn(name), title: tableWords.filter, onclick: () => this.openFilter(column, name, about.kind) }, icon("filter"));
    return el("div", { role: "columnheader", "aria-sort": direction },
      el("div", { class: "heading" }, sort, filter), el("div", { class: "dtype" }, plain(about.dtype)), spread(this.summaries.get(column)));
  }

  chosen({ row, column }) {
    const text = this.cell(row, column);
    this.detail.hidden = !text || text.length < 30;
    this.detail.textContent = this.detail.hidden ? "" : text;
  }

  /** The selected cells as text that spreadsheets take; those that are not here yet stay empty. */
  copied() {
    const { start, stop, first, end } = this.grid.selection;
    const lines = [];
    for (let row = start; row < Math.min(stop, start + MAX_COPIED); row++) {
      const cells = [];
      for (let column = first; column < end; column++) cells.push((this.cell(row, column) ?? "").replace(/[\t\n\r]+/g, " "));
      lines.push(cells.join("\t"));
    }
    return lines.join("\n");
  }

  // ---- filters

  openFilter(column, name, kind) {
    const words = OPERATORS[kind];
    const operator = el("select", { "aria-label": tableWords.condition }, words.map((one) => el("option", { value: one }, one)));
    const value = el("input", { type: "text", "aria-label": tableWords.value, maxlength: 200, placeholder: { time: "2026-01-31", truth: "true", number: "0" }[kind] ?? "" });
    const fit = () => (value.hidden = ["missing", "present"].includes(operator.value));
    operator.addEventListener("change", fit);
    const add = (event) => {
      event.preventDefault();
      this.change({ filters: [...this.view.filters, [column, operator.value, value.hidden ? "" : value.value]] });
      this.grid.element.focus();
    };
    const close = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.drawFilters();
      this.grid.element.focus();
    };
    this.drawFilters(el("form", { class: "filter", onsubmit: add, onkeydown: close }, el("bdi", {}, name), operator, value,
      el("button", { type: "submit", class: "small strong" }, tableWords.filter)));
    fit();
    (value.hidden ? operator : value).focus();
  }

  drawFilters(...forms) {
    const chips = this.view.filters.map((filter, place) => {
      const [column, operator, text] = filter;
      const words = `${plain(this.known?.columns[column]?.name ?? "") || tableWords.index} ${operator} ${text}`.trim();
      const drop = () => this.change({ filters: this.view.filters.filter((_, one) => one !== place) });
      return el("button", { type: "button", class: "small chip", "aria-label": tableWords.removeFilter(words), onclick: drop }, el("bdi", {}, words), icon("close"));
    });
    this.filtering.replaceChildren(...chips, ...forms);
  }
}

function widthOf(column, rows, place) {
  // Beside a heading there is a button, and perhaps an arrow.
  let longest = Math.max((column.name.length || 5) * 1.15 + 5, column.dtype.length * 0.8);
  for (const row of rows) longest = Math.max(longest, row[place]?.length ?? 7);
  return Math.round(Math.min(Math.max(longest * 8.4 + 24, 84), 300));
}
