// Where everything is put together.

import { Composer, takeDrops } from "./composer.js";
import { Connection, post, postForDownload } from "./connection.js";
import { Conversation, FIRST_TURNS } from "./conversation.js";
import { $, address, download, el, icon, madeUp, plain } from "./dom.js";
import { Sidebar } from "./sidebar.js";
import { welcome } from "./welcome.js";
import { buttonWords, composerWords, connectionWords, conversationWords, pythonWords } from "./words.js";

const ID = /^[A-Za-z0-9_-]{16,64}$/;
const TWICE_MILLISECONDS = 2000;
const MAX_TRIES = 5;
const pending = new Map();
let about = null;
let thread = "";
let speaking;
let pane = null;
let viewed = "";
let isBranching = false;

const dialogs = () => import("./dialogs.js");
const say = (message) => connection.say({ thread, ...message }) || composer.complain(connectionWords.none, "connection");
const composer = new Composer({ send, stop: () => say({ do: "stop" }), say, recalled: () => conversation.codes, ask });
const conversation = new Conversation({ say, spoke, again, branch, changed, isWriting: () => $("message").value !== "", limit: () => about?.execution_seconds });
const sidebar = new Sidebar({ say, begin: () => go(madeUp()), leave: (left) => composer.forget(left) });
const connection = new Connection({ opened, closed, heard });

function spoke(words) {
  clearTimeout(speaking);
  speaking = setTimeout(() => ($("spoken").textContent = words), 400);
}

// ---- going from one conversation to another

function go(wanted) {
  if (location.hash.slice(1) !== wanted) history.pushState(null, "", `/#${wanted}`);
  arrive();
}

function arrive() {
  const wanted = location.hash.slice(1);
  const known = ID.test(wanted) ? wanted : (wanted && thread) || madeUp();
  if (wanted !== known || location.search) history.replaceState(null, "", `/#${known}`);
  if (known === thread) return;
  composer.keep();
  thread = known;
  conversation.open(thread);
  composer.open(thread);
  watch();
  changed();
  redrawList();
  renewPane();
  // On a phone the keyboard would hide half of what there is.
  if (!matchMedia("(pointer: coarse)").matches) composer.focus();
}

/** Show the files, and what is in one of them, if one is named. */
function showFiles(name = "") {
  viewed = name;
  say({ do: "show", panel: "files" });
}

function renewPane() {
  if (pane?.isOpen()) pane.renew(say);
}

function watch() {
  connection.say({ do: "watch", thread, most: conversation.most });
}

function changed() {
  const isEmpty = conversation.isLoaded && conversation.turns.length === 0;
  if (isEmpty && about && $("welcome").hidden)
    $("welcome").replaceChildren(...welcome(about, { write: (text, isCode) => composer.write(text, isCode), pick: () => $("picker").click(), take: (files) => composer.take(files) }));
  $("welcome").hidden = !isEmpty;
  composer.showRunning(conversation.running !== null);
}

function redrawList() {
  sidebar.draw(sidebar.all, thread);
  const title = plain(sidebar.titleOf(thread));
  $("title").textContent = title;
  document.title = `${title} · interpreter-bot`;
  const shown = sidebar.all.find((one) => one.thread === thread);
  const state = shown?.is_busy ? "running" : shown?.has_python ? "idle" : "stopped";
  $("python-state").dataset.state = state;
  $("python-state").lastElementChild.textContent = pythonWords.state(state);
}

// ---- saying

function send({ text, files, is_code: isCode, thread: to = thread }) {
  if (!connection.isOpen) return false;
  if (!isCode && /^\s*\/py\s*$/i.test(text)) {
    composer.setCode(true, { isFocused: true });
    return true;
  }
  const id = madeUp();
  pending.set(id, { thread: to, id, text, files, is_code: isCode, tries: 0 });
  transmit(pending.get(id));
  if (to !== thread) return true;
  conversation.isAtEnd = true;
  // The bot decides whether this is a command, and shows the turn if there is one.
  if (!text.trimStart().startsWith("/")) conversation.begin({ id, request: text, files, is_code: isCode, started: Date.now() / 1000 });
  return true;
}

