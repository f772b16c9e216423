// What code showed, in order: text, pictures, tables, pages.

import { address, copier, count, el, icon, plain, scrollable } from "./dom.js";
import { formula } from "./formulas.js";
import { Words } from "./markdown.js";
import { Terminal } from "./terminal.js";

const NUMERIC = /^\s*[-+]?(?:[\d,. ]+(?:e[-+]?\d+)?%?|nan|inf|<NA>|None)\s*$/i;
const FIGURE = /^<?Figure(?:: | size\b)/;
const TALLEST = 900;
const SHORT = 40;
const frames = new Map();

// A page says how tall it is. It is believed within bounds, and about itself alone.
addEventListener("message", (event) => {
  const frame = frames.get(event.source);
  const height = Number(event.data?.height);
  if (frame && Number.isFinite(height)) frame.style.height = `${Math.min(Math.max(height, 48), TALLEST)}px`;
});

export class Outputs {
  /** @param {Map<string, Set<{redraw: Function}>>} displays by id, of the whole conversation
   * @param {(message: object) => void} say */
  constructor(displays, say) {
    this.element = el("div", { class: "outputs" });
    this.displays = displays;
    this.say = say;
    this.terminal = null;
    this.isToClear = false;
  }

  get isEmpty() {
    return this.element.childElementCount === 0;
  }

  print(stream, text) {
    this.clearIfDue();
    if (this.terminal?.stream !== stream) {
      this.terminal = new Terminal(stream);
      this.element.append(this.terminal.element);
    }
    this.terminal.write(text);
  }

  show(event) {
    if (event.type === "clear") {
      this.isToClear = true;
      if (!event.wait) this.clearIfDue();
      return;
    }
    if (event.update && this.replace(event)) return;
    this.clearIfDue();
    this.terminal = null;
    const place = el("div", { class: `output ${event.type}` }, drawn(event, this.say));
    this.element.append(place);
    if (event.display) {
      if (!this.displays.has(event.display)) this.displays.set(event.display, new Set());
      this.displays.get(event.display).add(place);
    }
  }

  add(node) {
    this.terminal = null;
    this.element.append(node);
  }

  /** Make little of the error by which code is stopped: the person wanted it. */
  calm() {
    const last = this.element.querySelector(":scope > .error:last-child details");
    if (!last?.querySelector("summary").textContent.startsWith("KeyboardInterrupt")) return;
    last.open = false;
    last.parentNode.classList.add("calm");
    last.querySelector("summary").replaceChildren("Where it was stopped");
  }

  replace(event) {
    const places = [...(this.displays.get(event.display) ?? [])].filter((place) => place.isConnected);
    for (const place of places) {
      place.className = `output ${event.type}`;
      place.replaceChildren(drawn(event, this.say));
    }
    return places.length > 0;
  }

  clearIfDue() {
    if (!this.isToClear) return;
    this.isToClear = false;
    this.terminal = null;
    this.element.replaceChildren();
  }
}

function drawn(event, say) {
  switch (event.type) {
    case "error":
      return failure(event);
    case "picture":
      return picture(event);
    case "page":
      return page(event);
    case "table":
      return table(event, say);
    case "formula":
      return el("figure", {}, typeset(event.latex), tools(copier(() => event.latex, "Copy LaTeX")));
    case "markdown":
      return words(event.text);
    case "notice":
      return el("p", { class: "notice" }, event.text);
    default:
      return scrollable(el("pre", { class: `value ${event.type}`, dir: "auto" }, event.text));
  }
}

function words(text) {
  const shown = new Words();
  shown.set(text);
  return shown.element;
}

/** What code shows as LaTeX: one formula, or words with some in them. */
function typeset(latex) {
  const whole = /^\s*(?:\$\$([^$]+)\$\$|\$([^$]+)\$|\\\[([^]+)\\\])\s*$/.exec(latex);
  return whole ? formula(whole[1] ?? whole[2] ?? whole[3], latex.trim(), true) : words(latex);
}

function failure(event) {
  const said = event.message ? `${event.name}: ${event.message}` : event.name;
  const trace = el("details", {}, el("summary", {}, el("strong", { dir: "auto" }, said.slice(0, 500))),
    scrollable(el("pre", {}, withoutLast(event.traceback, said))));
  trace.open = true;
  return trace;
}

/** A traceback without its last words, which are shown above it. */
function withoutLast(traceback, words) {
  const trace = traceback.trimEnd();
  const [last] = /(?<=\n).*$/.exec(trace) ?? [];
  if (trace !== words && trace.endsWith(words)) return trace.slice(0, -words.length).trimEnd();
  return last && words.startsWith(last) ? trace.slice(0, -last.length).trimEnd() : trace;
}

function tools(...links) {
  return el("div", { class: "output-tools" }, links);
}

function link(words, glyph, href, properties = {}) {
  return el("a", { class: "small", href, ...properties }, icon(glyph), el("span", {}, words));
}

