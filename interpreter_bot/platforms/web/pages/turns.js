// One turn: its request, and all its events, in order.

import { formatDuration, el, icon, nameElement, copyButton, linkify, makeScrollable, smallButton } from "./dom.js";
import { fileCard, fileLink } from "./files.js";
import { MarkdownView, codeBox, requestButton } from "./markdown.js";
import { Outputs } from "./outputs.js";
import { buttonWords, pythonWords, tokenCount, turnWords } from "./words.js";

// Longer answers are not announced to screen readers, but read in place.
const MAX_SPOKEN = 1500;
/** The ending of a cell whose code continues as a turn of its own. */
const BACKGROUND = "in background";

export class Turn {
  /** Draw a turn, as `LiveTurn.describe` sends it, in the context of its conversation. */
  constructor(head, context) {
    Object.assign(this, { id: head.id, turnId: head.turn_id ?? 0, head, context });
    this.end = null;
    this.hasBegun = false;
    this.cells = new Map();
    this.questions = new Map();
    this.artifacts = new Map();
    /** Hashes of displayed pictures; files with the same content are not shown again. */
    this.pictures = new Set();
    this.currentText = null;
    this.draft = null;
    this.texts = [];
    this.body = el("div", { class: "answer" });
    this.stateLabel = el("span", {});
    this.state = el("div", { class: "state" }, el("span", { class: "pulse", "aria-hidden": "true" }), this.stateLabel);
    this.footer = el("footer", { class: "meta", hidden: true });
    this.requestElement = requestBox(head);
    this.element = el("article", { class: "turn", "data-id": this.id, "aria-busy": "true" }, this.requestElement, this.body, this.state, this.footer);
    this.showState(turnWords.sending);
    for (const name of head.files) context.fileNames.add(name);
    for (const event of head.events ?? []) this.apply(event);
  }

  apply(event) {
    if (this.end && event.type !== "usage") return;
    (this[`on_${event.type}`] ?? this.onOutput).call(this, event);
  }

  showState(text, extra = null) {
    if (!text && this.state.hidden) return;
    this.state.hidden = !text;
    this.stateLabel.textContent = text;
    this.state.replaceChildren(...[this.state.firstChild, this.stateLabel, extra].filter(Boolean));
    clearInterval(this.stateTimer);
    if (!text || this.end) return;
    // A repeated event continues the same wait.
    if (text !== this.wait?.text) this.wait = { text, since: Date.now() };
    const { since } = this.wait;
    const maxSeconds = text === turnWords.running && this.context.getMaxSeconds?.();
    const showSeconds = () => {
      const seconds = (Date.now() - since) / 1000;
      if (!this.state.isConnected) clearInterval(this.stateTimer);
      // Code that runs longer has a limit of its own.
      else if (seconds > 2) this.stateLabel.textContent = `${text} ${seconds <= maxSeconds ? turnWords.ofAtMost(formatDuration(Math.round(seconds)), formatDuration(maxSeconds)) : formatDuration(Math.round(seconds))}`;
    };
    this.stateTimer = setInterval(showSeconds, 1000);
  }

  on_waiting({ ahead }) {
    const withdraw = () => this.context.sendAction({ do: "withdraw", id: this.id });
    const button = el("button", { type: "button", class: "small", onclick: withdraw }, turnWords.withdraw);
    this.showState(turnWords.queued(ahead), button);
  }

  on_begun() {
    this.hasBegun = true;
    this.showState(this.head.is_code ? pythonWords.starting : turnWords.thinking);
  }

  on_step() {
    this.currentText = null;
    this.removeDraft();
    this.showState(turnWords.thinking);
    this.context.announce(turnWords.thinking);
  }

  on_progress({ text, share }) {
    const progressParts = share === null ? null
      : [el("progress", { max: "1", value: String(share), "aria-label": turnWords.progress }), ` ${Math.round(share * 100)} %`];
    this.showState(text || turnWords.thinking, progressParts && el("span", { class: "share" }, progressParts));
  }

  on_text({ text }) {
    if (!this.currentText) this.addText();
    this.currentText.append(text);
    this.showState("");
  }

  addText() {
    this.currentText = new MarkdownView();
    this.texts.push(this.currentText);
    this.append(this.currentText.element);
  }

