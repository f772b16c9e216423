// Previews of files, beside the conversation. Their content never becomes a part of this page: text
// stays text, pages and pictures have sandboxes of their own, sounds and films only play.

import { address, copyButton, el, icon, cleanText, makeScrollable, formatSize } from "./dom.js";
import { post } from "./connection.js";
import { PICTURE_NAME, PAGE_NAME, fileAddress } from "./files.js";
import { MarkdownView } from "./markdown.js";
import { pageFrame } from "./outputs.js";
import { fileWords } from "./later_words.js";
import { buttonWords } from "./words.js";

const TABLE_NAME = /\.(?:csv|tsv|tab|parquet|pq|xlsx|xlsm|xlsb|xls|ods)$/i;
const MEDIA_NAMES = { audio: /\.(?:mp3|m4a|wav|flac|ogg)$/i, video: /\.(?:mp4|m4v|webm)$/i };
const BUSY_MILLISECONDS = 700;
const MAX_TRIES = 20;
const MAX_NOTEBOOK_CELLS = 300;
const MAX_DEPTH = 50;
const MAX_GROWTH = 8;
const MAX_TEXT_BYTES = 256 * 1024;

/** Show a file. */
export function preview(file, { thread, sendAction }) {
  const { name } = file, query = { thread, name };
  if (file.size_bytes === 0) return noticeOf(fileWords.empty);
  if (PICTURE_NAME.test(name)) return el("button", { type: "button", class: "picture", title: buttonWords.enlarge, "data-enlarged": cleanText(name), "data-save": fileAddress(query) }, el("img", { src: address("/picture", query), alt: cleanText(name) }));
  if (PAGE_NAME.test(name)) return pageFrame(query, cleanText(name));
  if (TABLE_NAME.test(name)) return tablePreview(query, sendAction);
  if (/\.pdf$/i.test(name)) return el("iframe", { class: "document", title: cleanText(name), src: address("/media", query) });
  for (const [tag, names] of Object.entries(MEDIA_NAMES))
    if (names.test(name)) return el(tag, { controls: true, preload: "metadata", src: address("/media", query), "aria-label": cleanText(name) });
  return loadingBox(() => textPreview(query, file.size_bytes));
}

function noticeOf(sentence) {
  return el("p", { class: "notice" }, sentence);
}

/** Return a box for content that is still loading; if that fails, the box shows why. */
function loadingBox(makeContent) {
  const box = el("div", { class: "preview-place", role: "status" }, noticeOf(fileWords.reading));
  const load = async () => {
    try {
      box.replaceChildren(await makeContent());
      box.removeAttribute("role");
    } catch (error) {
      const retryButton = el("button", { type: "button", class: "small", onclick: () => (box.replaceChildren(noticeOf(fileWords.reading)), load()) }, buttonWords.tryAgain);
      box.replaceChildren(el("p", { class: "notice" }, el("span", {}, error.message), retryButton));
    }
  };
  load();
  return box;
}

function tablePreview(query, sendAction) {
  return loadingBox(async () => {
    const [{ LiveTable }, opened] = await Promise.all([import("./tables.js"), openTable(query)]);
    const reopen = (sheet) => box.replaceWith(tablePreview({ ...query, sheet }, sendAction));
    const onGone = (sentence) => live.element.replaceWith(el("p", { class: "notice" }, el("span", {}, sentence),
      el("button", { type: "button", class: "small", onclick: () => reopen(query.sheet ?? "") }, fileWords.readAgain)));
    const live = new LiveTable(opened, { sendAction, onGone });
    const sheets = opened.sheets.length > 1
      ? el("label", { class: "sheets" }, fileWords.sheet, el("select", { onchange: (event) => reopen(event.target.value) },
          opened.sheets.map((sheetName) => el("option", { value: sheetName, selected: sheetName === query.sheet }, cleanText(sheetName)))))
      : null;
    const box = el("div", { class: "preview-place" }, sheets, opened.notes.map((note) => noticeOf(cleanText(note))), live.element);
    return box;
  });
}

