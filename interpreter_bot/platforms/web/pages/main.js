// Puts the parts of the page together.

import { Composer, acceptDrops } from "./composer.js";
import { Connection, post, postForDownload } from "./connection.js";
import { Conversation, FIRST_TURNS } from "./conversation.js";
import { $, address, download, el, enlargePictures, icon, randomId, cleanText } from "./dom.js";
import { Sidebar } from "./sidebar.js";
import { welcome } from "./welcome.js";
import { buttonWords, composerWords, connectionWords, conversationWords, pythonWords } from "./words.js";

const ID = /^[A-Za-z0-9_-]{16,64}$/;
const SECOND_ESCAPE_MILLISECONDS = 2000;
const MAX_TRIES = 5;
const pendingMessages = new Map();
let greeting = null;
let thread = "";
let announceTimer;
let pane = null;
let requestedFile = "";
let isBranching = false;

const dialogs = () => import("./dialogs.js");
const sendAction = (message) => connection.sendAction({ thread, ...message }) || composer.showComplaint(connectionWords.none, "connection");
const composer = new Composer({ send, stop: () => sendAction({ do: "stop" }), pastCodes: () => conversation.pastCodes, askPython });
const conversation = new Conversation({ sendAction, announce, reuseRequest, branch, onChange: onTurnsChange, isWriting: () => $("message").value !== "", getMaxSeconds: () => greeting?.execution_seconds });
const sidebar = new Sidebar({ sendAction, openNew: () => openThread(randomId()), forgetDraft: (closedThread) => composer.forgetThread(closedThread) });
const connection = new Connection({ onOpen, onClose, onMessage });

function announce(words) {
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => ($("spoken").textContent = words), 400);
}

// ---- switching conversations

function openThread(newThread) {
  if (location.hash.slice(1) !== newThread) history.pushState(null, "", `/#${newThread}`);
  onAddressChange();
}

function onAddressChange() {
  const addressThread = location.hash.slice(1);
  const validThread = ID.test(addressThread) ? addressThread : (addressThread && thread) || randomId();
  if (addressThread !== validThread || location.search) history.replaceState(null, "", `/#${validThread}`);
  if (validThread === thread) return;
  composer.saveDraft();
  thread = validThread;
  conversation.openThread(thread);
  composer.openThread(thread);
  watchThread();
  onTurnsChange();
  drawSidebar();
  refreshPane();
  // On a phone, the keyboard would hide half of the page.
  if (!matchMedia("(pointer: coarse)").matches) composer.focus();
}

/** Show the list of files, or the file `name`. */
function showFiles(name = "") {
  requestedFile = name;
  sendAction({ do: "show", panel: "files" });
}

function refreshPane() {
  if (pane?.isOpen()) pane.refresh(sendAction);
}

function watchThread() {
  connection.sendAction({ do: "watch", thread, max_turns: conversation.maxTurns });
}

function onTurnsChange() {
  const isEmpty = conversation.isLoaded && conversation.turns.length === 0;
  if (isEmpty && greeting && $("welcome").hidden)
    $("welcome").replaceChildren(...welcome(greeting, { writeDraft: (text, isCode) => composer.writeDraft(text, isCode), pickFiles: () => $("picker").click(), addFiles: (files) => composer.addFiles(files) }));
  $("welcome").hidden = !isEmpty;
  composer.showStopButton(conversation.running !== null);
}

function drawSidebar() {
  sidebar.draw(sidebar.conversations, thread);
  const title = cleanText(sidebar.titleOf(thread));
  $("title").textContent = title;
  document.title = `${title} · interpreter-bot`;
  const current = sidebar.conversations.find((listed) => listed.thread === thread);
  const state = current?.is_busy ? "running" : current?.has_python ? "idle" : "stopped";
  $("python-state").dataset.state = state;
  $("python-state").lastElementChild.textContent = pythonWords.state(state);
}

// ---- sending

function send({ text, files, is_code: isCode, thread: to = thread }) {
  if (!connection.isOpen) return false;
  if (!isCode && /^\s*\/py\s*$/i.test(text)) {
    composer.setCode(true, { isFocused: true });
    return true;
  }
  const id = randomId();
  pendingMessages.set(id, { thread: to, id, text, files, is_code: isCode, tries: 0 });
  transmit(pendingMessages.get(id));
  if (to !== thread) return true;
  conversation.isAtEnd = true;
  // The bot decides whether this is a command, and shows the turn if there is one.
  if (!text.trimStart().startsWith("/")) conversation.addTurn({ id, request: text, files, is_code: isCode, started: Date.now() / 1000 });
  return true;
}

