// A menu that opens at a button, over everything else.

import { $, el } from "./dom.js";

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

/** Let arrow keys go through a list of buttons; returns whether the key was one of them. */
export function moveByArrows(list, event) {
  const items = [...list.children];
  const at = items.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at < 0 ? -1 : at - 1, Home: 0, End: -1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  items.at(to % items.length).focus();
}
