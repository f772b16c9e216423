// A live table: sorted, filtered and searched by the Python that has it. This module is loaded when
// the first one is opened. Each query waits for the answer to the one before.

import { copyButton, el, icon, cleanText, loadStyles } from "./dom.js";
import { Grid } from "./grids.js";
import { histogram } from "./histograms.js";
import { readTable } from "./kernel_lookups.js";
import { columnCount, rowCount, tableWords } from "./later_words.js";
import { buttonWords, pythonWords } from "./words.js";

await loadStyles("/tables.css");

const BLOCK_ROWS = 100;
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
  /** Show a table by its handle; `onGone` gets the reason once Python has it no more. */
  constructor(table, callbacks) {
    this.table = table;
    this.callbacks = callbacks;
    this.view = { sort: null, search: "", filters: [] };
    this.tableInfo = null;
    this.summaries = new Map();
    this.grid = new Grid(this, tableWords.table);
    this.filterBar = el("div", { class: "table-filters" });
    this.status = el("span", { class: "muted", role: "status" }, pythonWords.asked);
    this.cellDetail = el("p", { class: "cell-detail", dir: "auto", hidden: true });
    this.search = el("input", { type: "search", placeholder: tableWords.search, "aria-label": tableWords.search, maxlength: 200, oninput: () => this.onSearchInput() });
    const copy = copyButton(() => this.selectionText(), tableWords.copyCells);
    this.fullScreenButton = el("button", { type: "button", class: "small", hidden: !document.fullscreenEnabled, onclick: () => (document.fullscreenElement ? document.exitFullscreen() : this.element.requestFullscreen()) }, icon("full"), el("span", {}, buttonWords.fullScreen));
    this.element = el("div", { class: "live-table", onfullscreenchange: () => this.nameFullScreenButton() },
      el("div", { class: "table-bar" }, this.search, this.status,
        el("div", { class: "table-tools" }, copy, this.fullScreenButton, callbacks.close ? el("button", { type: "button", class: "small close", onclick: callbacks.close }, buttonWords.close) : null)),
      this.filterBar, this.grid.element, this.cellDetail);
    this.grid.element.addEventListener("keydown", (event) => {
      if (event.key === "c" && (event.ctrlKey || event.metaKey) && !getSelection().toString()) copy.click();
    });
    this.reload();
  }

  nameFullScreenButton() {
    this.fullScreenButton.lastChild.textContent = document.fullscreenElement ? buttonWords.leaveFullScreen : buttonWords.fullScreen;
  }

  // ---- the view, and the rows that were fetched

  onSearchInput() {
    clearTimeout(this.searchTimer);
    this.searchTimer = setTimeout(() => this.changeView({ search: this.search.value.trim() }), TYPING_MILLISECONDS);
  }

  changeView(view) {
    this.view = { ...this.view, ...view };
    if (this.tableInfo) this.grid.drawHead();
    this.reload();
    this.drawFilters();
  }

  reload() {
    this.blocks = new Map();
    this.indexBlocks = new Map();
    this.version = (this.version ?? 0) + 1;
    this.isNew = true;
    this.visibleRange = { firstRow: 0, endRow: 1, firstColumn: 0, endColumn: 1 };
    this.fetchMissing();
  }

  /** Fetch visible cells that are missing; one query at a time, so that none is out of date. */
  async fetchMissing() {
    if (this.isFetching) return;
    const question = this.nextQuestion();
    if (!question) return;
    const { version } = this;
    this.isFetching = true;
    const answer = await readTable(this.callbacks.sendAction, this.table.handle, question);
    this.isFetching = false;
    if (answer.problem) return this.onProblem(answer, version);
    if (answer.summaries) this.storeSummaries(answer.summaries);
    else if (version === this.version && question.columns[0] === 0 && question.columns[1] === this.pinnedCount) this.storeIndexRows(answer);
    else if (version === this.version) this.storeRows(answer);
    this.fetchMissing();
  }

  nextQuestion() {
    const { firstRow, endRow, firstColumn, endColumn } = this.visibleRange;
    for (let block = Math.floor(firstRow / BLOCK_ROWS); block * BLOCK_ROWS < Math.max(endRow, 1); block++) {
      const page = this.blocks.get(block);
      if (page?.first_column > 0 && this.pinnedCount && !this.indexBlocks.has(block)) return { rows: [block * BLOCK_ROWS, BLOCK_ROWS], columns: [0, this.pinnedCount], ...this.view };
      if (!this.covers(page, firstColumn, endColumn)) {
        const startColumn = this.tableInfo && this.tableInfo.column_count > MAX_COLUMNS ? Math.max(Math.min(firstColumn - 5, this.tableInfo.column_count - MAX_COLUMNS), 0) : 0;
        return { rows: [block * BLOCK_ROWS, BLOCK_ROWS], columns: [startColumn, MAX_COLUMNS], ...this.view };
      }
    }
    for (let column = firstColumn; this.tableInfo && column < endColumn; column++)
      if (!this.summaries.has(column)) return { summaries: [column] };
    return null;
  }

  covers(block, firstColumn, endColumn) {
    return block && block.first_column <= firstColumn && endColumn <= block.first_column + MAX_COLUMNS;
  }

  onProblem({ problem, is_busy: isBusy, is_gone: isGone }, version) {
    if (!this.element.isConnected) return;
    if (isGone) return this.callbacks.onGone(problem);
    this.status.textContent = problem;
    this.status.classList.add("problem");
    if (isBusy) setTimeout(() => this.fetchMissing(), BUSY_MILLISECONDS);
    else if (version !== this.version) this.fetchMissing();
  }

  storeRows(page) {
    const hasChanged = this.tableInfo && page.row_count !== this.tableInfo.row_count;
    if (hasChanged) for (const blocks of [this.blocks, this.indexBlocks]) blocks.clear();
    this.tableInfo = { ...page, columns: { ...(this.tableInfo?.columns ?? {}) } };
    for (const [offset, column] of page.columns.entries()) this.tableInfo.columns[page.first_column + offset] = column;
    // If the table became shorter, the page may begin earlier than the query asked.
    this.blocks.set(Math.floor(page.first_row / BLOCK_ROWS), page);
    if (this.blocks.size > MAX_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
    this.grid.resize(page.match_count, page.column_count, { isNew: this.isNew });
    this.grid.setWidths(page.first_column, page.columns.map((column, offset) => columnWidth(column, page.rows, offset)));
    if (this.isNew || hasChanged) this.showSize();
    this.isNew = false;
    this.grid.draw();
  }

  /** Store the index columns of rows, if their visible columns are far to the right. */
  storeIndexRows(page) {
    this.indexBlocks.set(Math.floor(page.first_row / BLOCK_ROWS), page);
    if (this.indexBlocks.size > MAX_BLOCKS) this.indexBlocks.delete(this.indexBlocks.keys().next().value);
    this.grid.setWidths(0, page.columns.map((column, offset) => columnWidth(column, page.rows, offset)));
    this.grid.draw();
  }

  /** How many columns are pinned: those of the index. */
  get pinnedCount() {
    return this.tableInfo?.index_count ?? 0;
  }

  storeSummaries(summaries) {
    for (const summary of summaries) this.summaries.set(summary.column, summary);
    this.grid.drawHead();
  }

  showSize() {
    const { match_count: matchCount, row_count: rowTotal, column_count: columnTotal, index_count: indexCount } = this.tableInfo;
    const rows = matchCount < rowTotal ? tableWords.found(matchCount, rowTotal) : rowCount(rowTotal);
    const note = this.table.is_cut ? tableWords.firstOfMore : this.table.row_count > rowTotal ? tableWords.firstOf(this.table.row_count) : "";
    this.status.classList.remove("problem");
    this.status.textContent = `${rows}${note} × ${columnCount(columnTotal - indexCount)}`;
  }

  // ---- what the grid asks for

  onRangeShown(range) {
    this.visibleRange = range;
    this.fetchMissing();
  }

  cellText(row, column) {
    const block = Math.floor(row / BLOCK_ROWS);
    const rowBlock = this.blocks.get(block);
    const page = rowBlock && column < rowBlock.first_column ? this.indexBlocks.get(block) : rowBlock;
    return page?.rows[row - page.first_row]?.[column - page.first_column];
  }

  isRightAligned(column) {
    return column >= this.tableInfo.index_count && this.tableInfo.columns[column]?.kind === "number";
  }

  heading(column) {
    const columnInfo = this.tableInfo.columns[column] ?? { name: "", dtype: "", kind: "other" };
    const [sortedColumn, isDescending] = this.view.sort ?? [];
    const direction = sortedColumn === column ? (isDescending ? "descending" : "ascending") : null;
    const name = cleanText(columnInfo.name) || (column < this.tableInfo.index_count ? tableWords.index : tableWords.columnNumber(column + 1));
    const next = { ascending: [column, true], descending: null }[direction] ?? [column, false];
    const sort = el("button", { type: "button", class: "sort", title: name, onclick: () => this.changeView({ sort: direction === "descending" ? null : next }) },
      el("bdi", {}, name), el("span", { "aria-hidden": "true", class: "arrow" }, { ascending: "↑", descending: "↓" }[direction] ?? ""));
    const filter = el("button", { type: "button", class: "icon", "aria-label": tableWords.filterColumn(name), title: tableWords.filter, onclick: () => this.openFilter(column, name, columnInfo.kind) }, icon("filter"));
    return el("div", { role: "columnheader", "aria-sort": direction },
      el("div", { class: "heading" }, sort, filter), el("div", { class: "dtype" }, cleanText(columnInfo.dtype)), histogram(this.summaries.get(column)));
  }

  onCellChosen({ row, column }) {
    const text = this.cellText(row, column);
    this.cellDetail.hidden = !text || text.length < 30;
    this.cellDetail.textContent = this.cellDetail.hidden ? "" : text;
  }

  /** The selected cells as text that spreadsheets take; those that are not here yet stay empty. */
  selectionText() {
    const { firstRow, endRow, firstColumn, endColumn } = this.grid.selection;
    const lines = [];
    for (let row = firstRow; row < Math.min(endRow, firstRow + MAX_COPIED); row++) {
      const cells = [];
      for (let column = firstColumn; column < endColumn; column++) cells.push((this.cellText(row, column) ?? "").replace(/[\t\n\r]+/g, " "));
      lines.push(cells.join("\t"));
    }
    return lines.join("\n");
  }

  // ---- filters

  openFilter(column, name, kind) {
    const operators = OPERATORS[kind];
    const operator = el("select", { "aria-label": tableWords.condition }, operators.map((name) => el("option", { value: name }, name)));
    const value = el("input", { type: "text", "aria-label": tableWords.value, maxlength: 200, placeholder: { time: "2026-01-31", truth: "true", number: "0" }[kind] ?? "" });
    const showValueField = () => (value.hidden = ["missing", "present"].includes(operator.value));
    operator.addEventListener("change", showValueField);
    const addFilter = (event) => {
      event.preventDefault();
      this.changeView({ filters: [...this.view.filters, [column, operator.value, value.hidden ? "" : value.value]] });
      this.grid.element.focus();
    };
    const close = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.drawFilters();
      this.grid.element.focus();
    };
    this.drawFilters(el("form", { class: "filter", onsubmit: addFilter, onkeydown: close }, el("bdi", {}, name), operator, value,
      el("button", { type: "submit", class: "small strong" }, tableWords.filter)));
    showValueField();
    (value.hidden ? operator : value).focus();
  }

  drawFilters(...forms) {
    const chips = this.view.filters.map((filter, index) => {
      const [column, operator, text] = filter;
      const words = `${cleanText(this.tableInfo?.columns[column]?.name ?? "") || tableWords.index} ${operator} ${text}`.trim();
      const removeFilter = () => this.changeView({ filters: this.view.filters.filter((_, otherIndex) => otherIndex !== index) });
      return el("button", { type: "button", class: "small chip", "aria-label": tableWords.removeFilter(words), onclick: removeFilter }, el("bdi", {}, words), icon("close"));
    });
    this.filterBar.replaceChildren(...chips, ...forms);
  }
}

function columnWidth(column, rows, index) {
  // Beside a heading there is a button, and perhaps an arrow.
  let maxLetters = Math.max((column.name.length || 5) * 1.15 + 5, column.dtype.length * 0.8);
  for (const row of rows) maxLetters = Math.max(maxLetters, row[index]?.length ?? 7);
  return Math.round(Math.min(Math.max(maxLetters * 8.4 + 24, 84), 300));
}
