// The pane beside a conversation: its files, the variables of Python, and the columns of its tables.

import { $, el, icon, loadStyles } from "./dom.js";
import { paneWords } from "./later_words.js";
import { buttonWords } from "./words.js";

await loadStyles("/pane.css");

/** Each tab, the panel that is asked for it, and the module that draws it. */
const TABS = {
  files: [buttonWords.files, "files", () => import("./file_pane.js")],
  variables: [paneWords.variables, "variables", () => import("./variables_pane.js")],
  schema: [paneWords.schema, "variables", () => import("./schema_pane.js")],
};

const BUSY_MILLISECONDS = 1000;
let currentTab = "files";
let context = null;

/** Return whether the pane is shown. */
export function isOpen() {
  return !$("pane").hidden;
}

/** Ask for the shown content again, as it may have changed. */
export function refresh(sendAction) {
  sendAction({ do: "show", panel: TABS[currentTab][1], is_renewal: true });
}

/** Show a panel that the server sent; in the panel of files, the file `name`. */
export async function show(message, newContext, name = "") {
  const wasOpen = isOpen(), isOtherThread = context?.thread !== newContext.thread;
  // A renewal must not open a pane that was closed meanwhile.
  if (message.is_renewal && !wasOpen) return;
  context = newContext;
  if (!wasOpen || TABS[currentTab][1] !== message.panel) currentTab = message.panel;
  if (!wasOpen) openPane();
  updateTabs();
  const tab = currentTab;
  const { draw } = await TABS[tab][2]();
  if (tab !== currentTab || !isOpen()) return;
  const isFresh = isOtherThread || $("pane-body").dataset.tab !== tab;
  $("pane-body").dataset.tab = tab;
  const isBusy = await draw($("pane-body"), message, context, { name, isFresh });
  // If code runs, its end refreshes the pane anyway.
  if (isBusy) setTimeout(() => isOpen() && currentTab === tab && !context.isRunning() && refresh(context.sendAction), BUSY_MILLISECONDS);
}

function openPane() {
  const tabButton = ([key, [words]]) => el("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "pane-body", onclick: () => selectTab(key) }, words);
  const closeButton = el("button", { type: "button", class: "icon", "aria-label": paneWords.close, onclick: closePane }, icon("close"));
  $("pane").replaceChildren(
    el("header", {}, el("div", { role: "tablist", "aria-label": paneWords.beside, onkeydown: moveBetweenTabs }, Object.entries(TABS).map(tabButton)), closeButton),
    el("div", { id: "pane-body", role: "tabpanel", tabindex: -1 }));
  $("pane").hidden = false;
  document.body.classList.add("with-pane");
  updateTabs();
  $(`tab-${currentTab}`).focus();
}

function updateTabs() {
  for (const tab of $("pane").querySelectorAll("[role=tab]")) {
    const isCurrent = tab.id === `tab-${currentTab}`;
    tab.setAttribute("aria-selected", String(isCurrent));
    tab.tabIndex = isCurrent ? 0 : -1;
  }
  $("pane-body").setAttribute("aria-labelledby", `tab-${currentTab}`);
}

function selectTab(key) {
  currentTab = key;
  updateTabs();
  $(`tab-${key}`).focus();
  refresh(context.sendAction);
}

function moveBetweenTabs(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const tabNames = Object.keys(TABS);
  selectTab(tabNames.at((tabNames.indexOf(currentTab) + step) % tabNames.length));
}

export function closePane() {
  if (!isOpen()) return;
  const hadFocus = $("pane").contains(document.activeElement);
  $("pane").hidden = true;
  document.body.classList.remove("with-pane");
  $("pane").replaceChildren();
  if (hadFocus) $("files").focus();
}