/** Send messages that are not accepted yet; again with each new connection, but not for ever. */
function transmit(message) {
  const { tries, ...told } = message;
  if (tries >= MAX_TRIES) return hear.refused({ id: message.id, sentence: connectionWords.notAccepted });
  message.tries += 1;
  connection.say({ do: "say", ...told });
}

/** Ask something of Python; nobody is told where there is no connection to ask over. */
function ask(message) {
  return connection.say({ thread, ...message });
}

function again(head) {
  composer.restore({ text: head.request, files: head.files, is_code: head.is_code });
}

/** Say something in place of what was said in a turn; the bot then names the branch to go to. */
function branch({ number, head }, text) {
  if (isBranching) return;
  isBranching = connection.say({ do: "branch", thread, id: madeUp(), turn: number, text, files: head.files, is_code: head.is_code });
  if (isBranching) spoke(conversationWords.branching);
  else composer.complain(connectionWords.none, "connection");
}

async function edit(code) {
  if (!$("message").value.trim() || (await (await dialogs()).confirmed(composerWords.editCode, composerWords.editsCode, { action: buttonWords.edit }))) composer.write(code, true);
}

// ---- hearing

function opened() {
  $("banner").hidden = true;
  composer.settle("connection");
  if (thread) watch();
  for (const message of [...pending.values()]) transmit(message);
}

function closed() {
  isBranching = false;
  dispatchEvent(new Event("disconnected"));
  setTimeout(() => {
    if (!connection.isOpen) announce(connectionWords.retried);
  }, 600);
}

function announce(sentence) {
  $("banner").textContent = sentence;
  $("banner").hidden = false;
}

const hear = {
  starting: () => announce(pythonWords.starting),
  hello(message) {
    $("banner").hidden = true;
    about = message;
    composer.know(message);
    $("walls").hidden = message.sandbox_level !== "none";
    $("welcome").hidden = true;
    drawModels(message.models);
    changed();
  },
  conversations(message) {
    sidebar.all = message.conversations;
    redrawList();
  },
  found(message) {
    sidebar.showFound(message);
  },
  conversation(message) {
    conversation.load(message, new Set(pending.keys()));
    $("model").value = message.model;
  },
  turn(message) {
    conversation.begin(message);
  },
  event({ turn, event }) {
    conversation.tell(turn, event);
    if (["artifact", "finished", "over"].includes(event.type)) renewPane();
  },
  notice({ text }) {
    conversation.notice(text);
  },
  model({ model }) {
    $("model").value = model;
  },
  accepted({ id }) {
    pending.delete(id);
  },
  refused({ id, sentence }) {
    isBranching = false;
    const said = pending.get(id);
    pending.delete(id);
    if (said && said.thread === thread) {
      conversation.drop(id);
      composer.restore(said);
    }
    composer.complain(sentence);
  },
  reset() {
    conversation.open(thread);
    watch();
  },
  undone() {
    const last = conversation.turns.findLast(({ number, head }) => number && head.request);
    if (last) composer.restore({ text: last.head.request, files: last.head.files, is_code: last.head.is_code });
  },
  forked({ to }) {
    isBranching = false;
    go(to);
  },
  deleted() {
    composer.forget(thread);
    history.replaceState(null, "", "/");
    arrive();
  },
  looked(found) {
    dispatchEvent(new CustomEvent("looked", { detail: found }));
  },
  async panel(message) {
    const around = { thread, say, runAgain, canChooseModel: about.can_choose_model, title: sidebar.titleOf(thread), isRunning: () => conversation.running !== null };
    if (!["files", "variables"].includes(message.panel)) return (await import("./panels.js")).showPanel(message, around);
    const name = viewed;
    viewed = "";
    pane ??= await import("./pane.js");
    pane.show(message, around, name);
  },
  download() {
    download(address("/notebook", { thread, name: sidebar.titleOf(thread), suffix: "ipynb" }));
  },
};

const OF_ONE_CONVERSATION = new Set(["conversation", "turn", "event", "notice", "model", "reset", "undone", "deleted", "panel"]);

function heard(message) {
  if (OF_ONE_CONVERSATION.has(message.kind) && message.thread !== thread) return;
  hear[message.kind]?.(message);
}

// ---- stopping by keys

let armed;

/** Once is easily a slip, and what was computed for an hour would be gone. */
function stopOnSecond() {
  if (armed) say({ do: "stop" });
  else spoke(composerWords.pressEscape);
  disarm(armed ? 0 : TWICE_MILLISECONDS);
}

