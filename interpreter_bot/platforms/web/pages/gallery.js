// Pictures in full size, one after the other: those of the conversation, or the one of a file.

import { $, el, icon, loadStyles } from "./dom.js";
import { galleryWords } from "./later_words.js";
import { buttonWords, outputWords } from "./words.js";

await loadStyles("/gallery.css");

const ZOOM_STEP = 1.25;
const MAX_SCALE = 8;
let pictures = [];
let index = 0;
let scale = 0;

/** Show the picture of an element in full size, with buttons for the next and the previous one. */
export function enlarge(picture) {
  pictures = [...picture.closest("#turns, #pane").querySelectorAll("[data-enlarged]")].filter((element) => element.querySelector("img"));
  index = pictures.indexOf(picture);
  if (index < 0) return;
  createDialog();
  show();
  $("gallery").showModal();
}

function createDialog() {
  if ($("gallery")) return;
  const makeButton = (iconName, label, onclick) => el("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick }, icon(iconName));
  const dialog = el("dialog", { id: "gallery", "aria-labelledby": "gallery-title", onkeydown: onKey },
    el("header", {}, el("h2", { id: "gallery-title", dir: "auto" }), el("span", { id: "gallery-place", class: "muted", role: "status" }),
      makeButton("before", galleryWords.previous, () => showNext(-1)), makeButton("after", galleryWords.next, () => showNext(1)),
      makeButton("minus", galleryWords.smaller, () => zoom(1 / ZOOM_STEP)), makeButton("plus", galleryWords.larger, () => zoom(ZOOM_STEP)),
      el("button", { type: "button", class: "small", onclick: copy }, icon("copy"), el("span", { id: "gallery-copy" }, buttonWords.copy)),
      el("a", { id: "gallery-save", class: "small", download: "" }, icon("down"), el("span", {}, buttonWords.download)),
      makeButton("close", buttonWords.close, () => dialog.close())),
    el("div", { id: "gallery-room", tabindex: 0, role: "group", "aria-label": outputWords.picture }, el("img", { id: "gallery-picture" })));
  dialog.addEventListener("close", () => pictures[index]?.focus({ preventScroll: true }));
  dialog.addEventListener("wheel", (event) => event.ctrlKey && (event.preventDefault(), zoom(event.deltaY < 0 ? ZOOM_STEP : 1 / ZOOM_STEP)), { passive: false });
  document.body.append(dialog);
}

function show() {
  const picture = pictures[index], image = picture.querySelector("img");
  $("gallery-title").textContent = picture.dataset.enlarged;
  $("gallery-place").textContent = pictures.length > 1 ? galleryWords.place(index + 1, pictures.length) : "";
  $("gallery-save").href = picture.dataset.save;
  Object.assign($("gallery-picture"), { src: image.src, alt: image.alt, className: image.className });
  scale = 0;
  $("gallery-picture").style.width = "";
}

function showNext(step) {
  index = (index + step + pictures.length) % pictures.length;
  show();
}

/** Scale the picture by a factor; 0 fits it into the window. */
function zoom(factor) {
  const image = $("gallery-picture");
  scale = factor && Math.min(Math.max((scale || image.clientWidth / (image.naturalWidth || image.clientWidth)) * factor, 0.05), MAX_SCALE);
  image.style.width = scale ? `${Math.round((image.naturalWidth || 800) * scale)}px` : "";
  image.classList.toggle("is-zoomed", scale > 0);
}

function onKey(event) {
  const action = { ArrowRight: () => showNext(1), ArrowLeft: () => showNext(-1), "+": () => zoom(ZOOM_STEP), "-": () => zoom(1 / ZOOM_STEP), 0: () => zoom(0) }[event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
  // A picture that is larger than its room is moved by the same keys.
  if (scale && event.key.startsWith("Arrow")) return;
  event.preventDefault();
  action();
}

/** The clipboard takes PNG only, so any picture is drawn as one. */
async function copy() {
  const image = $("gallery-picture"), label = $("gallery-copy");
  try {
    const canvas = el("canvas", { width: image.naturalWidth || 800, height: image.naturalHeight || 600 });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    const png = new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": png })]);
    label.textContent = buttonWords.copied;
  } catch {
    label.textContent = buttonWords.notCopied;
  }
  setTimeout(() => (label.textContent = buttonWords.copy), 1600);
}
