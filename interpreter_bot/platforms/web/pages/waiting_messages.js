// Messages that were sent while their files were on the way: each goes when those have arrived, in order.

import { $, el, cleanText } from "./dom.js";
import { uploadWords } from "./later_words.js";

export class WaitingMessages {
  /** `send` takes a message and says whether it is gone; `giveBack` takes one that will not be sent. */
  constructor(uploads, { send, giveBack }) {
    Object.assign(this, { uploads, send, giveBack });
    this.messages = [];
    this.isSending = false;
  }

  messagesOf(thread) {
    return this.messages.filter((message) => message.thread === thread);
  }

  add(message) {
    this.messages.push({ ...message, items: this.uploads.takeAll() });
    this.draw();
  }

  /** Names of what is still on its way to a conversation with a message. */
  unfinished(thread) {
    return this.messagesOf(thread).flatMap(({ items }) => items.filter((item) => !item.isDone).map(({ name }) => name));
  }

  /** What is kept of them for a reload: what was written. */
  text(thread) {
    return this.messagesOf(thread).map(({ text }) => text).join("\n");
  }

  /** Send what can go now; what has lost a file is given back. */
  sendReady() {
    if (this.isSending) return;
    this.isSending = true;
    const blocked = new Set();
    for (const message of [...this.messages]) {
      const isLost = message.items.some((item) => item.isRemoved);
      const files = message.items.filter((item) => item.isDone && !item.isRemoved).map(({ name }) => name);
      if (isLost) this.giveBackMessage(message);
      else if (!blocked.has(message.thread) && message.items.every((item) => item.isDone) && this.send({ ...message, files })) this.remove(message);
      else blocked.add(message.thread);
    }
    this.isSending = false;
    this.draw();
  }

  giveBackMessage(message) {
    this.remove(message);
    this.uploads.putBack(message.thread, message.items.filter((item) => !item.isRemoved));
    this.giveBack(message);
  }

  remove(message) {
    this.messages = this.messages.filter((other) => other !== message);
  }

  discard(thread) {
    for (const { items } of this.messagesOf(thread)) for (const item of items) item.request?.abort();
    this.messages = this.messages.filter((message) => message.thread !== thread);
  }

  draw() {
    const takeBack = (message) => () => (this.giveBackMessage(message), this.draw());
    $("waiting").replaceChildren(...this.messagesOf(this.uploads.thread).map((message) =>
      el("li", {},
        el("p", {}, el("span", { class: "muted" }, uploadWords.waitsForFiles), el("bdi", {}, cleanText(message.text.slice(0, 200)) || uploadWords.noText)),
        el("ul", { class: "chips" }, message.items.map((item) => this.uploads.itemElement(item))),
        el("button", { type: "button", class: "small", onclick: takeBack(message) }, uploadWords.takeBack))));
  }
}