/** Send messages that are not accepted yet; again with each new connection, but not for ever. */
function transmit(message) {
  const { tries, ...content } = message;
  if (tries >= MAX_TRIES) return handlers.refused({ id: message.id, sentence: connectionWords.notAccepted });
  message.tries += 1;
  const { timeZone: zone } = Intl.DateTimeFormat().resolvedOptions();
  connection.sendAction({ do: "send", zone, ...content });
}

/** Send a query to Python; return false, without a complaint, if there is no connection. */
function askPython(message) {
  return connection.sendAction({ thread, ...message });
}

function reuseRequest(head) {
  composer.restore({ text: head.request, files: head.files, is_code: head.is_code });
}

/** Send a question in place of a turn's question; the bot answers with the branch to open. */
function branch({ turnId, head }, text) {
  if (isBranching) return;
  isBranching = connection.sendAction({ do: "branch", thread, id: randomId(), turn_id: turnId, text, files: head.files, is_code: head.is_code });
  if (isBranching) announce(conversationWords.branching);
  else composer.showComplaint(connectionWords.none, "connection");
}

async function editCode(code) {
  if (!$("message").value.trim() || (await (await dialogs()).askToConfirm(composerWords.editCode, composerWords.editsCode, { action: buttonWords.edit }))) composer.writeDraft(code, true);
}

// ---- receiving

function onOpen() {
  $("banner").hidden = true;
  composer.clearComplaint("connection");
  if (thread) watchThread();
  for (const message of [...pendingMessages.values()]) transmit(message);
}

function onClose() {
  isBranching = false;
  dispatchEvent(new Event("disconnected"));
  setTimeout(() => {
    if (!connection.isOpen) showBanner(connectionWords.retried);
  }, 600);
}

function showBanner(sentence) {
  $("banner").textContent = sentence;
  $("banner").hidden = false;
}

const handlers = {
  starting: () => showBanner(pythonWords.starting),
  hello(message) {
    $("banner").hidden = true;
    greeting = message;
    composer.setLimits(message);
    $("walls").hidden = message.sandbox_level !== "none";
    $("welcome").hidden = true;
    drawModels(message.models);
    onTurnsChange();
  },
  conversations(message) {
    sidebar.conversations = message.conversations;
    drawSidebar();
  },
  search_results(message) {
    sidebar.showResults(message);
  },
  conversation(message) {
    conversation.load(message, new Set(pendingMessages.keys()));
    $("model").value = message.model;
  },
  turn(message) {
    conversation.addTurn(message);
  },
  event({ turn, event }) {
    conversation.applyEvent(turn, event);
    if (["artifact", "finished", "over"].includes(event.type)) refreshPane();
  },
  notice({ text }) {
    conversation.showNotice(text);
    announce(text);
  },
  model({ model }) {
    $("model").value = model;
  },
  accepted({ id }) {
    pendingMessages.delete(id);
  },
  refused({ id, sentence }) {
    isBranching = false;
    const request = pendingMessages.get(id);
    pendingMessages.delete(id);
    if (request && request.thread === thread) {
      conversation.removeTurn(id);
      composer.restore(request);
    }
    composer.showComplaint(sentence);
  },
  reset() {
    conversation.openThread(thread);
    watchThread();
  },
  undone() {
    const last = conversation.turns.findLast(({ turnId, head }) => turnId && head.request);
    if (last) composer.restore({ text: last.head.request, files: last.head.files, is_code: last.head.is_code });
  },
  forked({ to }) {
    isBranching = false;
    openThread(to);
  },
  deleted() {
    composer.forgetThread(thread);
    history.replaceState(null, "", "/");
    onAddressChange();
  },
  data_read(answer) {
    dispatchEvent(new CustomEvent("data-read", { detail: answer }));
  },
  async panel(message) {
    const context = { thread, sendAction, runAgain, canChooseModel: greeting.can_choose_model, title: sidebar.titleOf(thread), isRunning: () => conversation.running !== null };
    if (!["files", "variables"].includes(message.panel)) return (await import("./panels.js")).showPanel(message, context);
    const name = requestedFile;
    requestedFile = "";
    pane ??= await import("./pane.js");
    pane.show(message, context, name);
  },
  download() {
    download(address("/notebook", { thread, name: sidebar.titleOf(thread), suffix: "ipynb" }));
  },
};

const THREAD_MESSAGES = new Set(["conversation", "turn", "event", "notice", "model", "reset", "undone", "deleted", "panel"]);

function onMessage(message) {
  if (THREAD_MESSAGES.has(message.kind) && message.thread !== thread) return;
  handlers[message.kind]?.(message);
}

// ---- stopping by keys

let stopTimer;

