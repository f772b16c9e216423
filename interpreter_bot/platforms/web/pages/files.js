// Files of a conversation: cards with buttons for each.

import { address, el, icon, nameElement, cleanText, formatSize } from "./dom.js";
import { buttonWords } from "./words.js";

export const PICTURE_NAME = /\.(?:png|jpe?g|gif|webp|svg)$/i;
export const PAGE_NAME = /\.html?$/i;
export const MAX_PREVIEW_BYTES = 8 * 2 ** 20;

/** Return the address of a file. */
export function fileAddress(query) {
  return address("/download", query);
}

/** Return a link within text that saves a file. */
export function fileLink(thread, name) {
  return el("a", { class: "file-name", href: fileAddress({ thread, name }), download: "" }, el("code", {}, nameElement(name)));
}

export function fileCard(thread, file, { hasPreview = false } = {}) {
  const query = { thread, name: file.name };
  const isPicture = PICTURE_NAME.test(file.name) && file.size_bytes <= MAX_PREVIEW_BYTES && file.size_bytes > 0;
  const preview = hasPreview && isPicture
    ? el("a", { class: "preview", href: address("/picture", query), target: "_blank", rel: "noopener", title: buttonWords.enlarge, "data-enlarged": cleanText(file.name), "data-save": fileAddress(query) },
        el("img", { src: address("/picture", query), alt: "", loading: "lazy", onerror: (event) => event.target.parentNode.remove() }))
    : null;
  const openLink = PAGE_NAME.test(file.name)
    ? el("a", { class: "small", href: address("/view", query), target: "_blank", rel: "noopener" }, icon("open"), el("span", {}, buttonWords.open), el("span", { class: "unseen" }, ` ${cleanText(file.name)}`))
    : null;
  const requestView = (event) => event.currentTarget.dispatchEvent(new CustomEvent("view", { bubbles: true, detail: file.name }));
  const viewButton = el("button", { type: "button", class: "small", onclick: requestView }, icon("look"), el("span", {}, buttonWords.view), el("span", { class: "unseen" }, ` ${cleanText(file.name)}`));
  return el("li", { class: "file" }, preview,
    el("div", { class: "file-line" },
      icon("file"),
      el("span", { class: "file-what" }, nameElement(file.name, { class: "file-title" }), el("span", { class: "muted" }, formatSize(file.size_bytes))),
      openLink, viewButton,
      el("a", { class: "small", href: fileAddress(query), download: "" }, icon("down"), el("span", {}, buttonWords.download), el("span", { class: "unseen" }, ` ${cleanText(file.name)}`))));
}
