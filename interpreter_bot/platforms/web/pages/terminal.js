// Printed text as a terminal shows it: a carriage return goes back to the start of the line, so
// that a progress bar is one line that changes. Colours are kept; other escapes are removed.

import { styledSpan, applySgr } from "./ansi.js";
import { el, makeScrollable } from "./dom.js";
import { outputWords } from "./words.js";

const ESCAPES = /(?!\u001b\[[\d;:]{0,64}m)(?:\u001b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\u0007\u001b\n]*(?:\u0007|\u001b\\)?|[ -/]*[0-~]?)|[\u0000-\u0007\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f])/g;
const CONTROL_PARTS = /([\n\r\b]|\u001b\[[\d;:]*m)/;
const MAX_SPANS = 4000;
const MAX_LINE_SPANS = 400;

function isAtEnd({ scrollTop, clientHeight, scrollHeight }) {
  return scrollTop + clientHeight >= scrollHeight - 8;
}

export class Terminal {
  constructor(stream) {
    this.stream = stream;
    this.pre = makeScrollable(el("pre", { class: `printed ${stream}`, dir: "auto" }));
    this.expandLabel = el("span", {});
    this.expandButton = el("button", { type: "button", class: "small", hidden: true, onclick: () => this.toggleHeight() }, this.expandLabel);
    this.element = el("div", { class: "printed-box" }, this.expandButton, this.pre);
    this.lastLine = document.createElement("span");
    this.pre.append(this.lastLine);
    this.lineCount = 0;
    this.isAtEnd = true;
    this.pre.addEventListener("scroll", () => (this.isAtEnd = isAtEnd(this.pre)), { passive: true });
    // The output of past turns gets its size later.
    new ResizeObserver(() => this.scrollToEnd()).observe(this.pre);
    this.characters = [];
    this.styles = [];
    this.column = 0;
    this.style = null;
    this.spanCount = 0;
    this.finishedText = "";
    this.unwrittenText = "";
    this.isScheduled = false;
  }

  write(text) {
    this.unwrittenText += text;
    // The output of past turns is complete already.
    if (!this.element.isConnected) return this.draw();
    if (this.isScheduled) return;
    this.isScheduled = true;
    // Hidden tabs get no animation frames.
    if (document.hidden) setTimeout(() => this.draw(), 100);
    else requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.isScheduled = false;
    const text = this.unwrittenText.replace(ESCAPES, "").replace(/\r+\n/g, "\n");
    this.unwrittenText = "";
    // A line feed may follow, which belongs to the carriage return.
    const completeLength = text.endsWith("\r") ? text.length - 1 : text.length;
    if (completeLength < text.length) this.unwrittenText = "\r";
    this.applyText(text.slice(0, completeLength));
    this.scrollToEnd();
  }

  /** Scroll to the end, unless somebody reads earlier lines, and say that there is more. */
  scrollToEnd() {
    if (this.isAtEnd) this.pre.scrollTop = this.pre.scrollHeight;
    const isOpen = this.element.classList.contains("is-open");
    const isCut = this.pre.scrollHeight > this.pre.clientHeight + 1;
    this.expandButton.hidden = !isCut && !isOpen;
    this.expandButton.setAttribute("aria-expanded", String(isOpen));
    const lineCount = this.lineCount + (this.characters.length > 0);
    this.expandLabel.textContent = isOpen ? outputWords.showEnd : outputWords.showAll(lineCount);
  }

  toggleHeight() {
    this.element.classList.toggle("is-open");
    this.isAtEnd = true;
    this.scrollToEnd();
  }

  applyText(text) {
    for (const part of text.split(CONTROL_PARTS)) {
      if (part === "\n") this.endLine();
      else if (part === "\r") this.column = 0;
      else if (part === "\b") this.column = Math.max(0, this.column - 1);
      else if (part[0] === "\u001b") this.style = applySgr(this.style, part.slice(2, -1));
      else if (part) this.writeCharacters(Array.from(part));
    }
    this.flush();
    this.lastLine.replaceChildren(...this.lineNodes());
  }

  writeCharacters(characters) {
    for (const character of characters) {
      if (this.style || this.styles.length) this.styles[this.column] = this.style;
      this.characters[this.column++] = character;
    }
  }

  /** End a line: it stays as it is. */
  endLine() {
    this.lineCount += 1;
    if (this.styles.length && this.spanCount < MAX_SPANS) {
      const nodes = this.lineNodes();
      this.spanCount += nodes.length;
      this.flush();
      this.lastLine.before(...nodes);
      this.finishedText = "\n";
    } else this.finishedText += `${this.characters.join("")}\n`;
    this.characters = [];
    this.styles = [];
    this.column = 0;
  }

  /** Show the lines that have no colours. */
  flush() {
    if (!this.finishedText) return;
    const previousNode = this.lastLine.previousSibling;
    if (previousNode?.nodeType === Node.TEXT_NODE) previousNode.appendData(this.finishedText);
    else this.lastLine.before(this.finishedText);
    this.finishedText = "";
  }

  /** The present line, in as many pieces as it has styles. */
  lineNodes() {
    if (!this.styles.length || this.spanCount >= MAX_SPANS) return [this.characters.join("")];
    const nodes = [];
    for (let start = 0, end = 1; start < this.characters.length; end++)
      if (end === this.characters.length || this.styles[end] !== this.styles[start]) {
        const text = this.characters.slice(start, end).join("");
        nodes.push(this.styles[start] ? styledSpan(text, this.styles[start]) : text);
        start = end;
        // So many would keep the browser busy for seconds.
        if (nodes.length > MAX_LINE_SPANS) return [this.characters.join("")];
      }
    return nodes;
  }
}