/** One Escape is easily pressed by mistake, and an hour of computing would be lost. */
function stopOnSecondEscape() {
  if (stopTimer) sendAction({ do: "stop" });
  else announce(composerWords.pressEscape);
  resetStopTimer(stopTimer ? 0 : SECOND_ESCAPE_MILLISECONDS);
}

function resetStopTimer(milliseconds) {
  clearTimeout(stopTimer);
  stopTimer = milliseconds ? setTimeout(resetStopTimer, milliseconds, 0) : 0;
  $("stop").querySelector("span").textContent = stopTimer ? composerWords.escapeStops : buttonWords.stop;
}

// ---- the bar

function drawModels(models) {
  $("model").replaceChildren(...models.map((title) => el("option", { value: title }, cleanText(title))));
  $("model").parentNode.hidden = models.length === 0;
  document.body.classList.toggle("without-model", models.length === 0);
}

async function saveTable(table, suffix) {
  announce(conversationWords.preparingDownload);
  try {
    await postForDownload("/table", { thread, table, suffix }, conversationWords.tableFile(sidebar.titleOf(thread), suffix));
  } catch (error) {
    composer.showComplaint(error.message);
  }
}

/** Run the cells of a notebook, in a new conversation if this one has turns. */
async function runNotebook(name) {
  const to = conversation.turns.length ? randomId() : thread;
  try {
    await post("/run-notebook", { thread, name, to });
    if (to !== thread) openThread(to);
  } catch (error) {
    composer.showComplaint(error.message);
  }
}

function runAgain() {
  send({ text: "/again", files: [], is_code: false });
}

for (const [id, iconName] of [["python-state"], ["share", "share"], ["more", "more"]]) {
  const open = async () => (await import("./bar_menus.js")).openBarMenu($(id), { thread, title: sidebar.titleOf(thread), sendAction, runAgain, isRunning: conversation.running !== null });
  if (iconName) $(id).prepend(icon(iconName));
  $(id).addEventListener("click", open);
  $(id).addEventListener("keydown", (event) => event.key === "ArrowDown" && (event.preventDefault(), open()));
}
$("files").append(icon("folder"), el("span", { class: "label" }, buttonWords.files));
$("files").addEventListener("click", () => (pane?.isOpen() ? pane.closePane() : showFiles()));
for (const place of ["turns", "composer"]) $(place).addEventListener("view", ({ detail }) => showFiles(detail));
addEventListener("uploaded", refreshPane);
enlargePictures();
addEventListener("table", ({ detail: { table, suffix } }) => saveTable(table, suffix));
addEventListener("reveal", ({ detail }) => conversation.reveal(detail));
addEventListener("notebook", ({ detail }) => runNotebook(detail));
$("panel-close").append(icon("close"));
$("panel-close").addEventListener("click", () => $("panel").close());
$("panel").addEventListener("click", (event) => event.target === $("panel") && $("panel").close());
$("model").addEventListener("change", (event) => sendAction({ do: "choose_model", model: event.target.value }));
$("earlier").firstElementChild.addEventListener("click", () => {
  conversation.maxTurns += 2 * FIRST_TURNS;
  conversation.isAtEnd = false;
  watchThread();
});
for (const [kind, use] of Object.entries({
  run: (code) => send({ text: code, files: [], is_code: true }) || composer.showComplaint(connectionWords.none, "connection"),
  ask: (words) => send({ text: words, files: [], is_code: false }) || composer.showComplaint(connectionWords.none, "connection"),
  edit: editCode,
})) $("turns").addEventListener(kind, ({ detail }) => use(detail));
document.body.classList.toggle("without-code", localStorage.getItem("code") === "hidden");
$("walls").textContent = pythonWords.unsandboxed;
addEventListener("paste", (event) => document.querySelector("dialog[open]") || composer.onPaste(event));
acceptDrops((files) => composer.addFiles(files), (text) => composer.showComplaint(text));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  composer.focus();
});
addEventListener("hashchange", onAddressChange);
addEventListener("popstate", onAddressChange);
addEventListener("resize", () => composer.fitHeight());
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open], :popover-open")) return;
  if ($("pane").contains(event.target)) pane.closePane();
  else if (sidebar.isShown) sidebar.show(false);
  else if (conversation.running && !composer.isEditing(event.target)) stopOnSecondEscape();
});
// Parts of the page are fetched only when somebody wants them, which needs a connection.
addEventListener("unhandledrejection", (event) => {
  if (!(event.reason instanceof TypeError) || !/dynamically imported module|Importing a module script/.test(event.reason.message)) return;
  event.preventDefault();
  composer.showComplaint(connectionWords.none, "connection");
});
addEventListener("beforeunload", (event) => composer.isBusy && event.preventDefault());
await composer.restoreUploads();
onAddressChange();
