// Where people write: words or Python, with files that are on their way or there already.

import { $, el, icon, plain } from "./dom.js";
import { Uploads } from "./uploads.js";

const INDENT = "    ";

function kept(thread) {
  return JSON.parse(sessionStorage.getItem(`draft-${thread}`) ?? "{}");
}

export class Composer {
  constructor({ send, stop, say }) {
    Object.assign(this, { send, stop, say });
    this.limits = { text_characters: 100_000, upload_bytes: 0, models: null };
    this.field = $("message");
    this.thread = "";
    this.isCode = false;
    this.uploads = new Uploads({ complain: (text) => this.complain(text), changed: (thread) => this.uploaded(thread) });
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
  }

  /** Go to a conversation, with what was written there and not sent. */
  open(thread) {
    this.thread = thread;
    const draft = kept(thread);
    this.field.value = draft.text ?? "";
    this.isNew = draft.isCode === undefined;
    const lost = this.uploads.open(thread, draft.files ?? []) ? [] : (draft.going ?? []);
    this.setCode(draft.isCode ?? this.isUsuallyCode);
    this.complain("");
    if (lost.length) this.complain(`The page was left before this was uploaded: ${lost.map(plain).join(", ")}. Please attach it again.`);
  }

  /** Forget what was written in a conversation that is deleted, and stop what goes there. */
  forget(thread) {
    this.uploads.drop(thread);
    sessionStorage.removeItem(`draft-${thread}`);
    if (thread === this.thread) this.thread = "";
  }

  get isUsuallyCode() {
    return this.limits.models?.length === 0;
  }

  /** In an editor of code Escape means that Tab is to leave it, and never anything else. */
  isEditing(element) {
    return element === this.field && this.isCode;
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

  /** Keep what is written here, or what arrived for another conversation. */
  keep(thread = this.thread) {
    if (!thread) return;
    const written = thread === this.thread ? { text: this.field.value.slice(0, 1_000_000), isCode: this.isCode } : kept(thread);
    const draft = { ...written, files: this.uploads.done(thread), going: this.uploads.going(thread) };
    const isMore = draft.text || draft.files.length || draft.going.length || draft.isCode !== this.isUsuallyCode;
    try {
      if (isMore) sessionStorage.setItem(`draft-${thread}`, JSON.stringify(draft));
      else sessionStorage.removeItem(`draft-${thread}`);
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
    } else if (event.key === "Tab" && this.isCode && !this.isLeaving) {
      event.preventDefault();
      this.indent(event.shiftKey);
    }
    // After Escape, Tab goes on to the next control, for those who have no mouse.
    if (event.key !== "Shift") this.isLeaving = event.key === "Escape";
  }

  /** Move the lines of the selection right or left, as an edit that can be undone. */
  indent(isBack) {
    const { value, selectionStart: from, selectionEnd: to } = this.field;
    if (from === to && !isBack) return this.put(INDENT, from, to);
    const start = from && value.lastIndexOf("\n", from - 1) + 1;
    // A line whose very start is all that is selected of it is not meant.
    const last = value.indexOf("\n", to > from && value[to - 1] === "\n" ? to - 1 : to);
    const end = last < 0 ? value.length : last;
    const before = value.slice(start, end);
    const after = isBack ? before.replace(/^(?: {1,4}|\t)/gm, "") : before.replace(/^(?=.)/gm, INDENT);
    if (after === before) return;
    this.put(after, start, end);
    const shift = after.length - before.length;
    if (from === to) this.field.setSelectionRange(Math.max(start, from + shift), Math.max(start, from + shift));
    else this.field.setSelectionRange(start, end + shift);
  }

  put(text, start, end) {
    this.field.setSelectionRange(start, end);
    // The one way of writing that undoing knows of.
    if (!document.execCommand(text ? "insertText" : "delete", false, text)) this.field.setRangeText(text, start, end, "end");
    this.edited();
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
    if (this.uploads.isBusy) return this.complain("The upload is not finished yet.", "uploads");
    if (!text.trim() && !files.length) return this.complain("Please write something first.");
    if (!text.trim() && this.isCode) return this.complain("Please write the code to run.");
    if (text.length > most)
      return this.complain(
        `Your message has ${text.length.toLocaleString("en")} characters, and ${most.toLocaleString("en")} is the most. Please save it as a file and attach it.`);
    if (!this.send({ text, files, is_code: this.isCode })) return this.complain("There is no connection right now. Your message is kept.", "connection");
    this.field.value = "";
    this.uploads.clear();
    this.edited();
  }

  /** Give back what was refused, unless something new was written meanwhile. */
  restore({ text, files, is_code: isCode }) {
    this.field.value = this.field.value.trim() ? `${text}\n${this.field.value}` : text;
    this.setCode(isCode);
    this.uploads.put(files);
    this.fit();
    this.keep();
    this.field.focus();
  }

  write(text, isCode = false) {
    this.field.value = text;
    this.setCode(isCode, { isFocused: true });
  }

  /** Say what is wrong; `about` is what may settle it. */
  complain(text, about = "") {
    this.about = about;
    $("complaint").hidden = !text;
    $("complaint").textContent = text;
    if (text) this.field.focus();
  }

  settle(about) {
    if (this.about === about) this.complain("");
  }

  uploaded(thread) {
    this.keep(thread);
    if (!this.uploads.isBusy) this.settle("uploads");
  }

  showRunning(isRunning) {
    $("stop").hidden = !isRunning;
  }
}
