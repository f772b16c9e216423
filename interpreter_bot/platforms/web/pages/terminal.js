// Printed text as a terminal shows it: a carriage return goes back to the start of the line, so
// that a progress bar is one line that changes. Colours are kept, of other escapes nothing.

import { dyed, restyled } from "./ansi.js";
import { el, scrollable } from "./dom.js";
import { outputWords } from "./words.js";

const ESCAPES = /(?!\u001b\[[\d;:]{0,64}m)(?:\u001b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\u0007\u001b\n]*(?:\u0007|\u001b\\)?|[ -/]*[0-~]?)|[\u0000-\u0007\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f])/g;
const PARTS = /([\n\r\b]|\u001b\[[\d;:]*m)/;
const MAX_SPANS = 4000;
const MAX_OF_A_LINE = 400;

function isAtEnd({ scrollTop, clientHeight, scrollHeight }) {
  return scrollTop + clientHeight >= scrollHeight - 8;
}

export class Terminal {
  constructor(stream) {
    this.stream = stream;
    this.pre = scrollable(el("pre", { class: `printed ${stream}`, dir: "auto" }));
    this.words = el("span", {});
    this.more = el("button", { type: "button", class: "small", hidden: true, onclick: () => this.open() }, this.words);
    this.element = el("div", { class: "printed-box" }, this.more, this.pre);
    this.last = document.createElement("span");
    this.pre.append(this.last);
    this.lines = 0;
    this.isAtEnd = true;
    this.pre.addEventListener("scroll", () => (this.isAtEnd = isAtEnd(this.pre)), { passive: true });
    // Past output is laid out later.
    new ResizeObserver(() => this.follow()).observe(this.pre);
    this.line = [];
    this.styles = [];
    this.column = 0;
    this.style = null;
    this.spans = 0;
    this.done = "";
    this.waiting = "";
    this.isScheduled = false;
  }

  write(text) {
    this.waiting += text;
    // What is told of the past is whole already.
    if (!this.element.isConnected) return this.show();
    if (this.isScheduled) return;
    this.isScheduled = true;
    // In tabs that are not seen there are no frames.
    if (document.hidden) setTimeout(() => this.show(), 100);
    else requestAnimationFrame(() => this.show());
  }

  show() {
    this.isScheduled = false;
    const text = this.waiting.replace(ESCAPES, "").replace(/\r+\n/g, "\n");
    this.waiting = "";
    // What comes next may be the line feed that belongs to it.
    const end = text.endsWith("\r") ? text.length - 1 : text.length;
    if (end < text.length) this.waiting = "\r";
    this.take(text.slice(0, end));
    this.follow();
  }

  /** Scroll to the end, unless somebody reads earlier lines, and say that there is more. */
  follow() {
    if (this.isAtEnd) this.pre.scrollTop = this.pre.scrollHeight;
    const isOpen = this.element.classList.contains("is-open");
    const isCut = this.pre.scrollHeight > this.pre.clientHeight + 1;
    this.more.hidden = !isCut && !isOpen;
    this.more.setAttribute("aria-expanded", String(isOpen));
    const lines = this.lines + (this.line.length > 0);
    this.words.textContent = isOpen ? outputWords.showEnd : outputWords.showAll(lines);
  }

  open() {
    this.element.classList.toggle("is-open");
    this.isAtEnd = true;
    this.follow();
  }

  take(text) {
    for (const part of text.split(PARTS)) {
      if (part === "\n") this.end();
      else if (part === "\r") this.column = 0;
      else if (part === "\b") this.column = Math.max(0, this.column - 1);
      else if (part[0] === "\u001b") this.style = restyled(this.style, part.slice(2, -1));
      else if (part) this.put(Array.from(part));
    }
    this.flush();
    this.last.replaceChildren(...this.drawn());
  }

  put(characters) {
    for (const character of characters) {
      if (this.style || this.styles.length) this.styles[this.column] = this.style;
      this.line[this.column++] = character;
    }
  }

  /** End a line: it stays as it is. */
  end() {
    this.lines += 1;
    if (this.styles.length && this.spans < MAX_SPANS) {
      const nodes = this.drawn();
      this.spans += nodes.length;
      this.flush();
      this.last.before(...nodes);
      this.done = "\n";
    } else this.done += `${this.line.join("")}\n`;
    this.line = [];
    this.styles = [];
    this.column = 0;
  }

  /** Show the lines that have no colours. */
  flush() {
    if (!this.done) return;
    const before = this.last.previousSibling;
    if (before?.nodeType === Node.TEXT_NODE) before.appendData(this.done);
    else this.last.before(this.done);
    this.done = "";
  }

  /** The present line, in as many pieces as it has styles. */
  drawn() {
    if (!this.styles.length || this.spans >= MAX_SPANS) return [this.line.join("")];
    const nodes = [];
    for (let from = 0, to = 1; from < this.line.length; to++)
      if (to === this.line.length || this.styles[to] !== this.styles[from]) {
        const text = this.line.slice(from, to).join("");
        nodes.push(this.styles[from] ? dyed(text, this.styles[from]) : text);
        from = to;
        // So many would keep the browser busy for seconds.
        if (nodes.length > MAX_OF_A_LINE) return [this.line.join("")];
      }
    return nodes;
  }
}
