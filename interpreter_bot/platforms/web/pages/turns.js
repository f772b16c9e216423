// One turn: its request, and all its events, in order.

import { duration, el, icon, named, copier, linked, scrollable } from "./dom.js";
import { fileCard, fileLink } from "./files.js";
import { Words, codeBlock, requester } from "./markdown.js";
import { Outputs } from "./outputs.js";
import { buttonWords, pythonWords, tokenCount, turnWords } from "./words.js";

// Longer answers are not announced to screen readers, but read in place.
const MAX_SPOKEN = 1500;
/** The ending of a cell whose code continues as a turn of its own. */
const BACKGROUND = "in background";

export class Turn {
  /**
   * @param {{id: string, request: string, files: string[], is_code: boolean, started: number}} head
   * @param {{thread: string, displays: Map, say: Function, spoke: Function, again: Function, branch: Function, isWriting: Function, isReading: Function}} around
   */
  constructor(head, around) {
    Object.assign(this, { id: head.id, number: head.number ?? 0, head, around });
    this.over = null;
    this.hasBegun = false;
    this.cells = new Map();
    this.questions = new Map();
    this.artifacts = new Map();
    /** Hashes of displayed pictures; files with the same content are not shown again. */
    this.pictures = new Set();
    this.words = null;
    this.draft = null;
    this.said = [];
    this.body = el("div", { class: "answer" });
    this.stateWords = el("span", {});
    this.state = el("div", { class: "state" }, el("span", { class: "pulse", "aria-hidden": "true" }), this.stateWords);
    this.meta = el("footer", { class: "meta", hidden: true });
    this.asked = asked(head);
    this.element = el("article", { class: "turn", "data-id": this.id, "aria-busy": "true" }, this.asked, this.body, this.state, this.meta);
    this.showState(turnWords.sending);
    for (const event of head.events ?? []) this.apply(event);
  }

  apply(event) {
    if (this.over && event.type !== "usage") return;
    (this[`on_${event.type}`] ?? this.onOutput).call(this, event);
  }

  showState(words, beside = null) {
    if (!words && this.state.hidden) return;
    this.state.hidden = !words;
    this.stateWords.textContent = words;
    this.state.replaceChildren(...[this.state.firstChild, this.stateWords, beside].filter(Boolean));
    clearInterval(this.clock);
    if (!words || this.over) return;
    // A repeated event continues the same wait.
    if (words !== this.awaited?.words) this.awaited = { words, since: Date.now() };
    const { since } = this.awaited;
    const most = words === turnWords.running && this.around.limit?.();
    const showSeconds = () => {
      const seconds = (Date.now() - since) / 1000;
      if (!this.state.isConnected) clearInterval(this.clock);
      else if (seconds > 2) this.stateWords.textContent = `${words} ${most ? turnWords.ofAtMost(duration(Math.round(seconds)), duration(most)) : duration(Math.round(seconds))}`;
    };
    this.clock = setInterval(showSeconds, 1000);
  }

  on_waiting({ ahead }) {
    const withdraw = () => this.around.say({ do: "withdraw", id: this.id });
    const button = el("button", { type: "button", class: "small", onclick: withdraw }, turnWords.withdraw);
    this.showState(turnWords.queued(ahead), button);
  }

  on_begun() {
    this.hasBegun = true;
    this.showState(this.head.is_code ? pythonWords.starting : turnWords.thinking);
  }

  on_step() {
    this.words = null;
    this.dropDraft();
    this.showState(turnWords.thinking);
    this.around.spoke(turnWords.thinking);
  }

  on_progress({ text, share }) {
    const parts = share === null ? null
      : [el("progress", { max: "1", value: String(share), "aria-label": turnWords.progress }), ` ${Math.round(share * 100)} %`];
    this.showState(text || turnWords.thinking, parts && el("span", { class: "share" }, parts));
  }

  on_text({ text }) {
    if (!this.words) this.newWords();
    this.words.add(text);
    this.showState("");
  }

  newWords() {
    this.words = new Words();
    this.said.push(this.words);
    this.add(this.words.element);
  }