/** What a display says it is about, as the name of a file; empty if it says nothing of use. */
function titleOf(text) {
  const line = (text ?? "").replace(FIGURE, "").split("\n")[0].trim();
  return /^<.*>$|^Figure\(/.test(line) ? "" : plain(line).slice(0, 80);
}

function picture(event) {
  const query = { sha256: event.sha256, suffix: event.suffix };
  const where = address("/picture", query), title = titleOf(event.plain);
  const save = address("/output", { ...query, title: title || "picture" });
  const image = el("img", { src: where, class: FIGURE.test(event.plain) ? "figure" : null, alt: event.plain || "Picture", loading: "lazy", onerror: gone });
  function gone() {
    image.replaceWith(el("p", { class: "notice" }, "This picture is no longer kept."));
  }
  return el("figure", {},
    el("a", { href: where, target: "_blank", rel: "noopener", title: "Enlarge", "data-enlarged": title || "Picture", "data-save": save }, image),
    tools(link("Download", "down", save)));
}

/** A page of somebody else's, behind walls: see sandboxed_displays.py. */
export function framed(query, title) {
  const frame = el("iframe", { title, sandbox: "allow-scripts", loading: "lazy", src: address("/frame", query), onload: known });
  function known() {
    for (const [key, one] of frames) if (!one.isConnected) frames.delete(key);
    frames.set(frame.contentWindow, frame);
  }
  return frame;
}

function page(event) {
  const query = { sha256: event.sha256 };
  return el("figure", {},
    framed(query, event.plain || "Interactive output"),
    tools(
      link("Open", "open", address("/view", query), { target: "_blank", rel: "noopener" }),
      link("Download", "down", address("/output", { ...query, suffix: "html", title: titleOf(event.plain) || "page" })),
    ));
}

function table(event, say) {
  const numeric = event.columns.map((_, place) => event.rows.length > 0 && event.rows.every((row) => NUMERIC.test(row[place] ?? "")));
  const side = (place) => (numeric[place] && place >= event.index_count ? "end" : "start");
  const cell = (row, place) =>
    place < event.index_count
      ? el("th", { scope: "row", dir: "auto" }, opened(row[place]))
      : el("td", { class: side(place), dir: "auto" }, opened(row[place]));
  // A heading without words is none.
  const head = el("tr", {}, event.columns.map((name, place) =>
    name ? el("th", { scope: "col", class: side(place), dir: "auto" }, opened(name)) : el("td", {})));
  const rows = event.rows.map((row) => el("tr", {}, row.map((_, place) => cell(row, place))));
  const asText = () => [event.columns, ...event.rows].map((row) => row.join("\t")).join("\n");
  const still = scrollable(el("div", { class: "wide-table" }, el("table", { class: "data" }, el("thead", {}, head), el("tbody", {}, rows))));
  const size = el("span", { class: "muted" }, extent(event));
  const copy = copier(asText);
  const said = el("div", { class: "output-tools" }, size, copy);
  if (event.handle) said.append(...ofWhole(event, { still, size, copy, say }));
  return el("figure", {}, still, said);
}

/** What can be done with a table of which Python has more, as long as it has it. */
function ofWhole(event, { still, size, copy, say }) {
  const save = (suffix) => () => dispatchEvent(new CustomEvent("table", { detail: { table: event.handle, suffix } }));
  const button = (words, glyph, onclick) => el("button", { type: "button", class: "small", onclick }, icon(glyph), el("span", {}, words));
  const explore = button("Explore", "filter", open);
  async function open() {
    const { LiveTable } = await import("./tables.js");
    const live = new LiveTable(event, { say, gone, close: () => gone("") });
    live.element.addEventListener("keydown", (pressed) => pressed.key === "Escape" && !live.room && (pressed.stopPropagation(), gone("")));
    still.replaceWith(live.element);
    for (const one of [explore, size, copy]) one.hidden = true;
    live.search.focus();
    function gone(sentence) {
      live.element.replaceWith(still);
      for (const one of [explore, size, copy]) one.hidden = false;
      size.textContent = [extent(event), sentence].filter(Boolean).join(". ");
      explore.focus();
    }
  }
  return [explore, button("All as CSV", "down", save("csv")), button("Parquet", "down", save("parquet"))];
}

/** A long text of a cell stands on one line until somebody wants to read it. */
function opened(text) {
  if (text.length <= SHORT && !text.includes("\n")) return text;
  const button = el("button", { type: "button", class: "long", "aria-expanded": "false", title: "Show all of it", onclick: turn }, text);
  function turn() {
    button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") === "false"));
  }
  return button;
}

/** Say how large a table is, and which part of it is here. */
function extent({ columns, rows, row_count: allRows, column_count: allColumns, index_count: index }) {
  const parts = [];
  if (rows.length < allRows) parts.push(count(rows.length, "row", "rows"));
  if (columns.length - index < allColumns) parts.push(count(columns.length - index, "column", "columns"));
  const size = `${count(allRows, "row", "rows")} × ${count(allColumns, "column", "columns")}`;
  return parts.length ? `${size}, the first ${parts.join(" and ")} shown` : size;
}