/** Let Python read a file; while Python is busy, ask again, at most `MAX_TRIES` times. */
async function openTable(query) {
  for (let tries = 0; ; tries++) {
    const opened = await post("/open", query);
    if (!opened.problem) return opened;
    if (!opened.is_busy || tries >= MAX_TRIES) throw new Error(opened.problem);
    await new Promise((resolve) => setTimeout(resolve, BUSY_MILLISECONDS));
  }
}

async function textPreview(query, bytes) {
  const { text: content, isCut, isUtf8 } = await readBeginning(fileAddress(query));
  if (content.includes("\0")) return noticeOf(fileWords.notText(formatSize(bytes)));
  const node = textNode(query.name, content, isCut);
  return el("div", { class: "preview-place" }, isCut ? noticeOf(fileWords.firstBytes(formatSize(MAX_TEXT_BYTES), formatSize(bytes))) : null,
    isUtf8 ? null : noticeOf(fileWords.notUtf8),
    node, el("div", { class: "output-tools" }, copyButton(() => content)));
}

function textNode(name, content, isCut) {
  if (/\.(?:md|markdown)$/i.test(name)) {
    const view = new MarkdownView();
    view.setText(content);
    return view.element;
  }
  if (/\.ipynb$/i.test(name) && !isCut) return notebook(content);
  return makeScrollable(el("pre", { class: "value", dir: "auto" }, /\.json$/i.test(name) && !isCut ? indentJson(content) : content));
}

/** Draw the text and code cells of a notebook, without their outputs. */
function notebook(json) {
  return el("div", { class: "preview-place" }, notebookCells(json).map(([cellType, content]) =>
    cellType === "markdown" ? textNode("x.md", content, false) : el("pre", { class: "value", dir: "ltr" }, content)));
}

/** The type and the text of each cell. */
function notebookCells(json) {
  try {
    const { worksheets, cells = worksheets?.[0]?.cells } = JSON.parse(json);
    return cells.slice(0, MAX_NOTEBOOK_CELLS).map(({ cell_type: cellType, input = "", source = input }) => [cellType, [source].flat().join("")]);
  } catch {
    // No JSON, or other JSON than that of a notebook.
    throw new Error(fileWords.notANotebook);
  }
}

/** Indent JSON, unless it becomes many times longer: a few bytes may be nested very deeply. */
function indentJson(json) {
  let depth = 0, deepest = 0;
  for (const [mark] of json.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{}]/g)) {
    if (mark === "[" || mark === "{") deepest = Math.max(deepest, ++depth);
    else if (mark === "]" || mark === "}") depth--;
  }
  if (deepest > MAX_DEPTH) return json;
  try {
    const lines = JSON.stringify(JSON.parse(json), null, 2);
    return lines.length > MAX_GROWTH * json.length ? json : lines;
  } catch {
    return json;
  }
}

/** Read the beginning of a file; the rest is not even sent. */
async function readBeginning(address) {
  const controller = new AbortController();
  const response = await fetch(address, { signal: controller.signal });
  if (!response.ok) throw new Error(await response.text());
  const reader = response.body.getReader(), data = new Uint8Array(MAX_TEXT_BYTES);
  let byteCount = 0, isCut = false;
  while (!isCut) {
    const { done, value } = await reader.read();
    if (done) break;
    isCut = byteCount + value.length > MAX_TEXT_BYTES;
    data.set(value.subarray(0, MAX_TEXT_BYTES - byteCount), byteCount);
    byteCount = Math.min(byteCount + value.length, MAX_TEXT_BYTES);
  }
  if (isCut) controller.abort();
  return { ...decodeText(data.subarray(0, byteCount), isCut), isCut };
}

/** Decode bytes by their byte order mark, or as UTF-8, whose last letter may be cut. */
function decodeText(data, isCut) {
  const isWide = (data[0] === 0xff && data[1] === 0xfe) || (data[0] === 0xfe && data[1] === 0xff);
  const encoding = isWide ? (data[0] === 0xff ? "utf-16le" : "utf-16be") : "utf-8";
  try {
    return { text: new TextDecoder(encoding, { fatal: true }).decode(data, { stream: isCut }), isUtf8: true };
  } catch {
    return { text: new TextDecoder(encoding).decode(data), isUtf8: false };
  }
}
