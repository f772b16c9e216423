// What is in a file, shown beside the conversation. Nothing of it ever becomes a part of this page:
// text stays text, pages and pictures are behind walls of their own, sounds and films only play.

import { address, copier, el, icon, plain, scrollable, size } from "./dom.js";
import { post } from "./connection.js";
import { PICTURE, PAGE, fileAddress } from "./files.js";
import { Words } from "./markdown.js";
import { framed } from "./outputs.js";
import { fileWords } from "./later_words.js";
import { buttonWords } from "./words.js";

const TABLE = /\.(?:csv|tsv|tab|parquet|pq|xlsx|xlsm|xlsb|xls|ods)$/i;
const PLAYED = { audio: /\.(?:mp3|m4a|wav|flac|ogg)$/i, video: /\.(?:mp4|m4v|webm)$/i };
const BUSY_MILLISECONDS = 700;
const MAX_TRIES = 20;
const MAX_CELLS = 300;
const DEEPEST = 50;
const MAX_TIMES = 8;
const MAX_BYTES = 256 * 1024;

/**
 * Show a file, or what it was at a checkpoint.
 * @param {{name: string, size_bytes: number, checkpoint?: string}} file
 * @param {{thread: string, say(message: object): boolean}} around
 */
export function preview(file, { thread, say }) {
  const { name, checkpoint } = file, query = { thread, name, ...(checkpoint ? { checkpoint } : {}) };
  if (file.size_bytes === 0) return told(fileWords.empty);
  if (PICTURE.test(name)) return el("button", { type: "button", class: "picture", title: buttonWords.enlarge, "data-enlarged": plain(name), "data-save": fileAddress(query) }, el("img", { src: address("/picture", query), alt: plain(name) }));
  if (PAGE.test(name)) return framed(query, plain(name));
  // Python sees the present file only.
  if (TABLE.test(name) && !checkpoint) return tableOf(query, say);
  if (/\.pdf$/i.test(name)) return el("iframe", { class: "document", title: plain(name), src: address("/media", query) });
  for (const [tag, names] of Object.entries(PLAYED))
    if (names.test(name)) return el(tag, { controls: true, preload: "metadata", src: address("/media", query), "aria-label": plain(name) });
  return later(() => text(query, file.size_bytes));
}

function told(sentence) {
  return el("p", { class: "notice" }, sentence);
}

/** Show what is still to come, or why it does not. */
function later(make) {
  const place = el("div", { class: "preview-place", role: "status" }, told(fileWords.reading));
  const fill = async () => {
    try {
      place.replaceChildren(await make());
      place.removeAttribute("role");
    } catch (error) {
      const again = el("button", { type: "button", class: "small", onclick: () => (place.replaceChildren(told(fileWords.reading)), fill()) }, buttonWords.tryAgain);
      place.replaceChildren(el("p", { class: "notice" }, el("span", {}, error.message), again));
    }
  };
  fill();
  return place;
}

function tableOf(query, say) {
  return later(async () => {
    const [{ LiveTable }, opened] = await Promise.all([import("./tables.js"), openedTable(query)]);
    const again = (sheet) => place.replaceWith(tableOf({ ...query, sheet }, say));
    const gone = (sentence) => live.element.replaceWith(el("p", { class: "notice" }, el("span", {}, sentence),
      el("button", { type: "button", class: "small", onclick: () => again(query.sheet ?? "") }, fileWords.readAgain)));
    const live = new LiveTable(opened, { say, gone });
    const sheets = opened.sheets.length > 1
      ? el("label", { class: "sheets" }, fileWords.sheet, el("select", { onchange: (event) => again(event.target.value) },
          opened.sheets.map((one) => el("option", { value: one, selected: one === query.sheet }, plain(one)))))
      : null;
    const place = el("div", { class: "preview-place" }, sheets, opened.notes.map((note) => told(plain(note))), live.element);
    return place;
  });
}

/** Let Python read a file; while it is busy it is asked again, until somebody looks elsewhere. */
async function openedTable(query) {
  for (let tries = 0; ; tries++) {
    const opened = await post("/open", query);
    if (!opened.problem) return opened;
    if (!opened.is_busy || tries >= MAX_TRIES) throw new Error(opened.problem);
    await new Promise((go) => setTimeout(go, BUSY_MILLISECONDS));
  }
}

async function text(query, bytes) {
  const { words, isCut, isWhole } = await beginning(fileAddress(query));
  if (words.includes("\0")) return told(fileWords.notText(size(bytes)));
  const shown = drawn(query.name, words, isCut);
  return el("div", { class: "preview-place" }, isCut ? told(fileWords.firstBytes(size(MAX_BYTES), size(bytes))) : null,
    isWhole ? null : told(fileWords.notUtf8),
    shown, el("div", { class: "output-tools" }, copier(() => words)));
}

function drawn(name, words, isCut) {
  if (/\.(?:md|markdown)$/i.test(name)) {
    const shown = new Words();
    shown.set(words);
    return shown.element;
  }
  if (/\.ipynb$/i.test(name) && !isCut) return notebook(words);
  return scrollable(el("pre", { class: "value", dir: "auto" }, /\.json$/i.test(name) && !isCut ? indented(words) : words));
}

/** The words and the code of a notebook; what it showed is left out. */
function notebook(json) {
  const { worksheets, cells = worksheets?.[0]?.cells } = JSON.parse(json);
  if (!Array.isArray(cells)) throw new Error(fileWords.notANotebook);
  return el("div", { class: "preview-place" }, cells.slice(0, MAX_CELLS).map(({ cell_type: kind, input = "", source = input }) => {
    const words = [source].flat().join("");
    return kind === "markdown" ? drawn("x.md", words, false) : el("pre", { class: "value", dir: "ltr" }, words);
  }));
}

/** A line for each value, unless that is many times as much: a few bytes may be nested very deeply. */
function indented(json) {
  let depth = 0, deepest = 0;
  for (const [mark] of json.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{}]/g)) {
    if (mark === "[" || mark === "{") deepest = Math.max(deepest, ++depth);
    else if (mark === "]" || mark === "}") depth--;
  }
  if (deepest > DEEPEST) return json;
  try {
    const lines = JSON.stringify(JSON.parse(json), null, 2);
    return lines.length > MAX_TIMES * json.length ? json : lines;
  } catch {
    return json;
  }
}

/** Read the beginning of a file; the rest is not even sent. */
async function beginning(from) {
  const stop = new AbortController();
  const response = await fetch(from, { signal: stop.signal });
  if (!response.ok) throw new Error(await response.text());
  const reader = response.body.getReader(), data = new Uint8Array(MAX_BYTES);
  let read = 0, isCut = false;
  while (!isCut) {
    const { done, value } = await reader.read();
    if (done) break;
    isCut = read + value.length > MAX_BYTES;
    data.set(value.subarray(0, MAX_BYTES - read), read);
    read = Math.min(read + value.length, MAX_BYTES);
  }
  if (isCut) stop.abort();
  return { ...decoded(data.subarray(0, read), isCut), isCut };
}

/** The text of some bytes: by their mark, or as UTF-8, of which the last letter may be cut. */
function decoded(data, isCut) {
  const isWide = (data[0] === 0xff && data[1] === 0xfe) || (data[0] === 0xfe && data[1] === 0xff);
  const encoding = isWide ? (data[0] === 0xff ? "utf-16le" : "utf-16be") : "utf-8";
  try {
    return { words: new TextDecoder(encoding, { fatal: true }).decode(data, { stream: isCut }), isWhole: true };
  } catch {
    return { words: new TextDecoder(encoding).decode(data), isWhole: false };
  }
}
