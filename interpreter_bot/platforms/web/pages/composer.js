// Where people write: words or Python, with files that are on their way or there already.

import { $, el, icon, plain } from "./dom.js";
import { buttonWords, composerWords, connectionWords } from "./words.js";

const KEPT = "draft-";

function kept(thread) {
  return JSON.parse(sessionStorage.getItem(KEPT + thread) ?? "{}");
}

export class Composer {
  constructor({ send, stop, say, recalled, ask }) {
    Object.assign(this, { send, stop, say, recalled, ask });
    this.limits = { text_characters: 100_000, upload_bytes: 0, models: null };
    this.field = $("message");
    this.editor = null;
    this.thread = "";
    this.isCode = false;
    this.uploads = this.waiting = null;
    $("attach").append(icon("clip"));
    $("send").append(icon("send"));
    $("stop").append(icon("stop"), el("span", {}, buttonWords.stop));
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
    this.editor?.begin(this.field.value);
    this.isNew = draft.isCode === undefined;
    const isKnown = this.uploads?.open(thread, draft.files ?? []);
    const lost = isKnown ? [] : (draft.going ?? []);
    if (!isKnown && draft.waiting) this.text = [draft.waiting, draft.text].filter(Boolean).join("\n");
    this.setCode(draft.isCode ?? this.isUsuallyCode);
    this.complain("");
    this.waiting?.draw();
    if (lost.length) this.complain(composerWords.notUploaded(lost.map(plain)));
  }

  /** Forget what was written in a conversation that is deleted, and stop what goes there. */
  forget(thread) {
    this.waiting?.drop(thread);
    this.uploads?.drop(thread);
    sessionStorage.removeItem(KEPT + thread);
    if (thread === this.thread) this.thread = "";
  }

  get isUsuallyCode() {
    return this.limits.models?.length === 0;
  }

  /** In an editor of code Escape means that Tab is to leave it, and never anything else. */
  isEditing(element) {
    return (element === this.field || element === $("code")) && this.isCode;
  }

  /** All that is written; as code it is the editor's, and the field has the same. */
  set text(text) {
    this.field.value = text;
    this.editor?.put(text);
  }

  focus() {
    if ($("code").hidden) this.field.focus();
    else this.editor.focus();
  }

  /** Hear what holds for everything. */
  know(limits) {
    const isFirst = this.limits.models === null;
    this.limits = limits;
    if (isFirst && this.isNew && limits.models.length === 0) this.setCode(true);
  }

  setCode(isCode, { isFocused = false } = {}) {
    this.isCode = isCode;
    $("python").setAttribute("aria-pressed", String(isCode));
    $("composer").classList.toggle("is-code", isCode);
    this.field.spellcheck = !isCode;
    this.field.dir = isCode ? "ltr" : "auto";
    this.field.placeholder = isCode ? composerWords.codePlaceholder : composerWords.askPlaceholder;
    const mod = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";
    $("hint").textContent = isCode ? composerWords.codeHint(mod) : composerWords.askHint;
    this.showEditor(isCode && this.editor !== null);
    this.fit();
    this.keep();
    if (isFocused) this.focus();
    if (isCode && this.editor === null) this.fetchEditor();
  }

  /** Fetch the editor of code; until it is here, and where it cannot be had, the field will do. */
  async fetchEditor() {
    this.fetching ??= import("./editor.js");
    try {
      const { Editor } = await this.fetching;
      this.editor ??= new Editor($("code"), {
        changed: (text) => this.changed(text),
        submit: () => this.submit(),
        recalled: () => this.recalled(),
        ask: (message) => this.ask(message),
      });
    } catch {
      this.fetching = null;
      return;
    }
    this.showEditor(this.isCode);
  }

  showEditor(isShown) {
    const isFocused = [this.field, $("code")].includes(document.activeElement);
    const hasMoved = $("code").hidden === isShown;
    $("code").hidden = !isShown;
    this.field.hidden = isShown;
    if (!hasMoved) return;
    if (isShown) this.editor.begin(this.field.value, this.field.selectionStart, this.field.selectionEnd);
    if (isFocused) this.focus();
  }

  changed(text) {
    this.field.value = text;
    this.edited();
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
    const attached = this.uploads && { waiting: this.waiting.text(thread), files: this.uploads.done(thread), going: [...this.waiting.going(thread), ...this.uploads.going(thread)] };
    const draft = { ...written, ...attached };
    const isMore = draft.text || hasFiles(draft) || draft.isCode !== this.isUsuallyCode;
    try {
      if (isMore) sessionStorage.setItem(KEPT + thread, JSON.stringify(draft));
      else sessionStorage.removeItem(KEPT + thread);
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
    }
  }

  pasted(event) {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    this.take(event.clipboardData.files);
  }

  take(files) {
    const all = [...files];
    this.complain("");
    this.withUploads((uploads, thread) => uploads.add(thread, all));
    this.focus();
  }

