// A menu that opens at a button, over everything else.

import { $, el, icon, moveByArrows, loadStyles } from "./dom.js";

await loadStyles("/menus.css");

const menu = $("actions");
let ownerButton = null;
let wasOpen = false;

menu.addEventListener("keydown", (event) => moveByArrows(menu, event));
menu.addEventListener("toggle", ({ newState }) => newState === "closed" && ownerButton.setAttribute("aria-expanded", "false"));
// A press on its own button closes the menu; the click that follows must not open it again.
addEventListener("pointerdown", (event) => (wasOpen = menu.matches(":popover-open") && ownerButton.contains(event.target)), true);

/**
 * Open the menu at a button. Each group is a heading, which may be empty, and entries: a label, an
 * icon, an action, and options: `state` (a text), `isOn` and `isRadio`.
 */
export function openMenu(button, groups) {
  if (wasOpen) return void (wasOpen = false);
  ownerButton = button;
  menu.setAttribute("aria-label", button.ariaLabel || button.innerText);
  menu.replaceChildren(...groups.map(([heading, ...entries]) =>
    el("div", { role: "group", "aria-label": heading || null }, heading ? el("p", { "aria-hidden": "true" }, heading) : null, entries.map(entry))));
  menu.showPopover();
  button.setAttribute("aria-expanded", "true");
  const box = button.getBoundingClientRect();
  const top = Math.min(box.bottom + 4, innerHeight - menu.offsetHeight - 8);
  menu.style.translate = `${Math.min(box.left, innerWidth - menu.offsetWidth - 8)}px ${top}px`;
  menu.querySelector("button").focus();
}

function entry([label, iconName, action, { state, isOn, isRadio } = {}]) {
  const role = isOn === undefined ? "menuitem" : isRadio ? "menuitemradio" : "menuitemcheckbox";
  return el("button", { type: "button", role, "aria-checked": isOn === undefined ? null : String(isOn), onclick: () => (menu.hidePopover(), action()) },
    icon(iconName), el("span", {}, label), state ? el("span", { class: "muted" }, state) : null, isOn ? icon("check") : null);
}
