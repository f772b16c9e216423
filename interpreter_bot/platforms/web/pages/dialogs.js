// Small dialogs, and the panel over a conversation.

import { $, el, loadStyles } from "./dom.js";
import { dialogWords } from "./later_words.js";
import { buttonWords } from "./words.js";

await loadStyles("/dialogs.css");

function showDialog(dialog) {
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}

function makeDialog(title, content, { action, isDestructive = false }) {
  const form = el("form", { method: "dialog" }, el("h2", {}, title), content,
    el("div", { class: "row end" },
      el("button", { value: "no", formnovalidate: true, class: "quiet" }, buttonWords.cancel),
      el("button", { value: "yes", class: isDestructive ? "strong bad" : "strong" }, action)));
  const dialog = el("dialog", { class: "small-dialog" }, form);
  // Enter in a field would press the first button, which cancels.
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || event.target.tagName !== "INPUT" || event.target.type === "checkbox") return;
    event.preventDefault();
    dialog.close("yes");
  });
  return dialog;
}

export function askToConfirm(title, text, options) {
  return showDialog(makeDialog(title, [el("p", {}, text)], options));
}

export async function askForText(title, { label, value, action }) {
  const field = el("input", { type: "text", value, maxlength: 200, dir: "auto" });
  const dialog = makeDialog(title, [el("label", {}, el("span", { class: "unseen" }, label), field)], { action });
  const confirmation = showDialog(dialog);
  field.select();
  return (await confirmation) ? field.value : null;
}

/** Ask whether to restart Python, and whether to delete the files as well. */
export async function confirmRestart() {
  const filesBox = el("input", { type: "checkbox" });
  const content = [
    el("p", {}, dialogWords.restarts),
    el("label", { class: "check" }, filesBox, el("span", {}, dialogWords.restartsFiles)),
  ];
  return (await showDialog(makeDialog(dialogWords.restart, content, { action: dialogWords.doRestart, isDestructive: true }))) ? { files: filesBox.checked } : null;
}

export function openPanel(title, ...content) {
  const hadFocus = $("panel-body").contains(document.activeElement);
  $("panel-title").textContent = title;
  $("panel-body").replaceChildren(...content);
  if (!$("panel").open) $("panel").showModal();
  else if (hadFocus) $("panel-body").querySelector("input:checked")?.focus();
}
