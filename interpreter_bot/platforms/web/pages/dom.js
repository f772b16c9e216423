// Making elements. Text only ever becomes text: nothing here, or elsewhere, parses HTML.

import { buttonWords } from "./words.js";

/** Drawings by name; `bar_menus` adds those of its own. */
export const ICONS = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  clip: "M20 11.5l-8.2 8.2a5 5 0 0 1-7.1-7.1l8.5-8.5a3.3 3.3 0 0 1 4.7 4.7l-8.5 8.5a1.7 1.7 0 0 1-2.4-2.4l7.8-7.8",
  send: "M12 19V5M6 11l6-6 6 6",
  toEnd: "M12 5v14M6 13l6 6 6-6",
  stop: "M7 7h10v10H7z",
  close: "M6 6l12 12M18 6L6 18",
  file: "M14 3H7a2 2 0 0 0-2 2v14a2 2 0 0 0 2 2h10a2 2 0 0 0 2-2V8zM14 3v5h5",
  folder: "M3 7a2 2 0 0 1 2-2h4l2 2h8a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2z",
  down: "M12 4v11M7 11l5 5 5-5M5 20h14",
  open: "M14 4h6v6M20 4l-9 9M18 14v4a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2V8a2 2 0 0 1 2-2h4",
  copy: "M9 9h10v11H9zM5 15V4h10",
  minus: "M5 12h14",
  before: "M15 5l-7 7 7 7",
  after: "M9 5l7 7-7 7",
  check: "M5 12.5l4.5 4.5L19 7.5",
  warn: "M12 4l9 16H3zM12 10v4M12 17h.01",
  filter: "M4 5h16l-6 8v6l-4-2v-4z",
  look: "M2 12s4-7 10-7 10 7 10 7-4 7-10 7-10-7-10-7M12 9a3 3 0 1 0 0 6 3 3 0 1 0 0-6",
  pen: "M4 20l1-4L16 5l3 3L8 19z",
  bin: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  box: "M4 5h16v4H4zM5 9v10h14V9M10 13h4",
  share: "M12 15V4M8 8l4-4 4 4M5 13v5a2 2 0 0 0 2 2h10a2 2 0 0 0 2-2v-5",
  full: "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
  code: "M9 7l-5 5 5 5M15 7l5 5-5 5",
  again: "M20 12a8 8 0 1 1-2.5-5.8M20 4v5h-5",
  undo: "M8 5L4 9l4 4M4 9h10a5 5 0 0 1 0 10h-3",
  globe: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16M4 12h16M12 4c-5 5-5 11 0 16 5-5 5-11 0-16",
};

/** Make an element. Properties beginning with "on" are listeners; null and false are left out. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return the nodes of a sentence of the bot, with links for its addresses, and code between backticks. */
export function linkify(text) {
  return text.split(/(https?:\/\/\S+|`[^`]+`)/).map((part, index) => {
    if (index % 2 === 0) return part;
    return part[0] === "`" ? el("code", {}, part.slice(1, -1)) : el("a", { href: part, target: "_blank", rel: "noopener noreferrer" }, part);
  });
}

export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  for (const [attribute, value] of Object.entries({ viewBox: "0 0 24 24", "aria-hidden": "true", class: "glyph" }))
    svg.setAttribute(attribute, value);
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

export function smallButton(label, iconName, onclick) {
  return el("button", { type: "button", class: "small", onclick }, icon(iconName), el("span", {}, label));
}

const styleSheets = new Map();

/** Load a style sheet that not every conversation needs, once, and wait for it. */
export function loadStyles(href) {
  if (!styleSheets.has(href))
    styleSheets.set(href, new Promise((resolve) => document.head.append(el("link", { rel: "stylesheet", href, onload: resolve, onerror: resolve }))));
  return styleSheets.get(href);
}