  /** Give back, after a reload, the files of drafts as well. */
  async recover() {
    const threads = Object.keys(sessionStorage).filter((key) => key.startsWith(KEPT)).map((key) => key.slice(KEPT.length));
    if (threads.some((thread) => hasFiles(kept(thread)))) await this.fetchUploads();
  }

  /** Do something with uploads, once they are there, for the conversation that is shown now. */
  async withUploads(use) {
    const { thread } = this;
    const uploads = this.uploads ?? (await this.fetchUploads());
    if (uploads) use(uploads, thread);
  }

  /** Fetch what handles files, with the first of them; gives null if it cannot be had. */
  fetchUploads() {
    return (this.fetchingUploads ??= this.loadUploads().finally(() => (this.fetchingUploads = null)));
  }

  async loadUploads() {
    const modules = await Promise.all([import("./uploads.js"), import("./waiting_messages.js")]).catch(() => null);
    if (!modules) return this.complain(connectionWords.attachAgain, "connection");
    const [{ Uploads }, { WaitingMessages }] = modules;
    this.uploads = new Uploads({ complain: (text) => this.complain(text), changed: (thread) => this.uploaded(thread), limit: () => this.limits.upload_bytes });
    this.waiting = new WaitingMessages(this.uploads, { send: this.send, giveBack: (message) => this.giveBack(message) });
    this.uploads.open(this.thread, []);
    return this.uploads;
  }

  async submit() {
    // What was attached just now goes along.
    if (this.fetchingUploads && !(await this.fetchingUploads)) return;
    const text = this.field.value;
    const files = this.uploads?.done() ?? [];
    const most = this.limits.text_characters;
    const isWaiting = this.uploads && (this.uploads.isBusy || this.waiting.of(this.thread).length > 0);
    if (!text.trim() && !files.length && !this.uploads?.isBusy) return this.complain(composerWords.writeSomething);
    if (!text.trim() && this.isCode) return this.complain(composerWords.writeCode);
    if (text.length > most) return this.complain(composerWords.tooLong(text.length, most));
    const message = { thread: this.thread, text, is_code: this.isCode };
    if (isWaiting) this.waiting.add(message);
    else if (!this.send({ ...message, files })) return this.complain(connectionWords.messageKept, "connection");
    this.text = "";
    this.uploads?.clear();
    this.edited();
  }

  /** Let a message that waited for a file be written again. */
  giveBack({ thread, text, is_code: isCode }) {
    if (thread === this.thread) return this.restore({ text, files: [], is_code: isCode });
    const draft = kept(thread);
    const both = [text, draft.text].filter(Boolean).join("\n");
    sessionStorage.setItem(KEPT + thread, JSON.stringify({ ...draft, text: both, isCode }));
  }

  /** Whether something would be lost if the page were left. */
  get isBusy() {
    return this.uploads !== null && (this.uploads.isAnyBusy || this.waiting.all.length > 0);
  }

  /** Give back what was refused, unless something new was written meanwhile. */
  restore({ text, files, is_code: isCode }) {
    this.text = this.field.value.trim() ? `${text}\n${this.field.value}` : text;
    this.setCode(isCode);
    if (files.length) this.withUploads((uploads, thread) => uploads.put(thread, files));
    this.fit();
    this.keep();
    this.focus();
  }

  write(text, isCode = false) {
    this.text = text;
    this.setCode(isCode, { isFocused: true });
  }

  /** Say what is wrong; `about` is what may settle it. */
  complain(text, about = "") {
    this.about = about;
    $("complaint").hidden = !text;
    $("complaint").textContent = text;
    if (text) this.focus();
  }

  settle(about) {
    if (about === "connection") this.waiting?.look();
    if (this.about === about) this.complain("");
  }

  uploaded(thread) {
    this.waiting?.look();
    this.keep(thread);
  }

  showRunning(isRunning) {
    $("stop").hidden = !isRunning;
  }
}

function hasFiles({ waiting, files, going }) {
  return Boolean(waiting || files?.length || going?.length);
}

/** Take what is dropped anywhere on the page. */
export function takeDrops(take, complain) {
  let depth = 0;
  const isOfFiles = (event) => event.dataTransfer?.types.includes("Files");
  const show = (isShown) => ($("drop").hidden = !isShown);
  addEventListener("dragenter", (event) => isOfFiles(event) && (event.preventDefault(), depth++, show(true)));
  addEventListener("dragleave", (event) => isOfFiles(event) && --depth <= 0 && ((depth = 0), show(false)));
  addEventListener("dragover", (event) => isOfFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!isOfFiles(event)) return;
    event.preventDefault();
    depth = 0;
    show(false);
    const folders = new Set([...event.dataTransfer.items].map((one) => one.webkitGetAsEntry?.()).filter((one) => one?.isDirectory).map((one) => one.name));
    take([...event.dataTransfer.files].filter((file) => !folders.has(file.name)));
    if (folders.size) complain(composerWords.noFolders);
  });
}