  on_draft({ text }) {
    if (!this.draft) {
      const pre = el("pre", {}, el("code", { dir: "ltr" }));
      this.draft = el("div", { class: "cell draft" }, el("div", { class: "code" }, el("div", { class: "code-head" }, el("span", { class: "language" }, turnWords.writing)), pre));
      this.draftText = document.createTextNode("");
      pre.firstChild.append(this.draftText);
      this.add(this.draft);
    }
    this.draftText.appendData(text);
    const pre = this.draft.querySelector("pre");
    pre.scrollTop = pre.scrollHeight;
    this.showState("");
  }

  dropDraft() {
    this.draft?.remove();
    this.draft = null;
  }

  on_code({ cell, text: code }) {
    // A bot that goes on with what another one began says again what it follows.
    if (this.cells.has(cell)) return this.showState(turnWords.running);
    const outputs = new Outputs(this.around.displays, this.around.say);
    const status = el("span", { class: "cell-status" });
    const block = codeBlock(code, "python");
    block.firstChild.firstChild.after(status);
    const element = el("div", { class: "cell running", role: "group", "aria-label": turnWords.code }, block, outputs.element);
    // From here on it is seen where it runs.
    this.asked.querySelector(".code")?.remove();
    this.cells.set(cell, { element, outputs, status });
    if (this.draft) {
      this.draft.replaceWith(element);
      this.draft = null;
    } else this.add(element);
    this.showState(turnWords.running);
    this.around.spoke(turnWords.runningCode);
  }

  outputsOf(cell) {
    const found = this.cells.get(cell);
    if (found) return found.outputs;
    const outputs = new Outputs(this.around.displays, this.around.say);
    this.cells.set(cell, { outputs, element: outputs.element, status: el("span") });
    this.add(outputs.element);
    return outputs;
  }

  on_stdout({ cell, type, text }) {
    this.outputsOf(cell).print(type, text);
  }

  on_stderr(event) {
    this.on_stdout(event);
  }

  onOutput(event) {
    if (event.type === "image") this.pictures.add(event.sha256);
    this.outputsOf(event.cell).show(event);
  }

  on_finished({ cell, status: ending, seconds, reason = "", kernel_lost: isLost }) {
    const found = this.cells.get(cell);
    if (!found) return;
    Object.assign(found, { ending, seconds });
    found.element.classList.remove("running");
    const isFine = ending === "ok" || ending === BACKGROUND;
    found.element.classList.add(isFine ? "fine" : "failed");
    found.status.textContent = `${ending === "ok" ? "" : `${turnWords.endings[ending] ?? ending} · `}${duration(seconds)}`;
    if (ending === "stopped") found.outputs.calm();
    // That it was stopped is said already.
    const more = /^stopped\.?$/i.test(reason) ? "" : reason;
    if (more || isLost) {
      const words = [more, isLost && !/variables/i.test(reason) ? turnWords.variablesLost : ""];
      found.outputs.add(el("p", { class: `notice ${ending === "stopped" && !isLost ? "" : "bad"}` }, words.filter(Boolean).join(" ")));
    }
    if (ending === "error" && this.head.is_code) found.outputs.add(requester("ask", turnWords.whyQuestion, turnWords.whyFailed));
    if (ending === "ok" && found.outputs.isEmpty && this.head.is_code) found.outputs.add(el("p", { class: "notice" }, turnWords.noOutput));
    this.showState(this.head.is_code ? "" : turnWords.thinking);
  }

  on_announcement({ text }) {
    this.add(el("p", { class: "notice" }, text));
  }

  on_private({ text }) {
    this.add(el("p", { class: "notice" }, linked(text)));
  }

  on_input(event) {
    if (event.is_of_model) return this.on_approve(event);
    this.ask(event, (place) => this.outputsOf(event.cell).add(place));
    this.around.spoke(turnWords.codeAsksInput);
  }

  on_approve(event) {
    this.dropDraft();
    this.ask(event, (place) => this.add(place));
  }

