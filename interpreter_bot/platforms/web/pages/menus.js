// A menu that opens at a button, over everything else.

import { $, el, icon, moveByArrows, styled } from "./dom.js";

await styled("/menus.css");

const menu = $("actions");
let owner = null;
let wasOpen = false;

menu.addEventListener("keydown", (event) => moveByArrows(menu, event));
menu.addEventListener("toggle", ({ newState }) => newState === "closed" && owner.setAttribute("aria-expanded", "false"));
// A press on its own button closes the menu; the click that follows must not open it again.
addEventListener("pointerdown", (event) => (wasOpen = menu.matches(":popover-open") && owner.contains(event.target)), true);

/**
 * Open it at a button.
 * @param {[string, ...[string, string, () => void, {state?: string, isOn?: boolean, isOneOf?: boolean}?]][]} groups
 *   each of a heading, which may be empty, and entries: words, icon, what they do, and what is so now
 */
export function openMenu(button, groups) {
  if (wasOpen) return void (wasOpen = false);
  owner = button;
  menu.setAttribute("aria-label", button.ariaLabel || button.innerText);
  menu.replaceChildren(...groups.map(([heading, ...entries]) =>
    el("div", { role: "group", "aria-label": heading || null }, heading ? el("p", { "aria-hidden": "true" }, heading) : null, entries.map(entry))));
  menu.showPopover();
  button.setAttribute("aria-expanded", "true");
  const at = button.getBoundingClientRect();
  const top = Math.min(at.bottom + 4, innerHeight - menu.offsetHeight - 8);
  menu.style.translate = `${Math.min(at.left, innerWidth - menu.offsetWidth - 8)}px ${top}px`;
  menu.querySelector("button").focus();
}

function entry([words, glyph, act, { state, isOn, isOneOf } = {}]) {
  const role = isOn === undefined ? "menuitem" : isOneOf ? "menuitemradio" : "menuitemcheckbox";
  return el("button", { type: "button", role, "aria-checked": isOn === undefined ? null : String(isOn), onclick: () => (menu.hidePopover(), act()) },
    icon(glyph), el("span", {}, words), state ? el("span", { class: "muted" }, state) : null, isOn ? icon("check") : null);
}
