// Outputs of code, in order: text, pictures, tables, pages.

import { address, copyButton, el, icon, isDark, cleanText, makeScrollable } from "./dom.js";
import { formula } from "./formulas.js";
import { MarkdownView } from "./markdown.js";
import { Terminal } from "./terminal.js";
import { buttonWords, outputWords, turnWords } from "./words.js";

const FIGURE_PREFIX = /^<?Figure(?:: | size\b)/;
const MAX_HEIGHT_PIXELS = 900;
const MAX_HEADING_CHARACTERS = 500;
const frames = new Map();

// A page reports its height, which is accepted within limits, and only for the page itself.
addEventListener("message", (event) => {
  const frame = frames.get(event.source);
  const height = Number(event.data?.height);
  if (frame && Number.isFinite(height)) frame.style.height = `${Math.min(Math.max(height, 48), MAX_HEIGHT_PIXELS)}px`;
});

// Pages are loaded again when the colours change, as charts have colours of their own.
function redrawPages() {
  for (const frame of document.querySelectorAll("iframe[src^='/frame?']")) {
    const source = withTheme(frame.getAttribute("src"));
    if (source !== frame.getAttribute("src")) frame.src = source;
  }
}

function withTheme(source) {
  return source.replace(/&theme=dark$/, "") + (isDark() ? "&theme=dark" : "");
}

addEventListener("theme", redrawPages);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawPages);

export class Outputs {
  /** `displays` has the places of all displays of the conversation, by their ids. */
  constructor(displays, sendAction) {
    this.element = el("div", { class: "outputs" });
    this.displays = displays;
    this.sendAction = sendAction;
    this.terminal = null;
    this.isClearDue = false;
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
      this.isClearDue = true;
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

  append(node) {
    this.terminal = null;
    this.element.append(node);
  }

  /** Show the error of stopped code as a note, as the person stopped it. */
  softenStopError() {
    const lastError = this.element.querySelector(":scope > .error:last-child details");
    if (!lastError?.querySelector("summary").textContent.startsWith("KeyboardInterrupt")) return;
    lastError.open = false;
    lastError.parentNode.classList.add("calm");
    lastError.querySelector("summary").replaceChildren(turnWords.stoppedHere);
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
    const node = event.type === "table" ? (await import("./table_outputs.js")).tableFigure(event, this.sendAction) : outputNode(event);
    // It may have been updated since.
    if (place.event === event) place.replaceChildren(node);
  }

  clearIfDue() {
    if (!this.isClearDue) return;
    this.isClearDue = false;
    this.terminal = null;
    this.element.replaceChildren();
  }
}

function outputNode(event) {
  switch (event.type) {
    case "error":
      return errorNode(event);
    case "image":
      return pictureFigure(event);
    case "html":
      return pageFigure(event);
    case "latex":
      return el("figure", {}, latexNode(event.latex), toolRow(copyButton(() => event.latex, outputWords.copyLatex)));
    case "markdown":
      return markdownNode(event.text);
    case "notice":
      return el("p", { class: "notice" }, event.text);
    default:
      return makeScrollable(el("pre", { class: `value ${event.type}`, dir: "auto" }, event.json ?? event.text));
  }
}

function markdownNode(text) {
  const view = new MarkdownView();
  view.setText(text);
  return view.element;
}

/** Draw LaTeX that code shows: one formula, or text with formulas. */
function latexNode(latex) {
  const formulaMatch = /^\s*(?:\$\$([^$]+)\$\$|\$([^$]+)\$|\\\[([^]+)\\\])\s*$/.exec(latex);
  return formulaMatch ? formula(formulaMatch[1] ?? formulaMatch[2] ?? formulaMatch[3], latex.trim(), true) : markdownNode(latex);
}

function errorNode(event) {
  const summary = event.message ? `${event.name}: ${event.message}` : event.name;
  const heading = summary.split("\n", 1)[0].slice(0, MAX_HEADING_CHARACTERS);
  // A message of several lines, or a very long one, is read below its beginning.
  const trace = heading === summary ? withoutLastLine(event.traceback, summary) : event.traceback.trimEnd();
  const details = el("details", {}, el("summary", {}, el("strong", { dir: "auto" }, heading)), makeScrollable(el("pre", {}, trace)));
  details.open = true;
  return details;
}

/** Return a traceback without its last line, which is shown above it. */
function withoutLastLine(traceback, summary) {
  const trace = traceback.trimEnd();
  const [lastLine] = /(?<=\n).*$/.exec(trace) ?? [];
  // The name may follow that of its module.
  if (trace !== summary && trace.endsWith(summary)) return trace.slice(0, -summary.length).replace(/[\w.]+$/, "").trimEnd();
  return lastLine && summary.startsWith(lastLine) ? trace.slice(0, -lastLine.length).trimEnd() : trace;
}

function toolRow(...buttons) {
  return el("div", { class: "output-tools" }, buttons);
}

function toolLink(label, iconName, href, properties = {}) {
  return el("a", { class: "small", href, ...properties }, icon(iconName), el("span", {}, label));
}

/** Return the text of a display as the name of a file; empty if it is of no use. */
function fileTitle(text) {
  const line = (text ?? "").replace(FIGURE_PREFIX, "").split("\n")[0].trim();
  return /^<.*>$|^Figure\(/.test(line) ? "" : cleanText(line).slice(0, 80);
}

function pictureFigure(event) {
  const query = { sha256: event.sha256, suffix: event.mime.slice(6).replace("jpeg", "jpg").replace("+xml", "") };
  const pictureAddress = address("/picture", query), title = fileTitle(event.text);
  const saveAddress = address("/output", { ...query, title: title || "picture" });
  const image = el("img", { src: pictureAddress, alt: event.text || outputWords.picture, loading: "lazy", onerror: showDeleted });
  function showDeleted() {
    image.replaceWith(el("p", { class: "notice" }, outputWords.pictureDeleted));
  }
  return el("figure", {},
    el("a", { href: pictureAddress, target: "_blank", rel: "noopener", title: buttonWords.enlarge, "data-enlarged": title || outputWords.picture, "data-save": saveAddress }, image),
    toolRow(toolLink(buttonWords.download, "down", saveAddress)));
}

/** A frame with a foreign page in its sandbox; see sandboxed_displays.py. */
export function pageFrame(query, title) {
  const frame = el("iframe", { title, sandbox: "allow-scripts", loading: "lazy", src: withTheme(address("/frame", query)), onload: register });
  function register() {
    for (const [source, knownFrame] of frames) if (!knownFrame.isConnected) frames.delete(source);
    frames.set(frame.contentWindow, frame);
  }
  return frame;
}

function pageFigure(event) {
  const query = { sha256: event.sha256 };
  return el("figure", {},
    pageFrame(query, event.text || outputWords.interactive),
    toolRow(
      toolLink(buttonWords.open, "open", address("/view", query), { target: "_blank", rel: "noopener" }),
      toolLink(buttonWords.download, "down", address("/output", { ...query, suffix: "html", title: fileTitle(event.text) || "page" })),
    ));
}
