// Outputs of code, in order: text, pictures, tables, pages.

import { address, copier, el, icon, isDark, plain, scrollable } from "./dom.js";
import { formula } from "./formulas.js";
import { Words } from "./markdown.js";
import { Terminal } from "./terminal.js";
import { buttonWords, outputWords, turnWords } from "./words.js";

const FIGURE = /^<?Figure(?:: | size\b)/;
const TALLEST = 900;
const frames = new Map();

// A page reports its height, which is accepted within limits, and only for the page itself.
addEventListener("message", (event) => {
  const frame = frames.get(event.source);
  const height = Number(event.data?.height);
  if (frame && Number.isFinite(height)) frame.style.height = `${Math.min(Math.max(height, 48), TALLEST)}px`;
});

// Pages are loaded again when the colours change, as charts have colours of their own.
function redrawPages() {
  for (const frame of document.querySelectorAll("iframe[src^='/frame?']")) {
    const source = themed(frame.getAttribute("src"));
    if (source !== frame.getAttribute("src")) frame.src = source;
  }
}

function themed(source) {
  return source.replace(/&theme=dark$/, "") + (isDark() ? "&theme=dark" : "");
}

addEventListener("theme", redrawPages);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawPages);

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
    const place = el("div", {});
    this.draw(event, place);
    this.element.append(place);
    if (event.display_id) {
      if (!this.displays.has(event.display_id)) this.displays.set(event.display_id, new Set());
      this.displays.get(event.display_id).add(place);
    }
  }

  add(node) {
    this.terminal = null;
    this.element.append(node);
  }

  /** Show the error of stopped code as a note, as the person stopped it. */
  calm() {
    const last = this.element.querySelector(":scope > .error:last-child details");
    if (!last?.querySelector("summary").textContent.startsWith("KeyboardInterrupt")) return;
    last.open = false;
    last.parentNode.classList.add("calm");
    last.querySelector("summary").replaceChildren(turnWords.stoppedHere);
  }

  replace(event) {
    const places = [...(this.displays.get(event.display_id) ?? [])].filter((place) => place.isConnected);
    for (const place of places) this.draw(event, place);
    return places.length > 0;
  }

  /** Draw an output in its place; the module of tables is fetched with the first of them. */
  async draw(event, place) {
    place.className = `output ${event.type}`;
    place.event = event;
    const node = event.type === "table" ? (await import("./table_outputs.js")).table(event, this.say) : drawn(event);
    // It may have been updated since.
    if (place.event === event) place.replaceChildren(node);
  }

  clearIfDue() {
    if (!this.isToClear) return;
    this.isToClear = false;
    this.terminal = null;
    this.element.replaceChildren();
  }
}

function drawn(event) {
  switch (event.type) {
    case "error":
      return failure(event);
    case "image":
      return picture(event);
    case "html":
      return page(event);
    case "latex":
      return el("figure", {}, typeset(event.latex), tools(copier(() => event.latex, outputWords.copyLatex)));
    case "markdown":
      return words(event.text);
    case "notice":
      return el("p", { class: "notice" }, event.text);
    default:
      return scrollable(el("pre", { class: `value ${event.type}`, dir: "auto" }, event.json ?? event.text));
  }
}

function words(text) {
  const shown = new Words();
  shown.set(text);
  return shown.element;
}

/** LaTeX that code shows: one formula, or text with formulas. */
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

/** Return a traceback without its last line, which is shown above it. */
function withoutLast(traceback, words) {
  const trace = traceback.trimEnd();
  const [last] = /(?<=\n).*$/.exec(trace) ?? [];
  // The name may follow that of its module.
  if (trace !== words && trace.endsWith(words)) return trace.slice(0, -words.length).replace(/[\w.]+$/, "").trimEnd();
  return last && words.startsWith(last) ? trace.slice(0, -last.length).trimEnd() : trace;
}

function tools(...links) {
  return el("div", { class: "output-tools" }, links);
}

function link(words, glyph, href, properties = {}) {
  return el("a", { class: "small", href, ...properties }, icon(glyph), el("span", {}, words));
}

/** Return the text of a display as the name of a file; empty if it is of no use. */
function titleOf(text) {
  const line = (text ?? "").replace(FIGURE, "").split("\n")[0].trim();
  return /^<.*>$|^Figure\(/.test(line) ? "" : plain(line).slice(0, 80);
}

function picture(event) {
  const query = { sha256: event.sha256, suffix: event.mime.slice(6).replace("jpeg", "jpg").replace("+xml", "") };
  const source = address("/picture", query), title = titleOf(event.text);
  const save = address("/output", { ...query, title: title || "picture" });
  const image = el("img", { src: source, alt: event.text || outputWords.picture, loading: "lazy", onerror: gone });
  function gone() {
    image.replaceWith(el("p", { class: "notice" }, outputWords.pictureDeleted));
  }
  return el("figure", {},
    el("a", { href: source, target: "_blank", rel: "noopener", title: buttonWords.enlarge, "data-enlarged": title || outputWords.picture, "data-save": save }, image),
    tools(link(buttonWords.download, "down", save)));
}

/** A frame with a foreign page in its sandbox; see sandboxed_displays.py. */
export function framed(query, title) {
  const frame = el("iframe", { title, sandbox: "allow-scripts", loading: "lazy", src: themed(address("/frame", query)), onload: register });
  function register() {
    for (const [source, known] of frames) if (!known.isConnected) frames.delete(source);
    frames.set(frame.contentWindow, frame);
  }
  return frame;
}

function page(event) {
  const query = { sha256: event.sha256 };
  return el("figure", {},
    framed(query, event.text || outputWords.interactive),
    tools(
      link(buttonWords.open, "open", address("/view", query), { target: "_blank", rel: "noopener" }),
      link(buttonWords.download, "down", address("/output", { ...query, suffix: "html", title: titleOf(event.text) || "page" })),
    ));
}
