// Files on their way up. The browser streams them from the disk; none is read into memory here.

import { pageKey } from "./connection.js";
import { LARGEST_PREVIEW, PICTURE } from "./files.js";
import { $, address, el, icon, named, size, styled } from "./dom.js";
import { uploadWords } from "./later_words.js";
import { buttonWords } from "./words.js";

await styled("/uploads.css");

export class Uploads {
  constructor({ complain, changed, limit }) {
    Object.assign(this, { complain, changed, limit });
    this.thread = "";
    this.all = new Map();
  }

  /** Show those of a conversation; those of others go on. Tells whether it was shown before. */
  open(thread, names) {
    const isKnown = this.all.has(thread);
    if (!isKnown) this.all.set(thread, names.map((name) => ({ name, thread, isDone: true })));
    this.thread = thread;
    this.draw(thread);
    return isKnown;
  }

  of(thread) {
    return this.all.get(thread) ?? [];
  }

  get isBusy() {
    return this.going(this.thread).length > 0;
  }

  get isAnyBusy() {
    return [...this.all.keys()].some((thread) => this.going(thread).length > 0);
  }

  done(thread = this.thread) {
    return this.of(thread).filter((item) => item.isDone).map((item) => item.name);
  }

  going(thread) {
    return this.of(thread).filter((item) => !item.isDone).map((item) => item.name);
  }

  /** Add files that are there already. */
  put(thread, names) {
    const known = new Set(this.done(thread));
    this.putBack(thread, names.filter((name) => !known.has(name)).map((name) => ({ name, thread, isDone: true })));
  }

  /** Hand over all that a message takes along; they go on. */
  takeAll() {
    const items = this.of(this.thread);
    this.clear();
    return items;
  }

  /** Take back what a message that is not sent would have taken along. */
  putBack(thread, items) {
    this.all.set(thread, [...items, ...this.of(thread)]);
    this.draw(thread);
  }

  clear() {
    this.all.set(this.thread, []);
    this.draw(this.thread);
  }

  drop(thread) {
    for (const item of this.of(thread)) item.request?.abort();
    this.all.delete(thread);
  }

  add(thread, files) {
    const most = this.limit();
    for (const file of files) {
      if (most && file.size > most) this.complain(uploadWords.tooLarge(file.name, size(file.size), size(most)));
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
      if (request.status !== 200) return this.failed(item, request.responseText);
      item.isDone = true;
      item.name = JSON.parse(request.responseText).name;
      this.draw(item.thread);
      dispatchEvent(new Event("uploaded"));
    };
    request.onerror = () => this.failed(item, uploadWords.uploadBroken);
    request.onabort = () => this.remove(item);
    request.open("POST", address("/upload", { thread, name: file.name }));
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("Interpreter-Bot-Key", pageKey);
    request.send(file);
    this.all.set(thread, [...this.of(thread), item]);
    this.draw(thread);
  }

  failed(item, why) {
    this.remove(item);
    this.complain(uploadWords.uploadFailed(item.name, why));
  }

  remove(item) {
    item.isGone = true;
    this.all.set(item.thread, this.of(item.thread).filter((one) => one !== item));
    this.draw(item.thread);
  }

  progress(item) {
    if (item.thread !== this.thread) return;
    const part = item.size ? item.sent / item.size : 1;
    item.bar.value = part;
    item.words.textContent = part < 1 ? uploadWords.uploadShare(Math.floor(part * 100), size(item.size)) : uploadWords.storing;
  }

  draw(thread) {
    if (thread === this.thread) $("uploads").replaceChildren(...this.of(thread).map((item) => this.chip(item)));
    this.changed(thread);
  }

  chip(item) {
    const label = item.isDone ? uploadWords.removeFile(item.name) : uploadWords.cancelUpload(item.name);
    const away = () => (item.isDone ? this.remove(item) : item.request.abort());
    const view = (event) => event.currentTarget.dispatchEvent(new CustomEvent("view", { bubbles: true, detail: item.name }));
    const name = named(item.name, { class: "file-title" });
    const picture = () => el("img", { src: address("/picture", { thread: item.thread, name: item.name }), alt: "", onerror: (event) => event.target.replaceWith(icon("file")) });
    const isSeen = item.isDone && PICTURE.test(item.name) && !(item.size > LARGEST_PREVIEW);
    const chip = el("li", { class: item.isDone ? "done" : "going" }, isSeen ? picture() : icon("file"),
      item.isDone ? el("button", { type: "button", class: "look", title: buttonWords.view, onclick: view }, name) : name);
    if (!item.isDone) {
      item.bar = el("progress", { max: "1", value: "0", "aria-label": item.name });
      item.words = el("span", { class: "muted" });
      chip.append(item.bar, item.words);
      this.progress(item);
    }
    const run = () => (this.remove(item), dispatchEvent(new CustomEvent("notebook", { detail: item.name })));
    if (item.isDone && /\.ipynb$/i.test(item.name)) chip.append(el("button", { type: "button", class: "small strong", onclick: run }, buttonWords.runCells));
    chip.append(el("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick: away }, icon("close")));
    return chip;
  }
}
