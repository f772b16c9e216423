// A grid of any size, of which only the visible cells are in the page. Its source has the cells. The
// focus stays on the grid, and `aria-activedescendant` names the active cell to screen readers.

import { el } from "./dom.js";

const ROW_PIXELS = 28;
// Browsers limit the height of elements; in a taller grid, a pixel of the scroll bar is several.
const MAX_HEIGHT_PIXELS = 15_000_000;
const EXTRA_ROWS = 4;
const DEFAULT_WIDTH_PIXELS = 120;
let grids = 0;

export class Grid {
  /** `source` has the cells: see LiveTable under "what the grid asks for". */
  constructor(source, label) {
    this.source = source;
    this.name = `grid-${++grids}`;
    this.widths = [];
    this.columnLefts = [0];
    this.topRow = 0;
    this.activeCell = { row: 0, column: 0 };
    this.anchorCell = null;
    this.head = el("div", { role: "row", class: "grid-row grid-head", "aria-rowindex": 1 });
    this.body = el("div", { role: "rowgroup", class: "grid-body" });
    this.element = el("div", { role: "grid", class: "grid", tabindex: 0, "aria-label": label, "aria-multiselectable": "true",
      onscroll: () => this.onScroll(), onkeydown: (event) => this.onKey(event), onmousedown: (event) => this.onMouseDown(event) },
      el("div", { role: "rowgroup", class: "grid-top" }, this.head), this.body);
    this.element.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    new ResizeObserver(() => this.scheduleDraw()).observe(this.element);
  }

  /** Set the size of the grid; if it `isNew`, scroll to its top. */
  resize(rows, columns, { isNew = false } = {}) {
    this.rows = rows;
    this.columns = columns;
    this.element.setAttribute("aria-rowcount", rows + 1);
    this.element.setAttribute("aria-colcount", columns);
    this.height = Math.min(rows * ROW_PIXELS, MAX_HEIGHT_PIXELS);
    this.body.style.height = `${this.height}px`;
    this.element.style.setProperty("--rows", Math.min(rows, 1000));
    if (isNew) {
      this.anchorCell = null;
      this.activeCell.row = 0;
      this.scrollToRow(0);
    }
    this.activeCell.row = Math.max(Math.min(this.activeCell.row, rows - 1), 0);
    this.activeCell.column = Math.max(Math.min(this.activeCell.column, columns - 1), 0);
  }

  setWidths(firstColumn, widths) {
    for (const [offset, width] of widths.entries()) {
      const column = firstColumn + offset;
      this.widths[column] = column < this.source.pinnedCount ? Math.max(this.widths[column] ?? 0, width) : (this.widths[column] ?? width);
    }
    this.columnLefts = [0];
    for (let column = 0; column < this.columns; column++) this.columnLefts.push(this.columnLefts[column] + (this.widths[column] ?? DEFAULT_WIDTH_PIXELS));
    this.body.style.width = this.head.style.width = `${this.columnLefts[this.columns]}px`;
    this.head.columns = null;
  }

  /** How many columns are pinned; none if they would leave no room for others. */
  get pinnedCount() {
    const { pinnedCount } = this.source;
    return this.columnLefts[pinnedCount] <= this.element.clientWidth / 2 ? pinnedCount : 0;
  }

  get visibleRows() {
    return Math.max((this.element.clientHeight - this.head.offsetHeight) / ROW_PIXELS, 1);
  }

  get maxTopRow() {
    return Math.max(this.rows - this.visibleRows, 0);
  }

  get isScaled() {
    return this.rows * ROW_PIXELS > MAX_HEIGHT_PIXELS;
  }

  onScroll() {
    if (this.isScaled) {
      // A position that was set here is known more exactly than the scroll bar reports it.
      if (Math.abs(this.element.scrollTop - this.expectedScrollTop) > 1) this.topRow = (this.element.scrollTop / (this.height - this.visibleRows * ROW_PIXELS)) * this.maxTopRow;
    } else this.topRow = this.element.scrollTop / ROW_PIXELS;
    // A scroll event comes just before a frame is drawn.
    this.draw();
  }

  scrollToRow(topRow) {
    this.topRow = Math.max(Math.min(topRow, this.maxTopRow), 0);
    this.expectedScrollTop = this.isScaled ? (this.topRow / this.maxTopRow) * (this.height - this.visibleRows * ROW_PIXELS) : this.topRow * ROW_PIXELS;
    this.element.scrollTop = this.expectedScrollTop;
    this.expectedScrollTop = this.element.scrollTop;
    this.scheduleDraw();
  }

  onWheel(event) {
    if (!this.isScaled || event.ctrlKey || event.shiftKey || !event.deltaY) return;
    event.preventDefault();
    this.scrollToRow(this.topRow + event.deltaY / (event.deltaMode ? 1 : ROW_PIXELS));
  }

  scheduleDraw() {
    if (this.isDrawScheduled) return;
    this.isDrawScheduled = true;
    requestAnimationFrame(() => {
      this.isDrawScheduled = false;
      this.draw();
    });
  }

