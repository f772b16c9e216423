// Small questions to the person, and the panel beside a conversation.

import { $, el, styled } from "./dom.js";
import { dialogWords } from "./later_words.js";
import { buttonWords } from "./words.js";

await styled("/dialogs.css");

function shown(dialog) {
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}

function frame(title, content, { action, isBad = false }) {
  const form = el("form", { method: "dialog" }, el("h2", {}, title), content,
    el("div", { class: "row end" },
      el("button", { value: "no", formnovalidate: true, class: "quiet" }, buttonWords.cancel),
      el("button", { value: "yes", class: isBad ? "strong bad" : "strong" }, action)));
  const dialog = el("dialog", { class: "small-dialog" }, form);
  // Enter in a field is the first button, which would be to cancel.
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.tagName !== "INPUT" || event.target.type === "checkbox") return;
    event.preventDefault();
    dialog.close("yes");
  });
  return dialog;
}

export function confirmed(title, text, options) {
  return shown(frame(title, [el("p", {}, text)], options));
}

export async function asked(title, { label, value, action }) {
  const field = el("input", { type: "text", value, maxlength: 200, dir: "auto" });
  const dialog = frame(title, [el("label", {}, el("span", { class: "unseen" }, label), field)], { action });
  const answer = shown(dialog);
  field.select();
  return (await answer) ? field.value : null;
}

/** Ask whether to start Python anew, and whether files go as well. */
export async function askedToRestart() {
  const box = el("input", { type: "checkbox" });
  const content = [
    el("p", {}, dialogWords.restarts),
    el("label", { class: "check" }, box, el("span", {}, dialogWords.restartsFiles)),
  ];
  return (await shown(frame(dialogWords.restart, content, { action: dialogWords.doRestart, isBad: true }))) ? { files: box.checked } : null;
}

export function openPanel(title, ...content) {
  const hadFocus = $("panel-body").contains(document.activeElement);
  $("panel-title").textContent = title;
  $("panel-body").replaceChildren(...content);
  if (!$("panel").open) $("panel").showModal();
  else if (hadFocus) $("panel-body").querySelector("input:checked")?.focus();
}
