// The conversation that is shown: its turns, put in order without showing anything twice.

import { $, el, icon } from "./dom.js";
import { Turn } from "./turns.js";
import { conversationWords } from "./words.js";

const NEAR_END_PIXELS = 120;
const ANSWER_MARGIN_PIXELS = 16;
export const FIRST_TURNS = 30;

export class Conversation {
  constructor({ sendAction, announce, reuseRequest, branch, isWriting, getMaxSeconds, onChange }) {
    this.callbacks = { sendAction, announce, reuseRequest, branch, isWriting, getMaxSeconds };
    this.onChange = onChange;
    this.turnList = $("turns");
    this.scrollBox = $("scroll");
    this.isAtEnd = true;
    this.lastScrollTop = 0;
    this.scrollBox.addEventListener("scroll", () => this.onScroll(), { passive: true });
    const sizes = new ResizeObserver(() => (this.scrollToLatest(), this.onScroll()));
    for (const element of [this.turnList, this.scrollBox]) sizes.observe(element);
    $("latest").append(icon("toEnd"));
    $("latest").addEventListener("click", () => this.scrollToEnd());
    this.openThread("");
  }

  openThread(thread) {
    this.thread = thread;
    this.turns = [];
    this.isLoaded = false;
    this.maxTurns = FIRST_TURNS;
    this.context = {
      thread,
      displays: new Map(),
      fileNames: new Set(),
      sendAction: (message) => this.callbacks.sendAction({ thread, ...message }),
      announce: (words) => this.isLoaded && this.callbacks.announce(words),
      isWriting: () => !this.isLoaded || this.callbacks.isWriting(),
      isReading: () => this.isLoaded && !this.isAtEnd,
      getMaxSeconds: () => this.callbacks.getMaxSeconds(),
      reuseRequest: (turn) => this.callbacks.reuseRequest(turn.head),
      branch: (turn, text) => this.callbacks.branch(turn, text),
    };
    this.turnList.replaceChildren();
    this.isAtEnd = true;
  }

  get running() {
    return this.turns.find((turn) => !turn.end && turn.hasBegun) ?? null;
  }

  /** The code that the person ran here, the latest first. */
  get pastCodes() {
    return this.turns.filter(({ head }) => head.is_code && head.request).map(({ head }) => head.request).reverse();
  }

  find(id) {
    return this.turns.find((turn) => turn.id === id) ?? null;
  }

  /** Show the turns that the bot knows; finished turns that are shown already stay as they are. */
  load(contents, pendingIds) {
    this.isLoaded = false;
    const finishedTurns = new Map(this.turns.filter(({ end, turnId }) => end && !end.goes_on && turnId).map((turn) => [turn.turnId, turn]));
    const recordedIds = new Set(contents.past.map((head) => head.request_id));
    const liveIds = new Set(contents.live.map((head) => head.id));
    const lostTurns = this.turns.filter((turn) => !turn.end && !turn.turnId && !liveIds.has(turn.id) && !recordedIds.has(turn.id));
    const pastTurns = contents.past.map((head) => finishedTurns.get(head.turn_id) ?? new Turn(head, this.context));
    const liveTurns = contents.live.map((head) => new Turn(head, this.context));
    for (const turn of lostTurns) if (!pendingIds.has(turn.id)) turn.apply(LOST_END);
    const unrecordedTurns = this.turns.filter((turn) => turn.end && !turn.turnId && !liveIds.has(turn.id) && !lostTurns.includes(turn));
    const anchor = this.turnList.querySelector(".turn");
    const anchorTop = anchor?.getBoundingClientRect().top;
    this.arrangeTurns([...pastTurns, ...unrecordedTurns, ...liveTurns, ...lostTurns]);
    const branchesByTurn = new Map(contents.alternatives.map((branches) => [branches.turn_id, branches]));
    for (const turn of this.turns) turn.showBranches(branchesByTurn.get(turn.turnId));
    if (!contents.has_earlier_turns && $("earlier").contains(document.activeElement)) this.scrollBox.focus();
    $("earlier").hidden = !contents.has_earlier_turns;
    for (const text of contents.notices) this.showNotice(text);
    // Turns that were added above must not move the text that is being read.
    if (anchor?.isConnected && !this.isAtEnd) this.scrollBox.scrollTop += anchor.getBoundingClientRect().top - anchorTop;
    this.isLoaded = true;
    this.onChange();
    this.scrollToLatest();
  }