function disarm(milliseconds) {
  clearTimeout(armed);
  armed = milliseconds ? setTimeout(disarm, milliseconds, 0) : 0;
  $("stop").querySelector("span").textContent = armed ? composerWords.escapeStops : buttonWords.stop;
}

// ---- the bar

function drawModels(models) {
  $("model").replaceChildren(...models.map((title) => el("option", { value: title }, plain(title))));
  $("model").parentNode.hidden = models.length === 0;
  document.body.classList.toggle("without-model", models.length === 0);
}

async function saveTable(table, suffix) {
  spoke(conversationWords.preparingDownload);
  try {
    await postForDownload("/table", { thread, table, suffix }, conversationWords.tableFile(sidebar.titleOf(thread), suffix));
  } catch (error) {
    composer.complain(error.message);
  }
}

/** Run the cells of a notebook, in a new conversation where this one has begun. */
async function runNotebook(name) {
  const to = conversation.turns.length ? madeUp() : thread;
  try {
    await post("/run-notebook", { thread, name, to });
    if (to !== thread) go(to);
  } catch (error) {
    composer.complain(error.message);
  }
}

function runAgain() {
  send({ text: "/again", files: [], is_code: false });
}

for (const [id, glyph] of [["python-state"], ["share", "share"], ["more", "more"]]) {
  const open = async () => (await import("./bar_menus.js")).openBarMenu($(id), { thread, title: sidebar.titleOf(thread), say, runAgain, isRunning: conversation.running !== null });
  if (glyph) $(id).prepend(icon(glyph));
  $(id).addEventListener("click", open);
  $(id).addEventListener("keydown", (event) => event.key === "ArrowDown" && (event.preventDefault(), open()));
}
$("files").append(icon("folder"), el("span", { class: "label" }, buttonWords.files));
$("files").addEventListener("click", () => (pane?.isOpen() ? pane.closePane() : showFiles()));
for (const place of ["turns", "composer"]) $(place).addEventListener("view", ({ detail }) => showFiles(detail));
addEventListener("uploaded", renewPane);
addEventListener("click", async (event) => {
  const picture = event.target.closest?.("[data-enlarged]");
  if (!picture || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  (await import("./gallery.js")).enlarge(picture);
});
addEventListener("table", ({ detail: { table, suffix } }) => saveTable(table, suffix));
addEventListener("reveal", ({ detail }) => conversation.reveal(detail));
addEventListener("rest", () => post("/run-notebook", { to: thread, rest: "" }).catch((error) => composer.complain(error.message)));
addEventListener("notebook", ({ detail }) => runNotebook(detail));
$("panel-close").append(icon("close"));
$("panel-close").addEventListener("click", () => $("panel").close());
$("panel").addEventListener("click", (event) => event.target === $("panel") && $("panel").close());
$("model").addEventListener("change", (event) => say({ do: "choose", model: event.target.value }));
$("earlier").firstElementChild.addEventListener("click", () => {
  conversation.most += 2 * FIRST_TURNS;
  conversation.isAtEnd = false;
  watch();
});
for (const [kind, use] of Object.entries({
  run: (code) => send({ text: code, files: [], is_code: true }) || composer.complain(connectionWords.none, "connection"),
  ask: (words) => send({ text: words, files: [], is_code: false }) || composer.complain(connectionWords.none, "connection"),
  edit,
})) $("turns").addEventListener(kind, ({ detail }) => use(detail));
document.body.classList.toggle("without-code", localStorage.getItem("code") === "hidden");
$("walls").textContent = pythonWords.unsandboxed;
addEventListener("paste", (event) => document.querySelector("dialog[open]") || composer.pasted(event));
takeDrops((files) => composer.take(files), (text) => composer.complain(text));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  composer.focus();
});
addEventListener("hashchange", arrive);
addEventListener("popstate", arrive);
addEventListener("resize", () => composer.fit());
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open], :popover-open")) return;
  if ($("pane").contains(event.target)) pane.closePane();
  else if (sidebar.isShown) sidebar.show(false);
  else if (conversation.running && !composer.isEditing(event.target)) stopOnSecond();
});
addEventListener("beforeunload", (event) => composer.isBusy && event.preventDefault());
await composer.recover();
arrive();
