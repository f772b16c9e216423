// Pictures in full size, one after the other: those of the conversation, or the one of a file.

import { $, el, icon, styled } from "./dom.js";
import { galleryWords } from "./later_words.js";
import { buttonWords, outputWords } from "./words.js";

await styled("/gallery.css");

const STEP = 1.25;
const MAX = 8;
let all = [];
let place = 0;
let scale = 0;

/** Show the picture of an element, and let people go on to those around it. */
export function enlarge(picture) {
  all = [...picture.closest("#turns, #pane").querySelectorAll("[data-enlarged]")].filter((one) => one.querySelector("img"));
  place = all.indexOf(picture);
  if (place < 0) return;
  made();
  show();
  $("gallery").showModal();
}

function made() {
  if ($("gallery")) return;
  const act = (glyph, label, onclick) => el("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick }, icon(glyph));
  const dialog = el("dialog", { id: "gallery", "aria-labelledby": "gallery-title", onkeydown: key },
    el("header", {}, el("h2", { id: "gallery-title", dir: "auto" }), el("span", { id: "gallery-place", class: "muted", role: "status" }),
      act("before", galleryWords.previous, () => go(-1)), act("after", galleryWords.next, () => go(1)),
      act("minus", galleryWords.smaller, () => zoom(1 / STEP)), act("plus", galleryWords.larger, () => zoom(STEP)),
      el("button", { type: "button", class: "small", onclick: copy }, icon("copy"), el("span", { id: "gallery-copy" }, buttonWords.copy)),
      el("a", { id: "gallery-save", class: "small", download: "" }, icon("down"), el("span", {}, buttonWords.download)),
      act("close", buttonWords.close, () => dialog.close())),
    el("div", { id: "gallery-room", tabindex: 0, role: "group", "aria-label": outputWords.picture }, el("img", { id: "gallery-picture" })));
  dialog.addEventListener("close", () => all[place]?.focus({ preventScroll: true }));
  dialog.addEventListener("wheel", (event) => event.ctrlKey && (event.preventDefault(), zoom(event.deltaY < 0 ? STEP : 1 / STEP)), { passive: false });
  document.body.append(dialog);
}

function show() {
  const picture = all[place], image = picture.querySelector("img");
  $("gallery-title").textContent = picture.dataset.enlarged;
  $("gallery-place").textContent = all.length > 1 ? galleryWords.place(place + 1, all.length) : "";
  $("gallery-save").href = picture.dataset.save;
  Object.assign($("gallery-picture"), { src: image.src, alt: image.alt, className: image.className });
  scale = 0;
  $("gallery-picture").style.width = "";
}

function go(step) {
  place = (place + step + all.length) % all.length;
  show();
}

/** Larger or smaller than it fits, or (0) just as it fits. */
function zoom(factor) {
  const image = $("gallery-picture");
  scale = factor && Math.min(Math.max((scale || image.clientWidth / (image.naturalWidth || image.clientWidth)) * factor, 0.05), MAX);
  image.style.width = scale ? `${Math.round((image.naturalWidth || 800) * scale)}px` : "";
  image.classList.toggle("is-zoomed", scale > 0);
}

function key(event) {
  const act = { ArrowRight: () => go(1), ArrowLeft: () => go(-1), "+": () => zoom(STEP), "-": () => zoom(1 / STEP), 0: () => zoom(0) }[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  // A picture that is larger than its room is moved by the same keys.
  if (scale && event.key.startsWith("Arrow")) return;
  event.preventDefault();
  act();
}

/** The clipboard takes PNG only, so any picture is drawn as one. */
async function copy() {
  const image = $("gallery-picture"), words = $("gallery-copy");
  try {
    const canvas = el("canvas", { width: image.naturalWidth || 800, height: image.naturalHeight || 600 });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    const png = new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": png })]);
    words.textContent = buttonWords.copied;
  } catch {
    words.textContent = buttonWords.notCopied;
  }
  setTimeout(() => (words.textContent = buttonWords.copy), 1600);
}