  on_draft({ text }) {
    if (!this.draft) {
      const pre = el("pre", {}, el("code", { dir: "ltr" }));
      this.draft = el("div", { class: "cell draft" }, el("div", { class: "code" }, el("div", { class: "code-head" }, el("span", { class: "language" }, turnWords.writing)), pre));
      this.draftText = document.createTextNode("");
      pre.firstChild.append(this.draftText);
      this.append(this.draft);
    }
    this.draftText.appendData(text);
    const pre = this.draft.querySelector("pre");
    pre.scrollTop = pre.scrollHeight;
    this.showState("");
  }

  removeDraft() {
    this.draft?.remove();
    this.draft = null;
  }

  on_code({ cell, text: code }) {
    // A bot that continues another bot's turn repeats the events of that turn.
    if (this.cells.has(cell)) return this.showState(turnWords.running);
    const outputs = new Outputs(this.context.displays, this.context.sendAction);
    const status = el("span", { class: "cell-status" });
    const block = codeBox(code, "python");
    block.firstChild.firstChild.after(status);
    const element = el("div", { class: "cell running", role: "group", "aria-label": turnWords.code }, block, outputs.element);
    // From here on, the cell shows the code.
    this.requestElement.querySelector(".code")?.remove();
    this.cells.set(cell, { element, outputs, status });
    if (this.draft) {
      this.draft.replaceWith(element);
      this.draft = null;
    } else this.append(element);
    this.showState(turnWords.running);
    this.context.announce(turnWords.runningCode);
  }

  getOutputs(cell) {
    const knownCell = this.cells.get(cell);
    if (knownCell) return knownCell.outputs;
    const outputs = new Outputs(this.context.displays, this.context.sendAction);
    this.cells.set(cell, { outputs, element: outputs.element, status: el("span") });
    this.append(outputs.element);
    return outputs;
  }

  on_stdout({ cell, type, text }) {
    this.getOutputs(cell).print(type, text);
  }

  on_stderr(event) {
    this.on_stdout(event);
  }

  onOutput(event) {
    if (event.type === "image") this.pictures.add(event.sha256);
    this.getOutputs(event.cell).show(event);
  }

  on_finished({ cell, status: ending, seconds, reason = "", kernel_lost: isLost }) {
    const runCell = this.cells.get(cell);
    if (!runCell) return;
    Object.assign(runCell, { ending, seconds });
    runCell.element.classList.remove("running");
    const isSuccess = ending === "ok" || ending === BACKGROUND;
    runCell.element.classList.add(isSuccess ? "fine" : "failed");
    runCell.status.textContent = `${ending === "ok" ? "" : `${turnWords.endings[ending] ?? ending} · `}${formatDuration(seconds)}`;
    if (ending === "stopped") runCell.outputs.softenStopError();
    // The status already says that the code was stopped.
    const otherReason = /^stopped\.?$/i.test(reason) ? "" : reason;
    if (otherReason || isLost) {
      const sentences = [otherReason, isLost && !/variables/i.test(reason) ? turnWords.variablesLost : ""];
      runCell.outputs.append(el("p", { class: `notice ${ending === "stopped" && !isLost ? "" : "bad"}` }, sentences.filter(Boolean).join(" ")));
    }
    if (ending === "error" && this.head.is_code) runCell.outputs.append(requestButton("ask", turnWords.whyQuestion, turnWords.whyFailed));
    if (ending === "ok" && runCell.outputs.isEmpty && this.head.is_code) runCell.outputs.append(el("p", { class: "notice" }, turnWords.noOutput));
    this.showState(this.head.is_code ? "" : turnWords.thinking);
  }

  on_announcement({ text }) {
    this.append(el("p", { class: "notice" }, text));
  }

  on_private({ text }) {
    this.append(el("p", { class: "notice" }, linkify(text)));
  }

  on_input(event) {
    if (event.is_of_model) return this.on_approve(event);
    this.ask(event, (place) => this.getOutputs(event.cell).append(place));
    this.context.announce(turnWords.codeAsksInput);
  }

  on_approve(event) {
    this.removeDraft();
    this.ask(event, (place) => this.append(place));
  }

