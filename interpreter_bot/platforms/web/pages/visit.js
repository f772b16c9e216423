// One conversation of another platform, to be read by somebody who came by a link from there.

import { $, address, always, download } from "./dom.js";
import { fileCard } from "./files.js";
import { Turn } from "./turns.js";
import { menuWords, visitWords } from "./later_words.js";

const FIRST_TURNS = 30;
const RUNNING_MILLISECONDS = 2000;
const ID = /^#([0-9a-f]{32})$/;

const drawn = new Map();
const around = { displays: new Map(), say: () => false, spoke() {}, again() {}, isWriting: () => true, isReading: () => false };
let most = FIRST_TURNS;

async function answerOf(response) {
  if (!response.ok) throw new Error(response.status === 401 ? visitWords.expired : await response.text());
  return response.json();
}

/** Exchange the secret of the link, which works once, for what this browser may read. */
async function entered() {
  const known = ID.exec(location.hash)?.[1];
  if (known) return known;
  const link = location.hash.slice(1);
  history.replaceState(null, "", "/visit");
  const { thread } = await answerOf(await fetch("/visit", { method: "POST", body: link }));
  history.replaceState(null, "", `/visit#${thread}`);
  return thread;
}

async function show() {
  const told = await answerOf(await fetch(address("/visited", { most })));
  document.title = `${told.title} · interpreter-bot`;
  $("title").textContent = told.title;
  $("turns").replaceChildren(...told.past.map(turnOf));
  $("earlier").hidden = !told.is_more;
  const until = new Date(told.until * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  $("banner").textContent = visitWords.reading(told.platform, until);
  $("banner").hidden = false;
  $("made").hidden = told.files.length === 0;
  $("made").querySelector("ul").replaceChildren(...told.files.map((file) => fileCard(always.thread, file)));
  const key = localStorage.getItem("interpreter-bot-key");
  $("continue").hidden = !(told.may_go_on && key);
  $("continue").onclick = () => goOn(key).catch(fail);
  offerDownloads(told);
  if (told.past.some((turn) => turn.is_running)) setTimeout(() => show().catch(fail), RUNNING_MILLISECONDS);
}

/** What is over does not change; it is drawn once. */
function turnOf(head) {
  const turn = drawn.get(head.number) ?? new Turn(head, around);
  if (turn.over) drawn.set(head.number, turn);
  return turn.element;
}

function offerDownloads({ title, files }) {
  const entry = (words, glyph, path, query) => [words, glyph, () => download(address(path, { name: title, ...query }))];
  const entries = [
    entry(menuWords.asPage, "globe", "/notebook", { suffix: "html" }),
    entry(menuWords.asNotebook, "file", "/notebook", { suffix: "ipynb" }),
    entry(menuWords.asPython, "code", "/notebook", { suffix: "py" }),
    ...(files.length ? [entry(menuWords.allFiles, "folder", "/archive", {})] : []),
  ];
  $("more").onclick = async () => (await import("./menus.js")).openMenu($("more"), [["", ...entries]]);
  $("more").hidden = false;
}

async function goOn(key) {
  $("continue").disabled = true;
  const headers = { "Interpreter-Bot-Key": key };
  const { thread } = await answerOf(await fetch(address("/continue", {}), { method: "POST", headers }));
  location.assign(`/#${thread}`);
}

function fail(error) {
  $("continue").disabled = false;
  if (!$("turns").childElementCount) $("title").textContent = visitWords.notOpened;
  $("banner").textContent = error.message;
  $("banner").hidden = false;
}

$("earlier").firstElementChild.addEventListener("click", () => {
  most += 2 * FIRST_TURNS;
  show().catch(fail);
});
addEventListener("click", async (event) => {
  const picture = event.target.closest?.("[data-enlarged]");
  if (!picture || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  (await import("./gallery.js")).enlarge(picture);
});
// Another link, or another visit, in the same tab.
addEventListener("hashchange", () => location.reload());

try {
  around.thread = always.thread = await entered();
  await show();
} catch (error) {
  fail(error);
}