  draw() {
    if (this.rows === undefined || !this.element.clientWidth) return;
    const leftPixels = this.element.scrollLeft, rightPixels = leftPixels + this.element.clientWidth;
    const { pinnedCount } = this;
    let firstColumn = pinnedCount;
    while (firstColumn < this.columns - 1 && this.columnLefts[firstColumn + 1] - this.columnLefts[pinnedCount] <= leftPixels) firstColumn++;
    let endColumn = firstColumn + 1;
    while (endColumn < this.columns && this.columnLefts[endColumn] < rightPixels) endColumn++;
    const firstRow = Math.max(Math.floor(this.topRow) - EXTRA_ROWS, 0);
    const endRow = Math.min(Math.ceil(this.topRow + this.visibleRows) + EXTRA_ROWS, this.rows);
    const rows = [];
    endColumn = Math.max(endColumn, pinnedCount);
    const columns = [...Array(pinnedCount).keys(), ...Array.from({ length: Math.max(endColumn - firstColumn, 0) }, (_, offset) => firstColumn + offset)];
    for (let row = firstRow; row < endRow; row++) rows.push(this.drawRow(row, columns));
    this.body.replaceChildren(...rows);
    if (this.head.columns?.join() !== columns.join()) this.drawHead(columns);
    this.element.setAttribute("aria-activedescendant", this.idOf(this.activeCell));
    this.source.onRangeShown({ firstRow, endRow, firstColumn, endColumn });
  }

  drawHead(columns = this.head.columns ?? []) {
    this.head.columns = columns;
    const cells = columns.map((column) => this.placeCell(this.source.heading(column), column));
    const focused = this.head.contains(document.activeElement) ? document.activeElement : null;
    const column = focused?.closest("[aria-colindex]").getAttribute("aria-colindex");
    this.head.replaceChildren(...cells);
    if (focused) this.head.querySelector(`[aria-colindex="${column}"] .${focused.classList[0]}`)?.focus({ preventScroll: true });
  }

  placeCell(cell, column) {
    cell.style.insetInlineStart = `${this.columnLefts[column]}px`;
    cell.classList.toggle("pinned", column < this.pinnedCount);
    cell.style.width = `${this.widths[column] ?? DEFAULT_WIDTH_PIXELS}px`;
    cell.setAttribute("aria-colindex", column + 1);
    return cell;
  }

  drawRow(rowIndex, columns) {
    const cells = [];
    for (const column of columns) {
      const text = this.source.cellText(rowIndex, column);
      const className = text === undefined ? "unknown" : text === null ? "missing" : this.source.isRightAligned(column) ? "end" : "";
      const position = { row: rowIndex, column };
      cells.push(this.placeCell(el("div", { role: "gridcell", id: this.idOf(position), class: className, dir: text ? "auto" : null,
        "aria-selected": this.isSelected(position) ? "true" : null, "data-row": rowIndex, "data-column": column },
        text === undefined ? "" : text ?? "missing"), column));
    }
    const rowElement = el("div", { role: "row", class: rowIndex % 2 ? "grid-row odd" : "grid-row", "aria-rowindex": rowIndex + 2 }, cells);
    rowElement.style.transform = `translateY(${this.element.scrollTop + (rowIndex - this.topRow) * ROW_PIXELS}px)`;
    return rowElement;
  }

  idOf({ row, column }) {
    return `${this.name}-${row}-${column}`;
  }

  /** The cells that are selected, from the first to the one after the last. */
  get selection() {
    const anchorCell = this.anchorCell ?? this.activeCell, activeCell = this.activeCell;
    return {
      firstRow: Math.min(anchorCell.row, activeCell.row), endRow: Math.max(anchorCell.row, activeCell.row) + 1,
      firstColumn: Math.min(anchorCell.column, activeCell.column), endColumn: Math.max(anchorCell.column, activeCell.column) + 1,
    };
  }

  isSelected({ row, column }) {
    const { firstRow, endRow, firstColumn, endColumn } = this.selection;
    return row >= firstRow && row < endRow && column >= firstColumn && column < endColumn;
  }

  onMouseDown(event) {
    const cell = event.target.closest("[data-row]");
    if (cell && event.button === 0) this.selectCell({ row: Number(cell.dataset.row), column: Number(cell.dataset.column) }, event.shiftKey);
  }

  selectCell(position, isExtending) {
    this.anchorCell = isExtending ? this.anchorCell ?? this.activeCell : null;
    this.activeCell = { row: Math.max(Math.min(position.row, this.rows - 1), 0), column: Math.max(Math.min(position.column, this.columns - 1), 0) };
    this.scrollToActiveCell();
    this.scheduleDraw();
    this.source.onCellChosen(this.activeCell);
  }

  scrollToActiveCell() {
    const { row, column } = this.activeCell, element = this.element;
    const leftPixels = this.columnLefts[column], rightPixels = this.columnLefts[column + 1];
    const pinnedPixels = this.columnLefts[this.pinnedCount];
    const isPinned = column < this.pinnedCount;
    if (!isPinned && leftPixels - pinnedPixels < element.scrollLeft) element.scrollLeft = leftPixels - pinnedPixels;
    else if (!isPinned && rightPixels > element.scrollLeft + element.clientWidth) element.scrollLeft = Math.min(leftPixels - pinnedPixels, rightPixels - element.clientWidth);
    const shownRowCount = Math.floor(this.visibleRows);
    if (row < this.topRow) this.scrollToRow(row);
    else if (row >= this.topRow + shownRowCount) this.scrollToRow(row - shownRowCount + 1);
  }

  onKey(event) {
    if (event.target !== this.element || event.altKey) return;
    const { row, column } = this.activeCell, pageRows = Math.floor(this.visibleRows), isToEdge = event.ctrlKey || event.metaKey;
    const target = {
      ArrowDown: [isToEdge ? this.rows : row + 1, column], ArrowUp: [isToEdge ? 0 : row - 1, column],
      ArrowRight: [row, isToEdge ? this.columns : column + 1], ArrowLeft: [row, isToEdge ? 0 : column - 1],
      PageDown: [row + pageRows, column], PageUp: [row - pageRows, column],
      Home: [isToEdge ? 0 : row, 0], End: [isToEdge ? this.rows : row, this.columns],
    }[event.key];
    if (!target) return;
    event.preventDefault();
    this.selectCell({ row: target[0], column: target[1] }, event.shiftKey);
  }
}