  /** Ask in a form of its own, whose module is fetched with the first: most turns ask nothing. */
  ask(event, add) {
    const place = el("div", {});
    add(place);
    this.showState("");
    this.questions.set(event.id, import("./questions.js").then(({ questionForm, modelQuestionForm, approvalForm }) => {
      const make = event.is_of_model ? modelQuestionForm : event.type === "input" ? questionForm : approvalForm;
      const form = make(event, (text) => this.answer(event.id, text));
      place.replaceWith(form);
      if (form.ariaLabel) this.around.spoke(form.ariaLabel);
      else if (!this.around.isWriting() && !this.over) form.querySelector("input").focus({ preventScroll: true });
      return form;
    }));
  }

  answer(question, text) {
    this.around.say({ do: "answer", question, text });
  }

  on_settled({ id, answer, outcome }) {
    this.questions.get(id)?.then((form) => form.settle(answer, outcome));
    this.questions.delete(id);
    this.showState(answer === null ? turnWords.thinking : turnWords.running);
  }

  on_artifact(file) {
    if (!this.files) {
      this.files = el("ul", { class: "files", "aria-label": turnWords.files });
      this.add(this.files);
    }
    this.artifacts.get(file.name)?.remove();
    const card = fileCard(this.around.thread, file, { hasPreview: !this.pictures.has(file.sha256) });
    this.artifacts.set(file.name, card);
    this.files.append(card);
  }

  on_usage(spent) {
    this.spent = spent;
  }

