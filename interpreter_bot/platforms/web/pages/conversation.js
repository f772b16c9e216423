// The conversation that is shown: its turns, put in order without showing anything twice.

import { $, el, icon, plain } from "./dom.js";
import { Turn } from "./turns.js";
import { conversationWords } from "./words.js";

const NEAR_THE_END = 120;
const ABOVE_AN_ANSWER = 16;
export const FIRST_TURNS = 30;

export class Conversation {
  constructor({ say, spoke, again, branch, isWriting, limit, changed }) {
    this.links = { say, spoke, again, branch, isWriting, limit };
    this.changed = changed;
    this.list = $("turns");
    this.pane = $("scroll");
    this.isAtEnd = true;
    this.top = 0;
    this.pane.addEventListener("scroll", () => this.noteScroll(), { passive: true });
    const sizes = new ResizeObserver(() => (this.follow(), this.noteScroll()));
    for (const box of [this.list, this.pane]) sizes.observe(box);
    $("latest").append(icon("toEnd"));
    $("latest").addEventListener("click", () => this.toEnd());
    this.open("");
  }

  open(thread) {
    this.thread = thread;
    this.turns = [];
    this.isLoaded = false;
    this.most = FIRST_TURNS;
    this.around = {
      thread,
      displays: new Map(),
      say: (message) => this.links.say({ thread, ...message }),
      spoke: (words) => this.isLoaded && this.links.spoke(words),
      isWriting: () => !this.isLoaded || this.links.isWriting(),
      isReading: () => this.isLoaded && !this.isAtEnd,
      limit: () => this.links.limit(),
      again: (turn) => this.links.again(turn.head),
      branch: (turn, text) => this.links.branch(turn, text),
    };
    this.list.replaceChildren();
    this.isAtEnd = true;
  }

  get running() {
    return this.turns.find((turn) => !turn.over && turn.hasBegun) ?? null;
  }

  /** The code that the person ran here, the latest first. */
  get codes() {
    return this.turns.filter(({ head }) => head.is_code && head.request).map(({ head }) => head.request).reverse();
  }

  find(id) {
    return this.turns.find((turn) => turn.id === id) ?? null;
  }

  /** Show what the bot knows, and keep what is already shown of it as it is. */
  load(whole, pendingIds) {
    this.isLoaded = false;
    const known = new Map(this.turns.filter((turn) => turn.over && turn.number).map((turn) => [turn.number, turn]));
    const recorded = new Set(whole.past.map((head) => head.request_id));
    const liveIds = new Set(whole.live.map((head) => head.id));
    const lost = this.turns.filter((turn) => !turn.over && !turn.number && !liveIds.has(turn.id) && !recorded.has(turn.id));
    const past = whole.past.map((head) => known.get(head.number) ?? new Turn(head, this.around));
    const live = whole.live.map((head) => new Turn(head, this.around));
    for (const turn of lost) if (!pendingIds.has(turn.id)) turn.apply(NEVER_BEGUN);
    const unsaid = this.turns.filter((turn) => turn.over && !turn.number && !liveIds.has(turn.id) && !lost.includes(turn));
    const anchor = this.list.querySelector(".turn");
    const top = anchor?.getBoundingClientRect().top;
    this.put([...past, ...unsaid, ...live, ...lost]);
    const places = new Map(whole.alternatives.map((one) => [one.number, one]));
    for (const turn of this.turns) turn.showVersions(places.get(turn.number));
    if (!whole.is_more && $("earlier").contains(document.activeElement)) this.pane.focus();
    $("earlier").hidden = !whole.is_more;
    for (const text of whole.notices) this.notice(text);
    if (whole.notebook) this.offerRest(whole.notebook);
    // What came before it must not push away what is being read.
    if (anchor?.isConnected && !this.isAtEnd) this.pane.scrollTop += anchor.getBoundingClientRect().top - top;
    this.isLoaded = true;
    this.changed();
    this.follow();
  }

