// A menu that opens at a button, over everything else.

import { $, el, moveByArrows } from "./dom.js";

$("actions").addEventListener("keydown", (event) => moveByArrows($("actions"), event));

/** Open it; entries are of words and what they do. */
export function openMenu(button, entries) {
  const menu = $("actions");
  menu.replaceChildren(...entries.map(([words, action]) =>
    el("button", { type: "button", role: "menuitem", onclick: () => (menu.hidePopover(), action()) }, words)));
  menu.showPopover();
  const at = button.getBoundingClientRect();
  const top = Math.min(at.bottom + 4, innerHeight - menu.offsetHeight - 8);
  menu.style.translate = `${Math.min(at.left, innerWidth - menu.offsetWidth - 8)}px ${top}px`;
  menu.firstChild.focus();
}
