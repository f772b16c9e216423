// A grid of which only what is seen is in the page, however large it is. It knows nothing of where
// its cells come from. The focus stays on the grid; the cell that is meant is named to readers.

import { el } from "./dom.js";

const ROW = 28;
// No browser is taller than that for sure; beyond it a pixel of the bar is more than one.
const TALLEST = 15_000_000;
const BEYOND = 4;
const DEFAULT_WIDTH = 120;
let grids = 0;

export class Grid {
  /**
   * @param {{cell(row: number, column: number): string | null | undefined, heading(column: number): Node,
   * isEnd(column: number): boolean, pinned: number, seen(range: object): void, chosen(place: object): void}} source
   */
  constructor(source, label) {
    this.source = source;
    this.name = `grid-${++grids}`;
    this.widths = [];
    this.lefts = [0];
    this.top = 0;
    this.left = 0;
    this.active = { row: 0, column: 0 };
    this.anchor = null;
    this.head = el("div", { role: "row", class: "grid-row grid-head", "aria-rowindex": 1 });
    this.body = el("div", { role: "rowgroup", class: "grid-body" });
    this.element = el("div", { role: "grid", class: "grid", tabindex: 0, "aria-label": label, "aria-multiselectable": "true",
      onscroll: () => this.scrolled(), onkeydown: (event) => this.key(event), onmousedown: (event) => this.pressed(event) },
      el("div", { role: "rowgroup", class: "grid-top" }, this.head), this.body);
    this.element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Take over how large the grid is, and begin at its top where `isNew`. */
  resize(rows, columns, { isNew = false } = {}) {
    this.rows = rows;
    this.columns = columns;
    this.element.setAttribute("aria-rowcount", rows + 1);
    this.element.setAttribute("aria-colcount", columns);
    this.height = Math.min(rows * ROW, TALLEST);
    this.body.style.height = `${this.height}px`;
    this.element.style.setProperty("--rows", Math.min(rows, 1000));
    if (isNew) {
      this.anchor = null;
      this.active.row = 0;
      this.go(0);
    }
    this.active.row = Math.max(Math.min(this.active.row, rows - 1), 0);
    this.active.column = Math.max(Math.min(this.active.column, columns - 1), 0);
  }

  setWidths(first, widths) {
    for (const [place, width] of widths.entries()) {
      const column = first + place;
      this.widths[column] = column < this.source.pinned ? Math.max(this.widths[column] ?? 0, width) : (this.widths[column] ?? width);
    }
    this.lefts = [0];
    for (let column = 0; column < this.columns; column++) this.lefts.push(this.lefts[column] + (this.widths[column] ?? DEFAULT_WIDTH));
    this.body.style.width = this.head.style.width = `${this.lefts[this.columns]}px`;
    this.head.columns = null;
  }

  /** How many columns stay where they are; none where they would leave no room. */
  get pinned() {
    const { pinned } = this.source;
    return this.lefts[pinned] <= this.element.clientWidth / 2 ? pinned : 0;
  }

  get visibleRows() {
    return Math.max((this.element.clientHeight - this.head.offsetHeight) / ROW, 1);
  }

  get last() {
    return Math.max(this.rows - this.visibleRows, 0);
  }

  get isScaled() {
    return this.rows * ROW > TALLEST;
  }

  scrolled() {
    if (this.isScaled) {
      // What was set by ourselves is known more exactly than the bar can say it.
      if (Math.abs(this.element.scrollTop - this.set) > 1) this.top = (this.element.scrollTop / (this.height - this.visibleRows * ROW)) * this.last;
    } else this.top = this.element.scrollTop / ROW;
    // A frame is about to be drawn anyway.
    this.drawNow();
  }

  go(top) {
    this.top = Math.max(Math.min(top, this.last), 0);
    this.set = this.isScaled ? (this.top / this.last) * (this.height - this.visibleRows * ROW) : this.top * ROW;
    this.element.scrollTop = this.set;
    this.set = this.element.scrollTop;
    this.draw();
  }

  /** Let the grid be put elsewhere in the page, where browsers forget how far it is scrolled. */
  move(put) {
    const { top, left } = this;
    put();
    this.go(top);
    this.element.scrollLeft = left;
    this.draw();
  }

  wheel(event) {
    if (!this.isScaled || event.ctrlKey || event.shiftKey || !event.deltaY) return;
    event.preventDefault();
    this.go(this.top + event.deltaY / (event.deltaMode ? 1 : ROW));
  }

  draw() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.drawNow();
    });
  }

  drawNow() {
    if (this.rows === undefined || !this.element.clientWidth) return;
    const left = (this.left = this.element.scrollLeft), right = left + this.element.clientWidth;
    const { pinned } = this;
    let first = pinned;
    while (first < this.columns - 1 && this.lefts[first + 1] - this.lefts[pinned] <= left) first++;
    let end = first + 1;
    while (end < this.columns && this.lefts[end] < right) end++;
    const start = Math.max(Math.floor(this.top) - BEYOND, 0);
    const stop = Math.min(Math.ceil(this.top + this.visibleRows) + BEYOND, this.rows);
    const rows = [];
    end = Math.max(end, pinned);
    const columns = [...Array(pinned).keys(), ...Array.from({ length: Math.max(end - first, 0) }, (_, place) => first + place)];
    for (let row = start; row < stop; row++) rows.push(this.row(row, columns));
    this.body.replaceChildren(...rows);
    if (this.head.columns?.join() !== columns.join()) this.drawHead(columns);
    this.element.setAttribute("aria-activedescendant", this.idOf(this.active));
    this.source.seen({ start, stop, first, end });
  }

  drawHead(columns = this.head.columns ?? []) {
    this.head.columns = columns;
    const cells = columns.map((column) => this.placed(this.source.heading(column), column));
    const focused = this.head.contains(document.activeElement) ? document.activeElement : null;
    const column = focused?.closest("[aria-colindex]").getAttribute("aria-colindex");
    this.head.replaceChildren(...cells);
    if (focused) this.head.querySelector(`[aria-colindex="${column}"] .${focused.classList[0]}`)?.focus({ preventScroll: true });
  }

  placed(cell, column) {
    cell.style.insetInlineStart = `${this.lefts[column]}px`;
    cell.classList.toggle("pinned", column < this.pinned);
    cell.style.width = `${this.widths[column] ?? DEFAULT_WIDTH}px`;
    cell.setAttribute("aria-colindex", column + 1);
    return cell;
  }

  row(row, columns) {
    const cells = [];
    for (const column of columns) {
      const text = this.source.cell(row, column);
      const kind = text === undefined ? "unknown" : text === null ? "missing" : this.source.isEnd(column) ? "end" : "";
      const place = { row, column };
      cells.push(this.placed(el("div", { role: "gridcell", id: this.idOf(place), class: kind, dir: text ? "auto" : null,
        "aria-selected": this.isSelected(place) ? "true" : null, "data-row": row, "data-column": column },
        text === undefined ? "" : text ?? "missing"), column));
    }
    const drawn = el("div", { role: "row", class: row % 2 ? "grid-row odd" : "grid-row", "aria-rowindex": row + 2 }, cells);
    drawn.style.transform = `translateY(${this.element.scrollTop + (row - this.top) * ROW}px)`;
    return drawn;
  }

  idOf({ row, column }) {
    return `${this.name}-${row}-${column}`;
  }

  /** The cells that are selected, from the first to the one after the last. */
  get selection() {
    const from = this.anchor ?? this.active, to = this.active;
    return {
      start: Math.min(from.row, to.row), stop: Math.max(from.row, to.row) + 1,
      first: Math.min(from.column, to.column), end: Math.max(from.column, to.column) + 1,
    };
  }

  isSelected({ row, column }) {
    const { start, stop, first, end } = this.selection;
    return row >= start && row < stop && column >= first && column < end;
  }

  pressed(event) {
    const cell = event.target.closest("[data-row]");
    if (cell && event.button === 0) this.choose({ row: Number(cell.dataset.row), column: Number(cell.dataset.column) }, event.shiftKey);
  }

  choose(place, isMore) {
    this.anchor = isMore ? this.anchor ?? this.active : null;
    this.active = { row: Math.max(Math.min(place.row, this.rows - 1), 0), column: Math.max(Math.min(place.column, this.columns - 1), 0) };
    this.reveal();
    this.draw();
    this.source.chosen(this.active);
  }

  reveal() {
    const { row, column } = this.active, box = this.element;
    const left = this.lefts[column], right = this.lefts[column + 1];
    const names = this.lefts[this.pinned];
    const isPinned = column < this.pinned;
    if (!isPinned && left - names < box.scrollLeft) box.scrollLeft = left - names;
    else if (!isPinned && right > box.scrollLeft + box.clientWidth) box.scrollLeft = Math.min(left - names, right - box.clientWidth);
    const shown = Math.floor(this.visibleRows);
    if (row < this.top) this.go(row);
    else if (row >= this.top + shown) this.go(row - shown + 1);
  }

  key(event) {
    if (event.target !== this.element || event.altKey) return;
    const { row, column } = this.active, page = Math.floor(this.visibleRows), isFar = event.ctrlKey || event.metaKey;
    const to = {
      ArrowDown: [isFar ? this.rows : row + 1, column], ArrowUp: [isFar ? 0 : row - 1, column],
      ArrowRight: [row, isFar ? this.columns : column + 1], ArrowLeft: [row, isFar ? 0 : column - 1],
      PageDown: [row + page, column], PageUp: [row - page, column],
      Home: [isFar ? 0 : row, 0], End: [isFar ? this.rows : row, this.columns],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    this.choose({ row: to[0], column: to[1] }, event.shiftKey);
  }
}
