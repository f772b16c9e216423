// The files of a conversation, and the content of one of them.

import { address, download, el, icon, nameElement, cleanText, formatSize, smallButton, $ } from "./dom.js";
import { post } from "./connection.js";
import { askForText, askToConfirm } from "./dialogs.js";
import { fileAddress } from "./files.js";
import { preview } from "./previews.js";
import { dialogWords, fileWords } from "./later_words.js";
import { buttonWords } from "./words.js";

let context = null;
let paneBody = null;
let files = [];
let shownFile = null;
let maxBytes = 0;

/** Draw the list of files, or the file `name`; `isFresh` if the pane shows nothing of this conversation yet. */
export function draw(element, message, newContext, { name, isFresh }) {
  paneBody = element;
  context = newContext;
  files = message.files;
  maxBytes = message.max_bytes;
  if (isFresh) shownFile = null;
  if (name) return showFile(name);
  // The shown file stays, even if other files change.
  const current = shownFile && files.find((file) => file.name === shownFile.name);
  if (current) return current.modified === shownFile.modified ? undefined : showChangeNotice(current);
  showList();
}

function showList() {
  shownFile = null;
  const total = files.reduce((sum, file) => sum + file.size_bytes, 0);
  const tools = [smallButton(fileWords.upload, "plus", () => $("picker").click())];
  if (files.length) tools.push(smallButton(fileWords.downloadAll, "down", () => download(address("/archive", { thread: context.thread, name: context.title }))));
  const summary = files.length
    ? fileWords.allOf(files.length, formatSize(total), formatSize(maxBytes))
    : fileWords.noFiles;
  paneBody.replaceChildren(el("div", { class: "pane-tools" }, tools), el("p", { class: "muted" }, summary), el("ul", { class: "files" }, files.map(fileItem)));
}

function fileItem(file) {
  return el("li", { class: "file" }, el("button", { type: "button", class: "file-line", onclick: () => showFile(file.name) },
    icon("file"), el("span", { class: "file-what" }, nameElement(file.name, { class: "file-title" }), el("span", { class: "muted" }, formatSize(file.size_bytes)))));
}

function showFile(name) {
  const file = files.find((other) => other.name === name);
  if (!file) {
    showList();
    return showError(fileWords.gone(cleanText(name)));
  }
  shownFile = file;
  const query = { thread: context.thread, name };
  const back = smallButton(fileWords.allFiles, "before", () => (showList(), focusFile(name)));
  const tools = [
    el("a", { class: "small", href: fileAddress(query), download: "" }, icon("down"), el("span", {}, buttonWords.download)),
    smallButton(buttonWords.rename, "pen", () => renameFile(query)),
    ...(/\.ipynb$/i.test(name) ? [smallButton(buttonWords.runCells, "open", () => dispatchEvent(new CustomEvent("notebook", { detail: name })))] : []),
    smallButton(buttonWords.delete, "bin", () => deleteFile(query)),
  ];
  const heading = el("h2", { tabindex: -1 }, nameElement(name));
  paneBody.replaceChildren(back, heading, el("div", { class: "pane-tools" }, tools), el("div", { class: "file-shown" }, preview(file, context)));
  heading.focus();
}

function focusFile(name) {
  paneBody.querySelectorAll(".file > button")[files.findIndex((file) => file.name === name)]?.focus();
}

function showChangeNotice(file) {
  shownFile = file;
  paneBody.querySelector(".changed")?.remove();
  const reloadButton = smallButton(fileWords.reload, "look", () => showFile(file.name));
  paneBody.prepend(el("p", { class: "notice changed", role: "status" }, el("span", {}, fileWords.changed), reloadButton));
}

function showError(sentence) {
  paneBody.prepend(el("p", { class: "notice bad", role: "alert" }, sentence));
}

function refresh() {
  context.sendAction({ do: "show", panel: "files" });
}

async function renameFile(query) {
  const newName = await askForText(dialogWords.renameFile, { label: dialogWords.newName, value: query.name.split("/").pop(), action: buttonWords.rename });
  if (!newName?.trim()) return;
  try {
    announceChange(query, (await post("/rename", { ...query, to: newName.trim() })).name);
    shownFile = null;
    refresh();
  } catch (error) {
    showError(error.message);
  }
}

/** Tell the message field, to which the file may be attached; without a new name it is deleted. */
function announceChange({ thread, name }, newName = "") {
  dispatchEvent(new CustomEvent("file-changed", { detail: { thread, name, newName } }));
}

async function deleteFile(query) {
  if (!(await askToConfirm(dialogWords.deleteFile, dialogWords.deletesFile(cleanText(query.name)), { action: buttonWords.delete, isDestructive: true }))) return;
  try {
    await post("/delete", query);
    announceChange(query);
    shownFile = null;
    refresh();
  } catch (error) {
    showError(error.message);
  }
}
