// Printed text as a terminal shows it: a carriage return goes back to the start of the line, so
// that a progress bar is one line that changes.

import { scrollable } from "./dom.js";

const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\u0007\u001b\n]*(?:\u0007|\u001b\\)?|[ -/]*[0-~]?)|[\u0000-\u0007\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f]/g;

export class Terminal {
  constructor(stream) {
    this.stream = stream;
    this.element = scrollable(document.createElement("pre"));
    this.element.className = `printed ${stream}`;
    this.element.dir = "auto";
    this.lines = document.createTextNode("");
    this.last = document.createTextNode("");
    this.element.append(this.lines, this.last);
    this.line = [];
    this.column = 0;
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
    const isAtEnd = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 8;
    const text = this.waiting.replace(ESCAPES, "").replace(/\r+\n/g, "\n");
    this.waiting = "";
    // What comes next may be the line feed that belongs to it.
    const end = text.endsWith("\r") ? text.length - 1 : text.length;
    if (end < text.length) this.waiting = "\r";
    this.take(text.slice(0, end));
    if (isAtEnd) this.element.scrollTop = this.element.scrollHeight;
  }

  take(text) {
    let done = "";
    for (const part of text.split(/([\n\r\b])/)) {
      if (part === "\n") {
        done += this.line.join("") + "\n";
        this.line = [];
        this.column = 0;
      } else if (part === "\r") this.column = 0;
      else if (part === "\b") this.column = Math.max(0, this.column - 1);
      else if (part) this.put(Array.from(part));
    }
    if (done) this.lines.appendData(done);
    this.last.data = this.line.join("");
  }

  put(characters) {
    for (const character of characters) this.line[this.column++] = character;
  }
}