  /** Put turns into the list, in this order. */
  arrangeTurns(turns) {
    const elements = new Set(turns.map((turn) => turn.element));
    for (const child of [...this.turnList.children]) if (!elements.has(child)) child.remove();
    // Moving a frame reloads it, so only elements that are out of place are moved.
    let following = this.turnList.firstElementChild;
    for (const { element } of turns) {
      if (element === following) following = following.nextElementSibling;
      else this.turnList.insertBefore(element, following);
    }
    this.turns = turns;
  }

  /** Show a turn that was just asked for. */
  addTurn(head) {
    if (this.find(head.id)) return;
    const turn = new Turn(head, this.context);
    this.turnList.append(turn.element);
    this.turns = [...this.turns, turn];
    this.onChange();
    this.scrollToLatest();
  }

  applyEvent(id, event) {
    this.find(id)?.apply(event);
    if (event.type === "begun" || event.type === "over") this.onChange();
    if (event.type === "over") this.scrollBackToAnswer();
    // The observer of sizes scrolls later: measuring here would lay out the page for each event.
  }

  removeTurn(id) {
    const turn = this.find(id);
    this.turns = this.turns.filter((other) => other !== turn);
    turn?.element.remove();
    this.onChange();
  }

  /** Show a notice about the conversation, in place of the one before. */
  showNotice(text) {
    this.turnList.querySelector(".between")?.remove();
    this.turnList.append(el("p", { class: "notice between" }, text));
    this.scrollToLatest();
  }

  onScroll() {
    const { scrollTop, clientHeight, scrollHeight } = this.scrollBox;
    const isNearEnd = scrollTop + clientHeight >= scrollHeight - NEAR_END_PIXELS;
    // Only a person scrolls up; content that grows below does not mean that they want to stay.
    if (isNearEnd || scrollTop < this.lastScrollTop - 2) this.isAtEnd = isNearEnd;
    this.lastScrollTop = scrollTop;
    $("latest").hidden = this.isAtEnd;
  }

  /** Scroll down to the latest content, but not beyond the beginning of an answer. */
  scrollToLatest() {
    if (!this.isAtEnd || !this.turnList.childElementCount) return;
    const { scrollTop, scrollHeight } = this.scrollBox;
    this.scrollBox.scrollTop = Math.max(scrollTop, Math.min(scrollHeight, this.answerTop));
  }

  /** The scroll position of the beginning of the last answer, once its code is folded. */
  get answerTop() {
    const answer = this.turns.at(-1)?.answerElement;
    if (!answer) return Infinity;
    return this.scrollBox.scrollTop + answer.getBoundingClientRect().top - this.scrollBox.getBoundingClientRect().top - ANSWER_MARGIN_PIXELS;
  }

  /** Scroll back to the beginning of an answer whose code was just folded, and go on following. */
  scrollBackToAnswer() {
    if (!this.isAtEnd) return;
    this.scrollBox.scrollTop = Math.min(this.scrollBox.scrollTop, this.answerTop);
    this.lastScrollTop = this.scrollBox.scrollTop;
  }

  /** Scroll to a turn, and unfold its code. */
  reveal(turnId) {
    const turn = this.turns.find((otherTurn) => otherTurn.turnId === turnId);
    if (!turn) return this.showNotice(conversationWords.notLoaded);
    this.isAtEnd = false;
    if (turn.workDetails) turn.workDetails.open = true;
    turn.element.tabIndex = -1;
    turn.element.focus({ preventScroll: true });
    turn.element.scrollIntoView({ block: "start" });
  }

  scrollToEnd() {
    this.isAtEnd = true;
    this.scrollBox.scrollTop = this.scrollBox.scrollHeight;
  }
}

const LOST_END = {
  type: "over", status: "lost", text: "", seconds: 0,
  reason: conversationWords.restarted,
};
