// The pane beside a conversation: its files, what is in one of them, and what became of it when.

import { $, address, count, download, el, icon, named, plain, size, styled } from "./dom.js";
import { post } from "./connection.js";
import { asked, confirmed } from "./dialogs.js";
import { fileAddress } from "./files.js";
import { preview } from "./previews.js";

await styled("/pane.css");

let around = null;
let files = [];
let shown = null;

/** Whether it is to be seen, of this conversation. */
export function isOpen() {
  return !$("pane").hidden;
}

/**
 * Show the files of a conversation.
 * @param {{files: object[], most_bytes: number}} told
 * @param {{thread: string, title: string, say(message: object): boolean}} actions
 * @param {string} name of the file that is wanted; empty for all
 */
export function showFiles(told, actions, name = "") {
  const isAnother = around?.thread !== actions.thread, wasOpen = isOpen();
  around = actions;
  files = told.files;
  if (isAnother) shown = null;
  $("pane").hidden = false;
  document.body.classList.add("with-pane");
  if (name) return open(name);
  // What is looked at stays, whatever else becomes of the other files.
  const present = shown && files.find((one) => one.name === shown.name);
  if (present) return present.modified === shown.modified ? undefined : tellOfChange(present);
  list(told.most_bytes);
  if (!wasOpen) $("pane").querySelector("h2").focus();
}

export function closeFiles() {
  if (!isOpen()) return;
  const hadFocus = $("pane").contains(document.activeElement);
  $("pane").hidden = true;
  shown = null;
  document.body.classList.remove("with-pane");
  $("pane").replaceChildren();
  if (hadFocus) $("files").focus();
}

function draw(title, before, tools, ...content) {
  const close = el("button", { type: "button", class: "icon", "aria-label": "Close the files", onclick: closeFiles }, icon("close"));
  $("pane").replaceChildren(el("header", {}, before, el("h2", { tabindex: -1 }, title), close), el("div", { class: "pane-tools" }, tools), el("div", { class: "pane-body" }, content));
}

function button(words, glyph, onclick) {
  return el("button", { type: "button", class: "small", onclick }, icon(glyph), el("span", {}, words));
}

let most = 0;

function list(mostBytes = most) {
  most = mostBytes;
  shown = null;
  const total = files.reduce((sum, file) => sum + file.size_bytes, 0);
  const tools = [button("Upload", "plus", () => $("picker").click())];
  if (files.length) tools.push(button("Download all", "down", () => download(address("/archive", { thread: around.thread, name: around.title }))));
  const said = files.length
    ? `${count(files.length, "file", "files")}, ${size(total)} of ${size(most)}`
    : "No files yet. Drop one on the page, or let the code make some; they lie in /mnt/data.";
  draw("Files", null, tools, el("p", { class: "muted" }, said), el("ul", { class: "files" }, files.map(entry)));
}

function entry(file) {
  return el("li", { class: "file" }, el("button", { type: "button", class: "file-line", onclick: () => open(file.name) },
    icon("file"), el("span", { class: "file-what" }, named(file.name, { class: "file-title" }), el("span", { class: "muted" }, size(file.size_bytes)))));
}

function open(name) {
  const file = files.find((one) => one.name === name);
  if (!file) {
    list();
    return complain(`There is no ${plain(name)} any more.`);
  }
  shown = file;
  const query = { thread: around.thread, name };
  const back = el("button", { type: "button", class: "small", onclick: () => (list(), focusOn(name)) }, "All files");
  const tools = [
    el("a", { class: "small", href: fileAddress(query), download: "" }, icon("down"), el("span", {}, "Download")),
    button("Rename", "pen", () => rename(query)),
    ...(/\.ipynb$/i.test(name) ? [button("Run its cells", "open", () => dispatchEvent(new CustomEvent("notebook", { detail: name })))] : []),
    button("Delete", "bin", () => remove(query)),
  ];
  draw(named(name), back, tools, preview(file, around), versions(query));
  $("pane").querySelector("h2").focus();
}

function focusOn(name) {
  const place = files.findIndex((one) => one.name === name);
  $("pane").querySelectorAll(".file > button")[place]?.focus();
}

/** In which turns it was sent or made, and what it was then, as long as that is kept. */
function versions(query) {
  const place = el("div", { class: "file-versions" });
  const fill = async () => {
    const response = await fetch(address("/versions", query));
    if (!response.ok) throw new Error(await response.text());
    const found = (await response.json()).versions;
    if (!found.length) return el("p", { class: "muted" }, "Not sent yet.");
    return el("details", {}, el("summary", {}, `History (${found.length})`), el("ol", {}, found.map((one, number) => version(query, one, number === 0))));
  };
  fill().then((made) => place.replaceChildren(made), (error) => place.replaceChildren(el("p", { class: "notice" }, error.message)));
  return place;
}

function version(query, { request, at, size_bytes: bytes, was_sent: wasSent, checkpoint }, isLast) {
  const time = new Date(at * 1000);
  const said = `${bytes === null ? "" : `${size(bytes)}, `}${wasSent ? "sent with" : "made by"}: ${plain(request) || "a file alone"}`;
  const tools = isLast ? el("span", { class: "muted" }, "As it is now") : checkpoint
    ? [button("Look", "look", () => lookBack({ name: query.name, size_bytes: bytes, checkpoint }, time)),
       el("a", { class: "small", href: fileAddress({ ...query, checkpoint }), download: "" }, icon("down"), el("span", {}, "Download")),
       button("Bring back", "before", () => bringBack({ ...query, checkpoint }))]
    : el("span", { class: "muted" }, "Not kept");
  return el("li", {}, el("time", { datetime: time.toISOString() }, time.toLocaleString()), el("span", { dir: "auto" }, ` ${said}`), el("div", { class: "output-tools" }, tools));
}

/** Show what a file was, in the place of what it is. */
function lookBack(file, time) {
  const back = button("As it is now", "look", () => open(file.name));
  $("pane").querySelector(".pane-body").replaceChildren(
    el("p", { class: "notice", role: "status" }, el("span", {}, `As it was after ${time.toLocaleString()}. `), back), preview(file, around));
}

async function bringBack(query) {
  try {
    const { name } = await post("/bring-back", query);
    renew();
    const told = el("p", { class: "notice", role: "status" }, `It is beside this one, as ${plain(name)}.`);
    $("pane").querySelector(".pane-body").prepend(told);
  } catch (error) {
    complain(error.message);
  }
}

function tellOfChange(file) {
  shown = file;
  $("pane").querySelector(".changed")?.remove();
  const again = button("Look again", "look", () => open(file.name));
  $("pane").querySelector(".pane-body").prepend(el("p", { class: "notice changed", role: "status" }, el("span", {}, "This file has changed."), again));
}

function complain(sentence) {
  $("pane").querySelector(".pane-body").prepend(el("p", { class: "notice bad", role: "alert" }, sentence));
}

function renew() {
  around.say({ do: "show", panel: "files" });
}

async function rename(query) {
  const wanted = await asked("Rename this file", { label: "New name", value: query.name.split("/").pop(), action: "Rename" });
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
  if (!(await confirmed("Delete this file?", `${plain(query.name)} is deleted for good. This can't be undone.`, { action: "Delete", isBad: true }))) return;
  try {
    await post("/delete", query);
    shown = null;
    renew();
  } catch (error) {
    complain(error.message);
  }
}
