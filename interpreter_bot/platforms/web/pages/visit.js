// One conversation of another platform, for a visitor who came by a link from there.

import { $, address, commonQuery, download, enlargePictures } from "./dom.js";
import { fileCard } from "./files.js";
import { Turn } from "./turns.js";
import { menuWords, visitWords } from "./later_words.js";

const FIRST_TURNS = 30;
const RUNNING_MILLISECONDS = 2000;
const ID = /^#([0-9a-f]{32})$/;

const finishedTurns = new Map();
const context = { displays: new Map(), fileNames: new Set(), sendAction: () => false, announce() {}, reuseRequest() {}, isWriting: () => true, isReading: () => false };
let maxTurns = FIRST_TURNS;

async function readJson(response) {
  if (!response.ok) throw new Error(response.status === 401 ? visitWords.expired : await response.text());
  return response.json();
}

/** Exchange the secret of the link, which works once, for a visit; return the visit's id. */
async function openVisit() {
  const visitId = ID.exec(location.hash)?.[1];
  if (visitId) return visitId;
  const link = location.hash.slice(1);
  history.replaceState(null, "", "/visit");
  const { thread } = await readJson(await fetch("/visit", { method: "POST", body: link }));
  history.replaceState(null, "", `/visit#${thread}`);
  return thread;
}

async function show() {
  const visit = await readJson(await fetch(address("/visited", { max_turns: maxTurns })));
  document.title = `${visit.title} · interpreter-bot`;
  $("title").textContent = visit.title;
  for (const { name } of visit.files) context.fileNames.add(name);
  $("turns").replaceChildren(...visit.past.map(turnOf));
  $("earlier").hidden = !visit.has_earlier_turns;
  const expiryText = new Date(visit.expires * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  $("banner").textContent = visitWords.reading(visit.platform, expiryText);
  $("banner").hidden = false;
  $("made").hidden = visit.files.length === 0;
  $("made").querySelector("ul").replaceChildren(...visit.files.map((file) => fileCard(commonQuery.thread, file)));
  const key = localStorage.getItem("interpreter-bot-key");
  $("continue").hidden = !(visit.can_continue && key);
  $("continue").onclick = () => continueHere(key).catch(showError);
  offerDownloads(visit);
  if (visit.past.some((turn) => turn.is_running)) setTimeout(() => show().catch(showError), RUNNING_MILLISECONDS);
}

/** Return the element of a turn; a turn that has ended is drawn once. */
function turnOf(head) {
  const turn = finishedTurns.get(head.turn_id) ?? new Turn(head, context);
  if (turn.end) finishedTurns.set(head.turn_id, turn);
  return turn.element;
}

function offerDownloads({ title, files }) {
  const entry = (label, iconName, path, query) => [label, iconName, () => download(address(path, { name: title, ...query }))];
  const entries = [
    entry(menuWords.asPage, "globe", "/notebook", { suffix: "html" }),
    entry(menuWords.asNotebook, "file", "/notebook", { suffix: "ipynb" }),
    entry(menuWords.asPython, "code", "/notebook", { suffix: "py" }),
    ...(files.length ? [entry(menuWords.allFiles, "folder", "/archive", {})] : []),
  ];
  $("more").onclick = async () => (await import("./menus.js")).openMenu($("more"), [["", ...entries]]);
  $("more").hidden = false;
}

async function continueHere(key) {
  $("continue").disabled = true;
  const headers = { "Interpreter-Bot-Key": key };
  const { thread } = await readJson(await fetch(address("/continue", {}), { method: "POST", headers }));
  location.assign(`/#${thread}`);
}

function showError(error) {
  $("continue").disabled = false;
  if (!$("turns").childElementCount) $("title").textContent = visitWords.notOpened;
  $("banner").textContent = error.message;
  $("banner").hidden = false;
}

$("earlier").firstElementChild.addEventListener("click", () => {
  maxTurns += 2 * FIRST_TURNS;
  show().catch(showError);
});
enlargePictures();
// Another link or visit is opened in the same tab.
addEventListener("hashchange", () => location.reload());

try {
  context.thread = commonQuery.thread = await openVisit();
  await show();
} catch (error) {
  showError(error);
}