/** Move the focus in a list of buttons by arrow keys. */
export function moveByArrows(list, event) {
  const items = [...list.querySelectorAll("button")];
  const index = items.indexOf(document.activeElement);
  const newIndex = { ArrowDown: index + 1, ArrowUp: index < 0 ? -1 : index - 1, Home: 0, End: -1 }[event.key];
  if (newIndex === undefined) return;
  event.preventDefault();
  items.at(newIndex % items.length).focus();
}

/** Return whether the colours are dark, by the choice in this browser or else in the system. */
export function isDark() {
  return (localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
}

export const $ = (id) => document.getElementById(id);

// Characters that are invisible, or that reorder others.
const DECEPTIVE_CHARACTERS = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

// A box with hidden content can be reached by Tab, so that keys can scroll it; others cannot.
const scrollObserver = new ResizeObserver((entries) => {
  for (const { target } of entries) updateTabStop(target);
});

function updateTabStop(box) {
  const isCut = box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1;
  if (isCut) box.tabIndex = 0;
  else if (document.activeElement !== box) box.removeAttribute("tabindex");
}

/** Let a box take the focus while part of its content is hidden. */
export function makeScrollable(box) {
  scrollObserver.observe(box);
  return box;
}

/** Replace the deceiving characters of a name. */
export function cleanText(text) {
  return String(text).replace(DECEPTIVE_CHARACTERS, "\ufffd");
}

/** Return an element for a name, whose text direction does not affect its surroundings. */
export function nameElement(name, properties = {}) {
  return el("bdi", { title: cleanText(name), ...properties }, cleanText(name));
}

/** Return a size as the server's `text/quantities` writes it. */
export function formatSize(bytes) {
  const units = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
  for (const [unit, factor] of units)
    if (bytes >= factor) {
      const amount = bytes / factor;
      return `${amount >= 100 ? Math.round(amount).toLocaleString("en") : Number(amount.toPrecision(3))} ${unit}`;
    }
  return bytes === 1 ? "1 byte" : `${bytes.toLocaleString("en")} bytes`;
}

/** Return a duration as the server's `text/quantities` writes it. */
export function formatDuration(seconds) {
  if (seconds < 59.95) return `${Number(seconds.toFixed(seconds < 1 ? 2 : 1))} s`;
  const wholeSeconds = Math.round(seconds), hours = Math.floor(wholeSeconds / 3600);
  const parts = [[hours, "h"], [Math.floor(wholeSeconds / 60) % 60, "min"], [hours ? 0 : wholeSeconds % 60, "s"]];
  return parts.filter(([amount]) => amount).map(([amount, unit]) => `${amount} ${unit}`).join(" ");
}

/** Return a random id for a conversation or a request. */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Query parameters that all addresses of this page have. */
export const commonQuery = {};

export function address(path, query) {
  return `${path}?${new URLSearchParams({ ...commonQuery, ...query })}`;
}

/** A button that copies a text, and says so. */
export function copyButton(readText, idleLabel = buttonWords.copy) {
  const label = el("span", {}, idleLabel);
  const button = el("button", { type: "button", class: "small", onclick: copy }, icon("copy"), label);
  async function copy() {
    try {
      await navigator.clipboard.writeText(readText());
      label.textContent = buttonWords.copied;
    } catch {
      label.textContent = copyBySelection(readText()) ? buttonWords.copied : buttonWords.notCopied;
    }
    setTimeout(() => (label.textContent = idleLabel), 1600);
  }
  return button;
}

// Browsers offer the clipboard only to pages with TLS or on this machine.
function copyBySelection(text) {
  const textarea = el("textarea", { class: "unseen" });
  textarea.value = text;
  document.body.append(textarea);
  textarea.select();
  const isCopied = document.execCommand("copy");
  textarea.remove();
  return isCopied;
}

/** Show a picture in full size when it is clicked. */
export function enlargePictures() {
  addEventListener("click", async (event) => {
    const picture = event.target.closest?.("[data-enlarged]");
    if (!picture || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    (await import("./gallery.js")).enlarge(picture);
  });
}

/** Let the browser save a file from an address, under a name if one is given. */
export function download(href, name = "") {
  const link = el("a", { href, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}