  /** Put turns into the list, in this order. */
  put(turns) {
    const wanted = new Set(turns.map((turn) => turn.element));
    for (const child of [...this.list.children]) if (!wanted.has(child)) child.remove();
    // A frame that is moved is loaded anew, so only what is not in its place is put there.
    let at = this.list.firstElementChild;
    for (const { element } of turns) {
      if (element === at) at = at.nextElementSibling;
      else this.list.insertBefore(element, at);
    }
    this.turns = turns;
  }

  /** Show a turn that was just asked for. */
  begin(head) {
    if (this.find(head.id)) return;
    const turn = new Turn(head, this.around);
    this.list.append(turn.element);
    this.turns = [...this.turns, turn];
    this.changed();
    this.follow();
  }

  tell(id, event) {
    this.find(id)?.apply(event);
    if (event.type === "begun" || event.type === "over") this.changed();
    if (event.type === "over") this.goBack();
    // It is followed once it has grown: each look at how tall it is lays all of it out.
  }

  drop(id) {
    const turn = this.find(id);
    this.turns = this.turns.filter((one) => one !== turn);
    turn?.element.remove();
    this.changed();
  }

  /** The latest word about the conversation itself; what was said before is no longer so. */
  notice(text) {
    this.list.querySelector(".between")?.remove();
    this.list.append(el("p", { class: "notice between" }, text));
    this.follow();
  }

  /** What is left of a notebook is run only when somebody wants it. */
  offerRest({ name, left }) {
    this.notice(conversationWords.notebookStopped(plain(name)));
    const run = (event) => (event.target.closest(".between").remove(), dispatchEvent(new CustomEvent("rest")));
    this.list.lastElementChild.append(el("button", { type: "button", class: "small", onclick: run }, conversationWords.runRest(left)));
  }

  noteScroll() {
    const { scrollTop, clientHeight, scrollHeight } = this.pane;
    const isNear = scrollTop + clientHeight >= scrollHeight - NEAR_THE_END;
    // What grows beneath is no wish to stay; only a person scrolls up.
    if (isNear || scrollTop < this.top - 2) this.isAtEnd = isNear;
    this.top = scrollTop;
    $("latest").hidden = this.isAtEnd;
  }

  /** Go down to where the latest is, but not beyond the beginning of an answer. */
  follow() {
    if (!this.isAtEnd || !this.list.childElementCount) return;
    const { scrollTop, scrollHeight } = this.pane;
    this.pane.scrollTop = Math.max(scrollTop, Math.min(scrollHeight, this.beginning));
  }

  /** Where the words of the last answer begin, once what led to them is folded away. */
  get beginning() {
    const words = this.turns.at(-1)?.conclusion;
    if (!words) return Infinity;
    return this.pane.scrollTop + words.getBoundingClientRect().top - this.pane.getBoundingClientRect().top - ABOVE_AN_ANSWER;
  }

  /** Go back to the beginning of an answer that has just folded; that is no wish to stay there. */
  goBack() {
    if (!this.isAtEnd) return;
    this.pane.scrollTop = Math.min(this.pane.scrollTop, this.beginning);
    this.top = this.pane.scrollTop;
  }

  /** Go to a turn, all of which is there or can be had. */
  reveal(number) {
    const turn = this.turns.find((one) => one.number === number);
    if (!turn) return this.notice(conversationWords.notLoaded);
    this.isAtEnd = false;
    if (turn.work) turn.work.open = true;
    turn.element.tabIndex = -1;
    turn.element.focus({ preventScroll: true });
    turn.element.scrollIntoView({ block: "start" });
  }

  toEnd() {
    this.isAtEnd = true;
    this.pane.scrollTop = this.pane.scrollHeight;
  }
}

const NEVER_BEGUN = {
  type: "over", status: "lost", text: "", seconds: 0,
  reason: conversationWords.restarted,
};