  on_over(end) {
    this.over = end;
    this.number = end.turn_id || this.number;
    this.dropDraft();
    for (const asked of this.questions.values()) asked.then((form) => form.settle());
    for (const cell of this.cells.values()) cell.element.classList.remove("running");
    this.finishWords(end);
    if (end.status === "done" && end.text.trim() && this.cells.size) this.foldWork();
    this.showState("");
    this.state.remove();
    if (end.queries?.length) import("./queries.js").then(({ queriesOf }) => this.afterCode(queriesOf(end.queries)));
    if (this.files) this.body.append(this.files);
    const words = this.wordsOf(end);
    if (words) this.body.append(sentence({ ...end, reason: words }, () => this.around.again(this), end.status === "stopped" && !this.hasBegun));
    this.element.removeAttribute("aria-busy");
    this.showMeta(end);
    const said = end.status === "done" ? this.words?.text.replace(/[*_`#|>]/g, "").trim() : "";
    this.around.spoke(end.reason || (said ? turnWords.answer(said.slice(0, MAX_SPOKEN)) : end.status === "done" ? turnWords.done : turnWords.stopped));
  }

  /** What is left to say: that it was stopped stands beside its time, or at the code that was. */
  wordsOf(end) {
    return end.status === "stopped" ? end.reason?.replace(/^stopped\.\s*/i, "") : end.reason;
  }

  /** Put the answer before how it came about, which folds away but for what it shows. */
  foldWork() {
    const cells = [...this.cells.values()].filter(({ ending }) => ending && ending !== "refused" && ending !== BACKGROUND);
    const failures = cells.filter(({ ending }) => ending !== "ok").length;
    const seconds = cells.reduce((sum, cell) => sum + cell.seconds, 0);
    const parts = [turnWords.ran(cells.length), failures && turnWords.failed(failures)].filter(Boolean);
    const isRead = this.around.isReading() || this.body.contains(document.activeElement);
    this.work = el("details", { class: "work", open: isRead }, el("summary", {}, cells.length ? `${parts.join(", ")} · ${duration(seconds)}` : turnWords.codeNotRun));
    // At once: a browser keeps in place what it shows below words that come later.
    this.words.draw();
    this.conclusion = this.words.element;
    this.body.querySelector(":scope > :is(.cell, .outputs, .words)").before(this.conclusion, this.work);
  }

  finishWords(end) {
    if (end.text) {
      if (!this.words) this.newWords();
      this.words.set(end.text);
    }
    if (this.artifacts.size === 0) return;
    const byName = (name) => {
      const bare = name.replace(/^(?:sandbox:)?\/mnt\/data\//, "");
      return this.artifacts.has(bare) ? fileLink(this.around.thread, bare) : null;
    };
    for (const words of this.said) words.link(byName);
  }

  showMeta(end) {
    const parts = [];
    const isSaid = [...this.cells.values()].some((cell) => /^stopped/i.test(cell.status.textContent));
    if (end.status === "stopped" && this.hasBegun && !isSaid) parts.push(turnWords.stopped);
    if (end.seconds > 0) parts.push(duration(end.seconds));
    const tokens = this.spent ? this.spent.input_tokens + this.spent.output_tokens : 0;
    const cached = this.spent?.cached_tokens ? turnWords.fromCache(this.spent.cached_tokens) : "";
    if (tokens) parts.push((this.spent.is_estimated ? turnWords.estimated(tokenCount(tokens)) : tokenCount(tokens)) + cached);
    if (this.spent && Number(this.spent.money) > 0) parts.push(turnWords.money(this.spent.money));
    const all = () => this.said.map((words) => words.text).join("\n\n").trim();
    if (parts.length) this.meta.append(el("span", {}, parts.join(" · ")));
    if (all()) this.meta.append(copier(all));
    const canBranch = this.number > 0 && !end.goes_on && Boolean(this.head.request && this.around.branch);
    if (canBranch) this.offerBranches();
    this.meta.hidden = parts.length === 0 && !all() && !canBranch;
  }

  /** Let the question be edited where it stands, and be asked again below its answer. */
  offerBranches() {
    const again = () => this.around.branch(this, this.head.request);
    this.editor = el("button", { type: "button", class: "icon edit", title: buttonWords.edit, onclick: () => this.edit() }, icon("pen"), el("span", { class: "unseen" }, buttonWords.edit));
    this.asked.append(this.editor);
    // What ended badly has a button at the sentence that says so.
    if (["done", "stopped"].includes(this.over.status)) this.meta.append(el("button", { type: "button", class: "small", onclick: again }, icon("again"), el("span", {}, this.head.is_code ? turnWords.runAgain : buttonWords.tryAgain)));
  }

  /** Let the question be written anew where it stands. */
  async edit() {
    (await import("./branches.js")).edit(this);
  }

  /** Show the way to what stands in its place in other branches, if anything does. */
  async showVersions(place) {
    this.place = place;
    const versions = place ? (await import("./branches.js")).versionsOf(place) : null;
    // Meanwhile it may have been shown anew.
    if (this.place !== place) return;
    this.versions?.remove();
    this.versions = versions;
    if (versions) this.meta.after(versions);
  }

  add(node) {
    this.body.append(node);
  }

  /** Add what belongs to all code of the turn below the last of it. */
  afterCode(node) {
    const last = [...this.cells.values()].at(-1)?.element;
    if (last) last.after(node);
    else this.add(node);
  }
}

/** What was asked, under a heading by which one can go from turn to turn. */
function asked(head) {
  if (!head.request && !head.files.length) return el("div", { class: "nothing-asked" });
  const files = head.files.length
    ? el("ul", { class: "asked-files", "aria-label": turnWords.attachedFiles }, head.files.map((name) => el("li", {}, icon("file"), named(name))))
    : null;
  if (head.is_code) return el("div", { class: "asked code-asked" }, files, el("h2", { class: "muted" }, turnWords.youRan), codeBlock(head.request, "python"));
  return el("div", { class: "asked" }, el("h2", { class: "unseen" }, turnWords.youAsked), files, head.request ? scrollable(el("div", { class: "bubble", dir: "auto" }, head.request)) : null);
}

function sentence(end, again, isWithdrawn) {
  const isBad = !isWithdrawn && !end.goes_on && !["done", "stopped"].includes(end.status);
  const button = isWithdrawn || isBad
    ? el("button", { type: "button", class: "small", onclick: again }, turnWords.askAgain)
    : null;
  return el("p", { class: `notice ${isBad ? "bad" : ""}`, role: isBad ? "alert" : null }, isBad ? icon("warn") : null, el("span", {}, end.reason), button);
}
