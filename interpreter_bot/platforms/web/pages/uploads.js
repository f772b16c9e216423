// Uploads of files. The browser streams them from the disk; none is read into memory here.

import { pageKey } from "./connection.js";
import { MAX_PREVIEW_BYTES, PICTURE_NAME } from "./files.js";
import { $, address, el, icon, nameElement, formatSize, loadStyles } from "./dom.js";
import { uploadWords } from "./later_words.js";
import { buttonWords } from "./words.js";

await loadStyles("/uploads.css");

export class Uploads {
  constructor({ showComplaint, onChange, getMaxBytes }) {
    Object.assign(this, { showComplaint, onChange, getMaxBytes });
    this.thread = "";
    this.itemsByThread = new Map();
    addEventListener("file-changed", ({ detail: { thread, name, newName } }) => this.onFileChange(thread, name, newName));
  }

  /** Follow a file that was renamed or, if it has no new name, deleted. */
  onFileChange(thread, name, newName) {
    const item = this.itemsOf(thread).find((other) => other.isDone && other.name === name);
    if (!item) return;
    if (!newName) return this.remove(item);
    item.name = newName;
    this.draw(thread);
  }

  /** Show the uploads of a conversation; return whether it was shown before. Others go on. */
  openThread(thread, names) {
    const isKnown = this.itemsByThread.has(thread);
    if (!isKnown) this.itemsByThread.set(thread, names.map((name) => ({ name, thread, isDone: true })));
    this.thread = thread;
    this.draw(thread);
    return isKnown;
  }

  itemsOf(thread) {
    return this.itemsByThread.get(thread) ?? [];
  }

  get isBusy() {
    return this.unfinished(this.thread).length > 0;
  }

  get isAnyBusy() {
    return [...this.itemsByThread.keys()].some((thread) => this.unfinished(thread).length > 0);
  }

  finished(thread = this.thread) {
    return this.itemsOf(thread).filter((item) => item.isDone).map((item) => item.name);
  }

  unfinished(thread) {
    return this.itemsOf(thread).filter((item) => !item.isDone).map((item) => item.name);
  }

  /** Add files that are uploaded already. */
  addStored(thread, names) {
    const storedNames = new Set(this.finished(thread));
    const newItems = names.filter((name) => !storedNames.has(name)).map((name) => ({ name, thread, isDone: true }));
    this.itemsByThread.set(thread, [...newItems, ...this.itemsOf(thread)]);
    this.draw(thread);
  }

  clear() {
    this.itemsByThread.set(this.thread, []);
    this.draw(this.thread);
  }

  discard(thread) {
    for (const item of this.itemsOf(thread)) item.request?.abort();
    this.itemsByThread.delete(thread);
  }

  add(thread, files) {
    const maxBytes = this.getMaxBytes();
    for (const file of files) {
      if (maxBytes && file.size > maxBytes) this.showComplaint(uploadWords.tooLarge(file.name, formatSize(file.size), formatSize(maxBytes)));
      else this.upload(thread, file);
    }
  }

  upload(thread, file) {
    const item = { name: file.name, thread, size: file.size, sent: 0, isDone: false, request: new XMLHttpRequest() };
    const { request } = item;
    request.upload.onprogress = (event) => {
      item.sent = event.loaded;
      this.progress(item);
    };
    request.onload = () => {
      if (request.status !== 200) return this.onFailure(item, request.responseText);
      item.isDone = true;
      item.name = JSON.parse(request.responseText).name;
      this.draw(item.thread);
      dispatchEvent(new Event("uploaded"));
    };
    request.onerror = () => this.onFailure(item, uploadWords.uploadBroken);
    request.onabort = () => (this.showComplaint(""), this.remove(item));
    request.open("POST", address("/upload", { thread, name: file.name }));
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("Interpreter-Bot-Key", pageKey);
    request.send(file);
    this.itemsByThread.set(thread, [...this.itemsOf(thread), item]);
    this.draw(thread);
  }

  onFailure(item, why) {
    this.showComplaint(uploadWords.uploadFailed(item.name, why));
    this.remove(item);
  }

  remove(item) {
    this.itemsByThread.set(item.thread, this.itemsOf(item.thread).filter((other) => other !== item));
    this.draw(item.thread);
  }

  progress(item) {
    if (item.thread !== this.thread) return;
    const share = item.size ? item.sent / item.size : 1;
    item.bar.value = share;
    item.shareLabel.textContent = share < 1 ? uploadWords.uploadShare(Math.floor(share * 100), formatSize(item.size)) : uploadWords.storing;
  }

  draw(thread) {
    if (thread === this.thread) $("uploads").replaceChildren(...this.itemsOf(thread).map((item) => this.itemElement(item)));
    this.onChange(thread);
  }

  itemElement(item) {
    const label = item.isDone ? uploadWords.removeFile(item.name) : uploadWords.cancelUpload(item.name);
    const cancelOrRemove = () => (item.isDone ? this.remove(item) : item.request.abort());
    const requestView = (event) => event.currentTarget.dispatchEvent(new CustomEvent("view", { bubbles: true, detail: item.name }));
    const name = nameElement(item.name, { class: "file-title" });
    const picture = () => el("img", { src: address("/picture", { thread: item.thread, name: item.name }), alt: "", onerror: (event) => event.target.replaceWith(icon("file")) });
    const hasPreview = item.isDone && PICTURE_NAME.test(item.name) && !(item.size > MAX_PREVIEW_BYTES);
    const chip = el("li", { class: item.isDone ? "done" : "going" }, hasPreview ? picture() : icon("file"),
      item.isDone ? el("button", { type: "button", class: "look", title: buttonWords.view, onclick: requestView }, name) : name);
    if (!item.isDone) {
      item.bar = el("progress", { max: "1", value: "0", "aria-label": item.name });
      item.shareLabel = el("span", { class: "muted" });
      chip.append(item.bar, item.shareLabel);
      this.progress(item);
    }
    const runNotebook = () => (this.remove(item), dispatchEvent(new CustomEvent("notebook", { detail: item.name })));
    if (item.isDone && /\.ipynb$/i.test(item.name)) chip.append(el("button", { type: "button", class: "small strong", onclick: runNotebook }, buttonWords.runCells));
    chip.append(el("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick: cancelOrRemove }, icon("close")));
    return chip;
  }
}
