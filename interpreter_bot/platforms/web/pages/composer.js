// The form in which people write words or Python, and attach files.

import { $, el, icon, cleanText } from "./dom.js";
import { buttonWords, composerWords, connectionWords } from "./words.js";

const DRAFT_PREFIX = "draft-";

function storedDraft(thread) {
  return JSON.parse(sessionStorage.getItem(DRAFT_PREFIX + thread) ?? "{}");
}

export class Composer {
  constructor({ send, stop, pastCodes, askPython }) {
    Object.assign(this, { send, stop, pastCodes, askPython });
    this.limits = { text_characters: 100_000, upload_bytes: 0, models: null };
    this.field = $("message");
    this.editor = null;
    this.thread = "";
    this.isCode = false;
    this.uploads = null;
    this.isSendPending = false;
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
      this.addFiles(event.target.files);
      event.target.value = "";
    });
    this.field.addEventListener("input", () => this.onEdit());
    this.field.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** Open a conversation, with its unsent draft. */
  openThread(thread) {
    this.thread = thread;
    const draft = storedDraft(thread);
    this.field.value = draft.text ?? "";
    this.editor?.reset(this.field.value);
    this.isNew = draft.isCode === undefined;
    const isKnown = this.uploads?.openThread(thread, draft.files ?? []);
    const lostFiles = isKnown ? [] : (draft.unfinished ?? []);
    this.setCode(draft.isCode ?? this.isUsuallyCode);
    this.showComplaint("");
    if (lostFiles.length) this.showComplaint(composerWords.notUploaded(lostFiles.map(cleanText)));
  }

  /** Forget the draft of a deleted conversation, and cancel its uploads. */
  forgetThread(thread) {
    this.uploads?.discard(thread);
    sessionStorage.removeItem(DRAFT_PREFIX + thread);
    if (thread === this.thread) this.thread = "";
  }

  get isUsuallyCode() {
    return this.limits.models?.length === 0;
  }

  /** Return whether an element is the editor of code, in which Escape only lets Tab leave it. */
  isEditing(element) {
    return (element === this.field || element === $("code")) && this.isCode;
  }

  /** The whole text, which the field and the editor of code share. */
  set text(text) {
    this.field.value = text;
    this.editor?.replaceText(text);
  }

  focus() {
    if ($("code").hidden) this.field.focus();
    else this.editor.focus();
  }

  /** Take over the limits that the server sent. */
  setLimits(limits) {
    const isFirstTime = this.limits.models === null;
    this.limits = limits;
    if (isFirstTime && this.isNew && limits.models.length === 0) this.setCode(true);
  }

  setCode(isCode, { isFocused = false } = {}) {
    this.isCode = isCode;
    $("python").setAttribute("aria-pressed", String(isCode));
    $("composer").classList.toggle("is-code", isCode);
    this.field.spellcheck = !isCode;
    this.field.dir = isCode ? "ltr" : "auto";
    this.field.placeholder = isCode ? composerWords.codePlaceholder : composerWords.askPlaceholder;
    const modifierKey = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";
    $("hint").textContent = isCode ? composerWords.codeHint(modifierKey) : composerWords.askHint;
    this.showEditor(isCode && this.editor !== null);
    this.fitHeight();
    this.saveDraft();
    if (isFocused) this.focus();
    if (isCode && this.editor === null) this.fetchEditor();
  }

  /** Load the editor of code; until then, and if that fails, the text field is used. */
  async fetchEditor() {
    this.editorModule ??= import("./editor.js");
    try {
      const { Editor } = await this.editorModule;
      this.editor ??= new Editor($("code"), {
        onChange: (text) => this.onChange(text),
        submit: () => this.submit(),
        pastCodes: () => this.pastCodes(),
        askPython: (message) => this.askPython(message),
      });
    } catch {
      this.editorModule = null;
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
    if (isShown) this.editor.reset(this.field.value, this.field.selectionStart, this.field.selectionEnd);
    if (isFocused) this.focus();
  }

  onChange(text) {
    this.field.value = text;
    this.onEdit();
  }

  onEdit() {
    this.fitHeight();
    this.saveDraft();
    this.showComplaint("");
  }

  /** Store the draft of this conversation, or the uploaded files of another one's draft. */
  saveDraft(thread = this.thread) {
    if (!thread) return;
    const content = thread === this.thread ? { text: this.field.value.slice(0, 1_000_000), isCode: this.isCode } : storedDraft(thread);
    const uploads = this.uploads && { files: this.uploads.finished(thread), unfinished: this.uploads.unfinished(thread) };
    const draft = { ...content, ...uploads };
    const isWorthStoring = draft.text || hasFiles(draft) || draft.isCode !== this.isUsuallyCode;
    try {
      if (isWorthStoring) sessionStorage.setItem(DRAFT_PREFIX + thread, JSON.stringify(draft));
      else sessionStorage.removeItem(DRAFT_PREFIX + thread);
    } catch (error) {
      // Full: what is written is still in the field, only not kept for a reload.
      if (error.name !== "QuotaExceededError") throw error;
    }
  }

  fitHeight() {
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight, innerHeight * 0.4)}px`;
  }

  onKey(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey || (!this.isCode && !event.shiftKey))) {
      event.preventDefault();
      this.submit();
    }
  }

  onPaste(event) {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    this.addFiles(event.clipboardData.files);
  }

  addFiles(files) {
    const chosenFiles = [...files];
    this.showComplaint("");
    this.withUploads((uploads, thread) => uploads.add(thread, chosenFiles));
    this.focus();
  }

  /** After a reload, restore the files of drafts. */
  async restoreUploads() {
    const threads = Object.keys(sessionStorage).filter((key) => key.startsWith(DRAFT_PREFIX)).map((key) => key.slice(DRAFT_PREFIX.length));
    if (threads.some((thread) => hasFiles(storedDraft(thread)))) await this.fetchUploads();
  }

  /** Once the module of uploads is loaded, use it for the conversation that is shown now. */
  async withUploads(use) {
    const { thread } = this;
    const uploads = this.uploads ?? (await this.fetchUploads());
    if (uploads) use(uploads, thread);
  }

  /** Load the module of uploads, with the first file; resolves to nothing if that fails. */
  fetchUploads() {
    return (this.fetchingUploads ??= this.loadUploads().finally(() => (this.fetchingUploads = null)));
  }

  async loadUploads() {
    const module = await import("./uploads.js").catch(() => null);
    if (!module) return this.showComplaint(connectionWords.attachAgain, "connection");
    this.uploads = new module.Uploads({ showComplaint: (text) => this.showComplaint(text), onChange: (thread) => this.onUpload(thread), getMaxBytes: () => this.limits.upload_bytes });
    this.uploads.openThread(this.thread, []);
    return this.uploads;
  }

  async submit() {
    // Files that were attached just now are sent, too.
    if (this.fetchingUploads && !(await this.fetchingUploads)) return;
    const text = this.field.value;
    const files = this.uploads?.finished() ?? [];
    const maxCharacters = this.limits.text_characters;
    if (!text.trim() && !files.length && !this.uploads?.isBusy) return this.showComplaint(composerWords.writeSomething);
    if (!text.trim() && this.isCode) return this.showComplaint(composerWords.writeCode);
    if (text.length > maxCharacters) return this.showComplaint(composerWords.tooLong(text.length, maxCharacters));
    if (this.uploads?.isBusy) {
      this.showComplaint(composerWords.sentLater, "upload");
      this.isSendPending = true;
      return;
    }
    if (!this.send({ thread: this.thread, text, is_code: this.isCode, files })) return this.showComplaint(connectionWords.messageKept, "connection");
    this.text = "";
    this.uploads?.clear();
    this.onEdit();
  }

  /** Whether uploads would be lost if the page were closed. */
  get isBusy() {
    return this.uploads !== null && this.uploads.isAnyBusy;
  }

  /** Put a refused message back into the field, above what was written meanwhile. */
  restore({ text, files, is_code: isCode }) {
    this.text = this.field.value.trim() ? `${text}\n${this.field.value}` : text;
    this.setCode(isCode);
    if (files.length) this.withUploads((uploads, thread) => uploads.addStored(thread, files));
    this.fitHeight();
    this.saveDraft();
    this.focus();
  }

  writeDraft(text, isCode = false) {
    this.text = text;
    this.setCode(isCode, { isFocused: true });
  }

  /** Show a complaint, and wait for uploads no longer; `cause` names the event that clears it. */
  showComplaint(text, cause = "") {
    this.isSendPending = false;
    this.complaintCause = cause;
    $("complaint").classList.toggle("calm", cause === "upload");
    $("complaint").hidden = !text;
    $("complaint").textContent = text;
    if (text) this.focus();
  }

  clearComplaint(cause) {
    if (this.complaintCause === cause) this.showComplaint("");
  }

  onUpload(thread) {
    this.saveDraft(thread);
    if (thread !== this.thread || this.uploads.isBusy || !this.isSendPending) return;
    this.showComplaint("");
    this.submit();
  }

  showStopButton(isRunning) {
    $("stop").hidden = !isRunning;
  }
}

function hasFiles({ files, unfinished }) {
  return Boolean(files?.length || unfinished?.length);
}

/** Attach files that are dropped anywhere on the page. */
export function acceptDrops(addFiles, showComplaint) {
  let enterCount = 0;
  const hasDraggedFiles = (event) => event.dataTransfer?.types.includes("Files");
  const show = (isShown) => ($("drop").hidden = !isShown);
  addEventListener("dragenter", (event) => hasDraggedFiles(event) && (event.preventDefault(), enterCount++, show(true)));
  addEventListener("dragleave", (event) => hasDraggedFiles(event) && --enterCount <= 0 && ((enterCount = 0), show(false)));
  addEventListener("dragover", (event) => hasDraggedFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasDraggedFiles(event)) return;
    event.preventDefault();
    enterCount = 0;
    show(false);
    const folders = new Set([...event.dataTransfer.items].map((entry) => entry.webkitGetAsEntry?.()).filter((entry) => entry?.isDirectory).map((entry) => entry.name));
    addFiles([...event.dataTransfer.files].filter((file) => !folders.has(file.name)));
    if (folders.size) showComplaint(composerWords.noFolders);
  });
}
