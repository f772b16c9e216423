// All of the window for one element, until Escape gives it back.

import { el, icon, loadStyles } from "./dom.js";
import { tableWords } from "./later_words.js";
import { buttonWords } from "./words.js";

await loadStyles("/tables.css");

/**
 * Give an element all of the window; closing what this returns puts it back.
 * @param {{move?(put: () => void): void, closed?(): void}} around moves the element, where it has to be done with care
 */
export function showFullWindow(element, { moveElement = (move) => move(), onClose = () => {} } = {}) {
  const placeholder = el("div", {});
  const keepKey = (event) => event.stopPropagation();
  const dialog = el("dialog", { class: "table-room", "aria-label": tableWords.table, oncancel: keepKey, onkeydown: keepKey, onclose: close });
  moveElement(() => {
    element.replaceWith(placeholder);
    dialog.append(element);
    document.body.append(dialog);
    dialog.showModal();
  });
  function close() {
    moveElement(() => placeholder.replaceWith(element));
    dialog.remove();
    onClose();
  }
  return dialog;
}

/** Enlarge what has no button of its own to be small again. */
export function showStaticFullWindow(element, button, label) {
  const closeButton = el("button", { type: "button", class: "small", onclick: () => dialog.close() }, icon("close"), el("span", {}, buttonWords.leaveFullScreen));
  const dialog = showFullWindow(element, { onClose: () => button.focus() });
  dialog.prepend(el("div", { class: "table-bar" }, el("span", { class: "muted" }, label), closeButton));
  closeButton.focus();
}
