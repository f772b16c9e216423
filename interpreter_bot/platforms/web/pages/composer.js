// Where people write: words or Python, with files that are on their way or there already.

import { $, el, icon } from "./dom.js";
import { Uploads } from "./uploads.js";

export class Composer {
  constructor({ send, stop, say }) {
    Object.assign(this, { send, stop, say });
    this.limits = { text_characters: 100_000, upload_bytes: 0, models: null };
    this.field = $("message");
    this.thread = "";
    this.isCode = false;
    this.uploads = new Uploads({ complain: (text) => this.complain(text), changed: () => this.keep() });
    $("attach").append(icon("clip"));
    $("send").append(icon("send"));
    $("stop").append(icon("stop"), el("span", {}, "Stop"));
    $("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    $("stop").addEventListener("click", () => this.stop());
    $("python").addEventListener("click", () => this.setCode(!this.isCode, { isFocused: true }));
    $("attach").addEventListener("click", () => $("picker").click());
    $("picker").addEventListener("change", (event) => {
      this.take(event.target.files);
      event.target.value = "";
    });
    this.field.addEventListener("input", () => this.edited());
    this.field.addEventListener("keydown", (event) => this.key(event));
    this.field.addEventListener("paste", (event) => this.pasted(event));
  }

  /** Go to a conversation, with what was written there and not sent. */
  open(thread) {
    this.thread = thread;
    const draft = JSON.parse(sessionStorage.getItem(`draft-${thread}`) ?? "{}");
    this.field.value = draft.text ?? "";
    this.isNew = draft.isCode === undefined;
    this.setCode(draft.isCode ?? this.limits.models?.length === 0);
    this.uploads.open(thread, draft.files ?? []);
    this.complain("");
    this.fit();
  }

  /** Hear what holds for everything. */
  know(limits) {
    const isFirst = this.limits.models === null;
    this.limits = limits;
    this.uploads.most = limits.upload_bytes;
    if (isFirst && this.isNew && limits.models.length === 0) this.setCode(true);
  }

  setCode(isCode, { isFocused = false } = {}) {
    this.isCode = isCode;
    $("python").setAttribute("aria-pressed", String(isCode));
    $("composer").classList.toggle("is-code", isCode);
    this.field.spellcheck = !isCode;
    this.field.dir = isCode ? "ltr" : "auto";
    this.field.placeholder = isCode ? "Python to run" : "Ask about your data, or drop a file";
    const mod = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";
    $("hint").textContent = isCode ? `${mod} + Enter runs` : "Enter sends · Shift + Enter for a new line";
    this.fit();
    this.keep();
    if (isFocused) this.field.focus();
  }

  edited() {
    this.fit();
    this.keep();
    this.complain("");
  }

  keep() {
    if (!this.thread) return;
    const draft = { text: this.field.value.slice(0, 1_000_000), isCode: this.isCode, files: this.uploads.done() };
    try {
      if (draft.text || draft.files.length) sessionStorage.setItem(`draft-${this.thread}`, JSON.stringify(draft));
      else sessionStorage.removeItem(`draft-${this.thread}`);
    } catch (error) {
      // Full: what is written is still in the field, only not kept for a reload.
      if (error.name !== "QuotaExceededError") throw error;
    }
  }

  fit() {
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight, innerHeight * 0.4)}px`;
  }

  key(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey || (!this.isCode && !event.shiftKey))) {
      event.preventDefault();
      this.submit();
    } else if (event.key === "Tab" && this.isCode && !event.shiftKey && !this.isLeaving) {
      event.preventDefault();
      this.field.setRangeText("    ", this.field.selectionStart, this.field.selectionEnd, "end");
      this.edited();
    }
    // After Escape, Tab goes on to the next control, for those who have no mouse.
    this.isLeaving = event.key === "Escape";
  }

  pasted(event) {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    this.take(event.clipboardData.files);
  }

  take(files) {
    this.complain("");
    this.uploads.add(files);
    this.field.focus();
  }

  submit() {
    const text = this.field.value;
    const files = this.uploads.done();
    const most = this.limits.text_characters;
    if (this.uploads.isBusy) return this.complain("The upload is not finished yet.");
    if (!text.trim() && !files.length) return this.complain("Please write something first.");
    if (!text.trim() && this.isCode) return this.complain("Please write the code to run.");
    if (text.length > most)
      return this.complain(
        `Your message has ${text.length.toLocaleString("en")} characters, and ${most.toLocaleString("en")} is the most. Please save it as a file and attach it.`);
    if (!this.send({ text, files, is_code: this.isCode })) return this.complain("There is no connection right now. Your message is kept.");
    this.field.value = "";
    this.uploads.clear();
    this.edited();
  }

  /** Give back what was refused, unless something new was written meanwhile. */
  restore({ text, files, is_code: isCode }) {
    this.field.value = this.field.value.trim() ? `${text}\n${this.field.value}` : text;
    this.setCode(isCode);
    this.uploads.open(this.thread, [...new Set([...files, ...this.uploads.done()])]);
    this.fit();
    this.keep();
    this.field.focus();
  }

  write(text, isCode = false) {
    this.field.value = text;
    this.setCode(isCode, { isFocused: true });
  }

  complain(text) {
    $("complaint").hidden = !text;
    $("complaint").textContent = text;
    if (text) this.field.focus();
  }

  showRunning(isRunning) {
    $("stop").hidden = !isRunning;
  }
}