  /** Ask in a form of its own, whose module is fetched with the first: most turns ask nothing. */
  ask(event, add) {
    const placeholder = el("div", {});
    add(placeholder);
    this.showState("");
    this.questions.set(event.id, import("./questions.js").then(({ questionForm, modelQuestionForm, approvalForm }) => {
      const makeForm = event.is_of_model ? modelQuestionForm : event.type === "input" ? questionForm : approvalForm;
      const form = makeForm(event, (text) => this.answer(event.id, text));
      placeholder.replaceWith(form);
      if (form.ariaLabel) this.context.announce(form.ariaLabel);
      else if (!this.context.isWriting() && !this.end) form.querySelector("input").focus({ preventScroll: true });
      return form;
    }));
  }

  answer(question, text) {
    this.context.sendAction({ do: "answer", question, text });
  }

  on_settled({ id, answer, outcome }) {
    this.questions.get(id)?.then((form) => form.settle(answer, outcome));
    this.questions.delete(id);
    this.showState(answer === null ? turnWords.thinking : turnWords.running);
  }

  on_artifact(file) {
    if (!this.files) {
      this.files = el("ul", { class: "files", "aria-label": turnWords.files });
      this.append(this.files);
    }
    this.artifacts.get(file.name)?.remove();
    const card = fileCard(this.context.thread, file, { hasPreview: !this.pictures.has(file.sha256) });
    this.artifacts.set(file.name, card);
    this.context.fileNames.add(file.name);
    this.files.append(card);
  }

  on_usage(usage) {
    this.usage = usage;
  }

