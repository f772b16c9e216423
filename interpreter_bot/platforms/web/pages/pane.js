// The pane beside a conversation: its files, the variables of Python, and the columns of its tables.

import { $, el, icon, styled } from "./dom.js";
import { paneWords } from "./later_words.js";
import { buttonWords } from "./words.js";

await styled("/pane.css");

/** Each tab, the panel that is asked for it, and the module that draws it. */
const TABS = {
  files: [buttonWords.files, "files", () => import("./file_pane.js")],
  variables: [paneWords.variables, "variables", () => import("./variables_pane.js")],
  schema: [paneWords.schema, "variables", () => import("./schema_pane.js")],
};

const BUSY_MILLISECONDS = 1000;
let current = "files";
let around = null;

/** Whether it is to be seen. */
export function isOpen() {
  return !$("pane").hidden;
}

/** Ask for what is shown, which may be another now. */
export function renew(say) {
  say({ do: "show", panel: TABS[current][1], is_renewal: true });
}

/**
 * Show what was asked for.
 * @param {{panel: string, is_renewal: boolean}} message
 * @param {{thread: string, title: string, say(message: object): boolean, runAgain(): void, isRunning(): boolean}} actions
 * @param {string} name of the file that is wanted; empty for all
 */
export async function show(message, actions, name = "") {
  const wasOpen = isOpen(), isAnother = around?.thread !== actions.thread;
  // Whoever closed it meanwhile does not want it back.
  if (message.is_renewal && !wasOpen) return;
  around = actions;
  if (!wasOpen || TABS[current][1] !== message.panel) current = message.panel;
  if (!wasOpen) open();
  select();
  const tab = current;
  const { draw } = await TABS[tab][2]();
  if (tab !== current || !isOpen()) return;
  const isNew = isAnother || $("pane-body").dataset.tab !== tab;
  $("pane-body").dataset.tab = tab;
  const isBusy = await draw($("pane-body"), message, around, { name, isAnother: isNew });
  // Once what runs is over, it is asked for anyway.
  if (isBusy) setTimeout(() => isOpen() && current === tab && !around.isRunning() && renew(around.say), BUSY_MILLISECONDS);
}

function open() {
  const tab = ([key, [words]]) => el("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "pane-body", onclick: () => choose(key) }, words);
  const close = el("button", { type: "button", class: "icon", "aria-label": paneWords.close, onclick: closePane }, icon("close"));
  $("pane").replaceChildren(
    el("header", {}, el("div", { role: "tablist", "aria-label": paneWords.beside, onkeydown: moveBetweenTabs }, Object.entries(TABS).map(tab)), close),
    el("div", { id: "pane-body", role: "tabpanel", tabindex: -1 }));
  $("pane").hidden = false;
  document.body.classList.add("with-pane");
  select();
  $(`tab-${current}`).focus();
}

function select() {
  for (const tab of $("pane").querySelectorAll("[role=tab]")) {
    const isCurrent = tab.id === `tab-${current}`;
    tab.setAttribute("aria-selected", String(isCurrent));
    tab.tabIndex = isCurrent ? 0 : -1;
  }
  $("pane-body").setAttribute("aria-labelledby", `tab-${current}`);
}

function choose(key) {
  current = key;
  select();
  $(`tab-${key}`).focus();
  renew(around.say);
}

function moveBetweenTabs(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const keys = Object.keys(TABS);
  choose(keys.at((keys.indexOf(current) + step) % keys.length));
}

export function closePane() {
  if (!isOpen()) return;
  const hadFocus = $("pane").contains(document.activeElement);
  $("pane").hidden = true;
  document.body.classList.remove("with-pane");
  $("pane").replaceChildren();
  if (hadFocus) $("files").focus();
}
