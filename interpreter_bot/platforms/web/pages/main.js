// Where everything is put together.

import { Composer } from "./composer.js";
import { Connection } from "./connection.js";
import { Conversation, FIRST_TURNS } from "./conversation.js";
import { askedToReset, closePanel } from "./dialogs.js";
import { $, address, download, el, icon, madeUp, plain } from "./dom.js";
import { showPanel } from "./panels.js";
import { Sidebar } from "./sidebar.js";
import { takeDrops } from "./uploads.js";
import { welcome } from "./welcome.js";

const ID = /^[A-Za-z0-9_-]{16,64}$/;
const ELSEWHERE_MILLISECONDS = 2000;
const pending = new Map();
let about = null;
let thread = "";
let speaking;

const say = (message) => connection.say({ thread, ...message });
const composer = new Composer({ send, stop: () => say({ do: "stop" }), say });
const conversation = new Conversation({ say: (message) => connection.say(message), spoke, again, changed, isWriting: () => $("message").value !== "" });
const sidebar = new Sidebar({ say, begin: () => go(madeUp()) });
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
  const known = ID.test(wanted) ? wanted : madeUp();
  if (wanted !== known || location.search) history.replaceState(null, "", `/#${known}`);
  if (known === thread) return;
  composer.keep();
  thread = known;
  conversation.open(thread);
  composer.open(thread);
  watch();
  changed();
  redrawList();
  // On a phone the keyboard would hide half of what there is.
  if (!matchMedia("(pointer: coarse)").matches) $("message").focus();
}

function watch() {
  connection.say({ do: "watch", thread, most: conversation.most });
}

function changed() {
  const isEmpty = conversation.isLoaded && conversation.turns.length === 0;
  if (isEmpty && about && $("welcome").hidden)
    $("welcome").replaceChildren(...welcome(about, { write: (text, isCode) => composer.write(text, isCode), pick: () => $("picker").click() }));
  $("welcome").hidden = !isEmpty;
  composer.showRunning(conversation.running !== null);
}

function redrawList() {
  sidebar.draw(sidebar.all, thread);
  const title = plain(sidebar.titleOf(thread));
  $("title").textContent = title;
  document.title = `${title} · interpreter-bot`;
}

// ---- saying

function send({ text, files, is_code: isCode }) {
  if (!connection.isOpen) return false;
  const id = madeUp();
  const code = /^\s*\/py\s+/.exec(text);
  const isCommand = !isCode && !code && /^\s*\/[a-z]+(?:\s|$)/.test(text);
  pending.set(id, { thread, id, text, files, is_code: isCode });
  connection.say({ do: "say", ...pending.get(id) });
  if (isCommand) return true;
  conversation.isAtEnd = true;
  conversation.begin({ id, request: code && !isCode ? text.slice(code[0].length) : text, files, is_code: isCode || code !== null, started: Date.now() / 1000 });
  return true;
}

function again(head) {
  composer.restore({ text: head.request, files: head.files, is_code: head.is_code });
}

// ---- hearing

function opened() {
  $("banner").hidden = true;
  if (thread) watch();
  for (const message of pending.values()) connection.say({ do: "say", ...message });
}

function closed() {
  setTimeout(() => {
    if (connection.isOpen) return;
    $("banner").textContent = "The connection is lost. Trying again… Whatever runs goes on.";
    $("banner").hidden = false;
  }, 600);
}

const hear = {
  hello(message) {
    about = message;
    composer.know(message);
    $("walls").hidden = message.is_sandboxed;
    $("welcome").hidden = true;
    drawModels(message.models);
    changed();
  },
  conversations(message) {
    sidebar.all = message.conversations;
    redrawList();
  },
  conversation(message) {
    conversation.load(message, new Set(pending.keys()));
    $("model").value = message.model;
    clearTimeout(hear.later);
    // Another process of the bot runs it: all there is to see is what it has written down.
    if (message.past.some((turn) => turn.is_elsewhere)) hear.later = setTimeout(watch, ELSEWHERE_MILLISECONDS);
  },
  turn(message) {
    conversation.begin(message);
  },
  event({ turn, event }) {
    conversation.tell(turn, event);
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
  deleted() {
    sessionStorage.removeItem(`draft-${thread}`);
    history.replaceState(null, "", "/");
    arrive();
  },
  panel(message) {
    showPanel(message, { thread, say });
  },
  download({ what, name }) {
    if (what === "notebook") saveNotebook();
    else download(address("/download", { thread, name }));
  },
};

const OF_ONE_CONVERSATION = new Set(["conversation", "turn", "event", "notice", "model", "reset", "deleted"]);

function heard(message) {
  if (OF_ONE_CONVERSATION.has(message.kind) && message.thread !== thread) return;
  hear[message.kind]?.(message);
}

// ---- the bar

function drawModels(models) {
  $("model").replaceChildren(...models.map((title) => el("option", { value: title }, plain(title))));
  $("model").parentNode.hidden = models.length === 0;
}

function saveNotebook() {
  download(address("/notebook", { thread, name: sidebar.titleOf(thread) }));
}

async function reset() {
  const wanted = await askedToReset();
  if (wanted) say({ do: "reset", ...wanted });
}

function menuOf(entries) {
  const close = () => ($("more").open = false);
  $("more").querySelector("summary").append(icon("more"));
  $("more").querySelector(".list").append(...entries.map(([words, action]) =>
    el("button", { type: "button", onclick: () => (close(), action()) }, words)));
  addEventListener("click", (event) => $("more").contains(event.target) || close());
}

$("files").append(icon("folder"), el("span", {}, "Files"));
$("files").addEventListener("click", () => say({ do: "show", panel: "files" }));
$("panel-close").append(icon("close"));
$("panel-close").addEventListener("click", closePanel);
$("panel").addEventListener("click", (event) => event.target === $("panel") && closePanel());
$("model").addEventListener("change", (event) => say({ do: "choose", model: event.target.value }));
$("earlier").firstElementChild.addEventListener("click", () => {
  conversation.most += 2 * FIRST_TURNS;
  watch();
});
$("walls").textContent = "Code runs without a sandbox: it can read and change whatever the bot can.";
menuOf([
  ["Download as notebook", saveNotebook],
  ["Model", () => say({ do: "show", panel: "model" })],
  ["Usage", () => say({ do: "show", panel: "usage" })],
  ["Limits", () => say({ do: "show", panel: "limits" })],
  ["Help", () => say({ do: "show", panel: "help" })],
  ["Reset Python…", reset],
]);
takeDrops((files) => composer.take(files), (text) => composer.complain(text));
addEventListener("hashchange", arrive);
addEventListener("popstate", arrive);
addEventListener("resize", () => composer.fit());
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if ($("more").open) $("more").open = false;
  else if (sidebar.isShown) sidebar.show(false);
  else if (conversation.running) say({ do: "stop" });
});
arrive();
