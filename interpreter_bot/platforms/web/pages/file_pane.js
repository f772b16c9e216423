// The files of a conversation, what is in one of them, and what became of it when.

import { address, download, el, icon, named, plain, size, $ } from "./dom.js";
import { post } from "./connection.js";
import { asked, confirmed } from "./dialogs.js";
import { fileAddress } from "./files.js";
import { preview } from "./previews.js";
import { dialogWords, fileWords } from "./later_words.js";
import { buttonWords } from "./words.js";

let around = null;
let place = null;
let files = [];
let shown = null;
let most = 0;

/**
 * Draw the files of a conversation.
 * @param {{files: object[], max_bytes: number}} told
 * @param {{name: string, isAnother: boolean}} wanted the file that is wanted; whether nothing of it is there yet
 */
export function draw(body, told, actions, { name, isAnother }) {
  place = body;
  around = actions;
  files = told.files;
  most = told.max_bytes;
  if (isAnother) shown = null;
  if (name) return open(name);
  // What is looked at stays, whatever else becomes of the other files.
  const present = shown && files.find((one) => one.name === shown.name);
  if (present) return present.modified === shown.modified ? undefined : tellOfChange(present);
  list();
}

function button(words, glyph, onclick) {
  return el("button", { type: "button", class: "small", onclick }, icon(glyph), el("span", {}, words));
}

function list() {
  shown = null;
  const total = files.reduce((sum, file) => sum + file.size_bytes, 0);
  const tools = [button(fileWords.upload, "plus", () => $("picker").click())];
  if (files.length) tools.push(button(fileWords.downloadAll, "down", () => download(address("/archive", { thread: around.thread, name: around.title }))));
  const said = files.length
    ? fileWords.allOf(files.length, size(total), size(most))
    : fileWords.noFiles;
  place.replaceChildren(el("div", { class: "pane-tools" }, tools), el("p", { class: "muted" }, said), el("ul", { class: "files" }, files.map(entry)));
}

function entry(file) {
  return el("li", { class: "file" }, el("button", { type: "button", class: "file-line", onclick: () => open(file.name) },
    icon("file"), el("span", { class: "file-what" }, named(file.name, { class: "file-title" }), el("span", { class: "muted" }, size(file.size_bytes)))));
}

function open(name) {
  const file = files.find((one) => one.name === name);
  if (!file) {
    list();
    return complain(fileWords.gone(plain(name)));
  }
  shown = file;
  const query = { thread: around.thread, name };
  const back = button(fileWords.allFiles, "before", () => (list(), focusOn(name)));
  const tools = [
    el("a", { class: "small", href: fileAddress(query), download: "" }, icon("down"), el("span", {}, buttonWords.download)),
    button(buttonWords.rename, "pen", () => rename(query)),
    ...(/\.ipynb$/i.test(name) ? [button(buttonWords.runCells, "open", () => dispatchEvent(new CustomEvent("notebook", { detail: name })))] : []),
    button(buttonWords.delete, "bin", () => remove(query)),
  ];
  const heading = el("h2", { tabindex: -1 }, named(name));
  place.replaceChildren(back, heading, el("div", { class: "pane-tools" }, tools), el("div", { class: "file-shown" }, preview(file, around)), versions(query));
  heading.focus();
}

function focusOn(name) {
  place.querySelectorAll(".file > button")[files.findIndex((one) => one.name === name)]?.focus();
}

/** In which turns it was sent or made, and what it was then, as long as that is kept. */
function versions(query) {
  const past = el("div", { class: "file-versions" });
  const fill = async () => {
    const response = await fetch(address("/versions", query));
    if (!response.ok) throw new Error(await response.text());
    const found = (await response.json()).versions;
    if (!found.length) return el("p", { class: "muted" }, fileWords.notSent);
    return el("details", {}, el("summary", {}, fileWords.history(found.length)), el("ol", {}, found.map((one, number) => version(query, one, number === 0))));
  };
  fill().then((made) => past.replaceChildren(made), (error) => past.replaceChildren(el("p", { class: "notice" }, error.message)));
  return past;
}

function version(query, { request, at, size_bytes: bytes, was_sent: wasSent, checkpoint }, isLast) {
  const time = new Date(at * 1000);
  const said = `${bytes === null ? "" : `${size(bytes)}, `}${(wasSent ? fileWords.sentWith : fileWords.madeBy)(plain(request) || fileWords.noRequest)}`;
  const tools = isLast ? el("span", { class: "muted" }, fileWords.current) : checkpoint
    ? [button(buttonWords.view, "look", () => lookBack({ name: query.name, size_bytes: bytes, checkpoint }, time)),
       el("a", { class: "small", href: fileAddress({ ...query, checkpoint }), download: "" }, icon("down"), el("span", {}, buttonWords.download)),
       button(buttonWords.bringBack, "before", () => bringBack({ ...query, checkpoint }))]
    : el("span", { class: "muted" }, fileWords.notKept);
  return el("li", {}, el("time", { datetime: time.toISOString() }, time.toLocaleString()), el("span", { dir: "auto" }, ` ${said}`), el("div", { class: "output-tools" }, tools));
}

/** Show what a file was, in the place of what it is. */
function lookBack(file, time) {
  const back = button(fileWords.toCurrent, "look", () => open(file.name));
  place.querySelector(".file-shown").replaceChildren(
    el("p", { class: "notice", role: "status" }, el("span", {}, fileWords.versionOf(time.toLocaleString())), back), preview(file, around));
}

async function bringBack(query) {
  try {
    const { name } = await post("/bring-back", query);
    renew();
    const told = el("p", { class: "notice", role: "status" }, fileWords.restored(plain(name)));
    place.prepend(told);
  } catch (error) {
    complain(error.message);
  }
}

function tellOfChange(file) {
  shown = file;
  place.querySelector(".changed")?.remove();
  const again = button(fileWords.reload, "look", () => open(file.name));
  place.prepend(el("p", { class: "notice changed", role: "status" }, el("span", {}, fileWords.changed), again));
}

function complain(sentence) {
  place.prepend(el("p", { class: "notice bad", role: "alert" }, sentence));
}

function renew() {
  around.say({ do: "show", panel: "files" });
}

async function rename(query) {
  const wanted = await asked(dialogWords.renameFile, { label: dialogWords.newName, value: query.name.split("/").pop(), action: buttonWords.rename });
  if (!wanted?.trim()) return;
  try {
    await post("/rename", { ...query, to: wanted.trim() });
    shown = null;
    renew();
  } catch (error) {
    complain(error.message);
  }
}

async function remove(query) {
  if (!(await confirmed(dialogWords.deleteFile, dialogWords.deletesFile(plain(query.name)), { action: buttonWords.delete, isBad: true }))) return;
  try {
    await post("/delete", query);
    shown = null;
    renew();
  } catch (error) {
    complain(error.message);
  }
}
