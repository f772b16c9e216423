// All of the window for one element, until Escape gives it back.

import { el, icon, styled } from "./dom.js";
import { tableWords } from "./later_words.js";
import { buttonWords } from "./words.js";

await styled("/tables.css");

/**
 * Give an element all of the window; closing what this returns puts it back.
 * @param {{move?(put: () => void): void, closed?(): void}} around moves the element, where it has to be done with care
 */
export function enlarge(element, { move = (put) => put(), closed = () => {} } = {}) {
  const place = el("div", {});
  const still = (event) => event.stopPropagation();
  const room = el("dialog", { class: "table-room", "aria-label": tableWords.table, oncancel: still, onkeydown: still, onclose: close });
  move(() => {
    element.replaceWith(place);
    room.append(element);
    document.body.append(room);
    room.showModal();
  });
  function close() {
    move(() => place.replaceWith(element));
    room.remove();
    closed();
  }
  return room;
}

/** Enlarge what has no button of its own to be small again. */
export function enlargeStill(element, button, words) {
  const leave = el("button", { type: "button", class: "small", onclick: () => room.close() }, icon("close"), el("span", {}, buttonWords.leaveFullScreen));
  const room = enlarge(element, { closed: () => button.focus() });
  room.prepend(el("div", { class: "table-bar" }, el("span", { class: "muted" }, words), leave));
  leave.focus();
}