  on_over(end) {
    this.end = end;
    this.turnId = end.turn_id || this.turnId;
    this.removeDraft();
    for (const formPromise of this.questions.values()) formPromise.then((form) => form.settle());
    for (const cell of this.cells.values()) cell.element.classList.remove("running");
    this.finishTexts(end);
    if (end.status === "done" && end.text.trim() && this.cells.size) this.foldWork();
    this.showState("");
    this.state.remove();
    if (end.queries?.length) import("./queries.js").then(({ queryList }) => this.insertAfterCode(queryList(end.queries)));
    if (this.files) this.body.append(this.files);
    const sentence = this.endSentence(end);
    if (sentence) this.body.append(endNotice({ ...end, reason: sentence }, () => this.context.reuseRequest(this), end.status === "stopped" && !this.hasBegun));
    this.element.removeAttribute("aria-busy");
    this.showFooter(end);
    const spokenText = end.status === "done" ? this.currentText?.text.replace(/[*_`#|>]/g, "").trim() : "";
    this.context.announce(end.reason || (spokenText ? turnWords.answer(spokenText.slice(0, MAX_SPOKEN)) : end.status === "done" ? turnWords.done : turnWords.stopped));
  }

  /** Return the sentence at the end; the footer or a cell already says that the turn was stopped. */
  endSentence(end) {
    return end.status === "stopped" ? end.reason?.replace(/^stopped\.\s*/i, "") : end.reason;
  }

  /** Put the answer before the steps that led to it, and fold these, except for their displays. */
  foldWork() {
    const cells = [...this.cells.values()].filter(({ ending }) => ending && ending !== "refused" && ending !== BACKGROUND);
    const failures = cells.filter(({ ending }) => ending !== "ok").length;
    const seconds = cells.reduce((sum, cell) => sum + cell.seconds, 0);
    const parts = [turnWords.ran(cells.length), failures && turnWords.failed(failures)].filter(Boolean);
    const hasBackgroundCode = [...this.cells.values()].some(({ ending }) => ending === BACKGROUND);
    const summary = cells.length ? `${parts.join(", ")} · ${formatDuration(seconds)}` : hasBackgroundCode ? turnWords.codeInBackground : turnWords.codeNotRun;
    const isOpen = this.context.isReading() || this.body.contains(document.activeElement);
    this.workDetails = el("details", { class: "work", open: isOpen }, el("summary", {}, summary));
    // Drawn at once: if the words came later, the browser would scroll to keep the steps in place.
    this.currentText.draw();
    this.answerElement = this.currentText.element;
    this.body.querySelector(":scope > :is(.cell, .outputs, .words)").before(this.answerElement, this.workDetails);
  }

  finishTexts(end) {
    if (end.text) {
      if (!this.currentText) this.addText();
      this.currentText.setText(end.text);
    }
    const { fileNames, thread } = this.context;
    const linkFile = (name) => {
      const bareName = name.replace(/^(?:sandbox:)?\/mnt\/data\//, "");
      return fileNames.has(bareName) ? fileLink(thread, bareName) : null;
    };
    const mayNameFile = ({ text }) => /sandbox:|\/mnt\/data\//.test(text) || [...fileNames].some((name) => text.includes(name));
    for (const text of this.texts) if (fileNames.size && mayNameFile(text)) text.linkFiles(linkFile);
  }

  showFooter(end) {
    const parts = [];
    const isStopShown = [...this.cells.values()].some((cell) => /^stopped/i.test(cell.status.textContent));
    if (end.status === "stopped" && this.hasBegun && !isStopShown) parts.push(turnWords.stopped);
    if (end.seconds > 0) parts.push(formatDuration(end.seconds));
    const tokens = this.usage ? this.usage.input_tokens + this.usage.output_tokens : 0;
    const cached = this.usage?.cached_tokens ? turnWords.fromCache(this.usage.cached_tokens) : "";
    if (tokens) parts.push((this.usage.is_estimated ? turnWords.estimated(tokenCount(tokens)) : tokenCount(tokens)) + cached);
    if (this.usage && Number(this.usage.money) > 0) parts.push(turnWords.money(this.usage.money));
    const allText = () => this.texts.map((text) => text.text).join("\n\n").trim();
    if (parts.length) this.footer.append(el("span", {}, parts.join(" · ")));
    if (allText()) this.footer.append(copyButton(allText));
    const canBranch = this.turnId > 0 && !end.goes_on && Boolean(this.head.request && this.context.branch);
    if (canBranch) this.offerBranches();
    this.footer.hidden = parts.length === 0 && !allText() && !canBranch;
  }

  /** Let the question be edited where it stands, and be asked again below its answer. */
  offerBranches() {
    const branchAgain = () => this.context.branch(this, this.head.request);
    this.editButton = el("button", { type: "button", class: "icon edit", title: buttonWords.edit, onclick: () => this.editQuestion() }, icon("pen"), el("span", { class: "unseen" }, buttonWords.edit));
    this.requestElement.append(this.editButton);
    // A turn that failed has a button beside its last sentence.
    if (["done", "stopped"].includes(this.end.status)) this.footer.append(smallButton(this.head.is_code ? turnWords.runAgain : buttonWords.tryAgain, "again", branchAgain));
  }

  /** Let a person edit the question in place. */
  async editQuestion() {
    (await import("./branches.js")).editQuestion(this);
  }

  /** Show links to the versions of this turn in other branches, if there are any. */
  async showBranches(branches) {
    this.branches = branches;
    const branchNav = branches ? (await import("./branches.js")).branchLinks(branches) : null;
    // Other branches may have been shown meanwhile.
    if (this.branches !== branches) return;
    this.branchNav?.remove();
    this.branchNav = branchNav;
    if (branchNav) this.footer.after(branchNav);
  }

  append(node) {
    this.body.append(node);
  }

  /** Insert a node below the last cell. */
  insertAfterCode(node) {
    const last = [...this.cells.values()].at(-1)?.element;
    if (last) last.after(node);
    else this.append(node);
  }
}

/** Draw the request, under a heading by which people can go from turn to turn. */
function requestBox(head) {
  if (!head.request && !head.files.length) return el("div", { class: "nothing-asked" });
  const fileList = head.files.length
    ? el("ul", { class: "asked-files", "aria-label": turnWords.attachedFiles }, head.files.map((name) => el("li", {}, icon("file"), nameElement(name))))
    : null;
  if (head.is_code) return el("div", { class: "asked code-asked" }, fileList, el("h2", { class: "muted" }, turnWords.youRan), codeBox(head.request, "python"));
  return el("div", { class: "asked" }, el("h2", { class: "unseen" }, turnWords.youAsked), fileList, head.request ? makeScrollable(el("div", { class: "bubble", dir: "auto" }, head.request)) : null);
}

function endNotice(end, reuseRequest, isWithdrawn) {
  const isBad = !isWithdrawn && !end.goes_on && !["done", "stopped"].includes(end.status);
  const button = isWithdrawn || isBad
    ? el("button", { type: "button", class: "small", onclick: reuseRequest }, turnWords.askAgain)
    : null;
  return el("p", { class: `notice ${isBad ? "bad" : ""}`, role: isBad ? "alert" : null }, isBad ? icon("warn") : null, el("span", {}, end.reason), button);
}
