// Messages that were sent while their files were on the way: each goes when those have arrived, in order.

import { $, el, plain } from "./dom.js";
import { uploadWords } from "./later_words.js";

export class WaitingMessages {
  /** `send` takes a message and says whether it is gone; `giveBack` takes one that will not be sent. */
  constructor(uploads, { send, giveBack }) {
    Object.assign(this, { uploads, send, giveBack });
    this.all = [];
    this.isSending = false;
  }

  of(thread) {
    return this.all.filter((one) => one.thread === thread);
  }

  add(message) {
    this.all.push({ ...message, items: this.uploads.takeAll() });
    this.draw();
  }

  /** Names of what is still on its way to a conversation with a message. */
  going(thread) {
    return this.of(thread).flatMap(({ items }) => items.filter((item) => !item.isDone).map(({ name }) => name));
  }

  /** What is kept of them for a reload: what was written. */
  text(thread) {
    return this.of(thread).map(({ text }) => text).join("\n");
  }

  /** Send what can go now; what has lost a file is given back. */
  look() {
    if (this.isSending) return;
    this.isSending = true;
    const blocked = new Set();
    for (const one of [...this.all]) {
      const isLost = one.items.some((item) => item.isGone);
      const files = one.items.filter((item) => item.isDone && !item.isGone).map(({ name }) => name);
      if (isLost) this.take(one);
      else if (!blocked.has(one.thread) && one.items.every((item) => item.isDone) && this.send({ ...one, files })) this.remove(one);
      else blocked.add(one.thread);
    }
    this.isSending = false;
    this.draw();
  }

  take(one) {
    this.remove(one);
    this.uploads.putBack(one.thread, one.items.filter((item) => !item.isGone));
    this.giveBack(one);
  }

  remove(one) {
    this.all = this.all.filter((other) => other !== one);
  }

  drop(thread) {
    for (const { items } of this.of(thread)) for (const item of items) item.request?.abort();
    this.all = this.all.filter((one) => one.thread !== thread);
  }

  draw() {
    const back = (one) => () => (this.take(one), this.draw());
    $("waiting").replaceChildren(...this.of(this.uploads.thread).map((one) =>
      el("li", {},
        el("p", {}, el("span", { class: "muted" }, uploadWords.waitsForFiles), el("bdi", {}, plain(one.text.slice(0, 200)) || uploadWords.noText)),
        el("ul", { class: "chips" }, one.items.map((item) => this.uploads.chip(item))),
        el("button", { type: "button", class: "small", onclick: back(one) }, uploadWords.takeBack))));
  }
}
