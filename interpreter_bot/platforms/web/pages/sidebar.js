// The list of conversations, and what is found in them.

import { $, el, icon, plain } from "./dom.js";
import { buttonWords, sidebarWords } from "./words.js";

const UNDO_MILLISECONDS = 8000;
const TYPING_MILLISECONDS = 150;

export class Sidebar {
  constructor({ say, begin, leave }) {
    Object.assign(this, { say, begin, leave });
    this.all = [];
    this.current = "";
    this.found = null;
    this.doomed = new Map();
    $("new").append(icon("plus"), el("span", {}, sidebarWords.newConversation));
    $("new").addEventListener("click", () => {
      this.show(false);
      begin();
    });
    $("menu").append(icon("menu"));
    $("menu").addEventListener("click", () => this.show(true));
    $("shade").addEventListener("click", () => this.show(false));
    $("search").addEventListener("input", () => this.searched());
    $("search").addEventListener("keydown", (event) => event.key === "Escape" && $("search").value && this.endSearch(event));
    // What was to be deleted is: whoever closes the page does not take it back any more.
    addEventListener("pagehide", () => [...this.doomed.values()].forEach((one) => one.told.isConnected && this.finishDeletion(one)));
  }

  /** On a small screen the list lies over the page. */
  show(isShown) {
    $("sidebar").classList.toggle("is-open", isShown);
    $("menu").setAttribute("aria-expanded", String(isShown));
    $("shade").hidden = !isShown;
    if (isShown) $("new").focus();
  }

  get isShown() {
    return $("sidebar").classList.contains("is-open");
  }

  titleOf(thread) {
    return this.all.find((one) => one.thread === thread)?.title || sidebarWords.newConversation;
  }

  treeOf(thread) {
    return this.all.find((one) => one.thread === thread)?.tree ?? thread;
  }

  /** One of each tree of branches: that which is shown, or was used last. */
  get trees() {
    const trees = new Map();
    for (const one of this.all)
      if (!this.doomed.has(one.tree) && (!trees.has(one.tree) || one.thread === this.current)) trees.set(one.tree, one);
    return [...trees.values()];
  }

  draw(all, current) {
    Object.assign(this, { all, current });
    const focused = document.activeElement?.closest?.("[data-thread]")?.dataset.thread;
    const list = $("conversations");
    const scrolled = list.scrollTop;
    list.replaceChildren(...(this.found === null ? this.groups() : this.results()));
    list.scrollTop = scrolled;
    if (focused) list.querySelector(`[data-thread="${CSS.escape(focused)}"] a`)?.focus();
  }

  groups() {
    const groups = new Map();
    for (const one of this.trees.sort((one, other) => rank(one) - rank(other))) {
      const name = { pinned: sidebarWords.pinned, archived: sidebarWords.archived }[one.mark] ?? dayOf(one.used);
      groups.set(name, [...(groups.get(name) ?? []), one]);
    }
    return [...groups].flatMap(([name, some]) => {
      const entries = el("ul", {}, some.map((one) => this.entry(one)));
      if (name !== sidebarWords.archived) return [el("h2", {}, name), entries];
      const isOpen = $("archived")?.open || some.some(({ thread }) => thread === this.current);
      return [el("details", { id: "archived", open: isOpen }, el("summary", {}, sidebarWords.archivedCount(some.length)), entries)];
    });
  }

  entry(one) {
    const { thread, is_busy: isBusy } = one;
    const title = plain(one.title || sidebarWords.newConversation);
    const busy = isBusy ? el("span", { class: "pulse", role: "img", "aria-label": sidebarWords.busy }) : null;
    return el("li", { "data-thread": thread, class: thread === this.current ? "current" : null }, this.link(thread, title), busy,
      el("button", { type: "button", class: "icon", "aria-label": sidebarWords.moreAbout(title), "aria-haspopup": "menu", onclick: (event) => this.menu(event.currentTarget, one) }, icon("more")));
  }

  async menu(button, one) {
    (await import("./menus.js")).openMenu(button, [["", ...this.actions(one)]]);
  }

  link(thread, title, ...more) {
    return el("a", { href: `#${thread}`, "aria-current": thread === this.current ? "page" : null, title, onclick: () => this.show(false) }, el("bdi", {}, title), ...more);
  }

  actions(one) {
    const mark = (wanted) => () => this.say({ do: "mark", thread: one.thread, mark: wanted });
    return [
      one.mark === "pinned" ? [sidebarWords.unpin, "pin", mark("")] : [sidebarWords.pin, "pin", mark("pinned")],
      [buttonWords.renameWith, "pen", () => this.rename(one)],
      one.mark === "archived" ? [buttonWords.bringBack, "box", mark("")] : [buttonWords.archive, "box", mark("archived")],
      [buttonWords.delete, "bin", () => this.delete(one)],
    ];
  }

  async rename({ thread, title }) {
    const { asked } = await import("./dialogs.js");
    const given = await asked(sidebarWords.renameConversation, { label: sidebarWords.name, value: title, action: buttonWords.rename });
    if (given?.trim()) this.say({ do: "rename", thread, title: given.trim().slice(0, 200) });
  }

  // ---- deletion, which can be taken back for a while

  delete({ thread, title, tree }) {
    if (this.treeOf(this.current) === tree) this.begin();
    const one = { thread, tree };
    const undo = el("button", { type: "button", class: "small strong", onclick: () => this.takeBack(one) }, buttonWords.undo);
    const told = el("p", {}, el("span", {}, sidebarWords.deleted(plain(title || sidebarWords.newConversation))), undo);
    this.doomed.set(tree, Object.assign(one, { told, timer: setTimeout(() => this.finishDeletion(one), UNDO_MILLISECONDS) }));
    $("undo").append(told);
    this.searched();
    this.draw(this.all, this.current);
  }

  finishDeletion(one) {
    for (const { thread, tree } of this.all) if (tree === one.tree) this.leave(thread);
    if (!this.say({ do: "delete", thread: one.thread })) return this.takeBack(one);
    // It stays out of this list until the server's has it no more.
    this.endNotice(one);
  }

  takeBack(one) {
    this.endNotice(one);
    this.doomed.delete(one.tree);
    this.draw(this.all, this.current);
  }

  endNotice({ told, timer }) {
    clearTimeout(timer);
    told.remove();
  }

  // ---- search

  searched() {
    clearTimeout(this.typing);
    const text = $("search").value.trim();
    if (!text) return this.showFound({ text, conversations: null });
    this.typing = setTimeout(() => this.say({ do: "search", text: text.slice(0, 200) }), TYPING_MILLISECONDS);
  }

  /** An answer to other words than those that stand there now is out of date. */
  showFound({ text, conversations }) {
    if (text !== $("search").value.trim().slice(0, 200)) return;
    const seen = new Set(this.doomed.keys());
    const isNew = (tree) => !seen.has(tree) && seen.add(tree);
    this.found = conversations?.filter(({ thread }) => isNew(this.treeOf(thread))) ?? null;
    const told = this.found?.length ? sidebarWords.found(this.found.length) : sidebarWords.nothingFound;
    $("found").textContent = this.found === null ? "" : told;
    this.draw(this.all, this.current);
  }

  results() {
    return [el("ul", {}, this.found.map(({ thread, title, excerpt }) =>
      el("li", { "data-thread": thread }, this.link(thread, plain(title || sidebarWords.newConversation), excerpt ? el("small", { dir: "auto" }, plain(excerpt)) : null))))];
  }

  endSearch(event) {
    event.stopPropagation();
    $("search").value = "";
    this.searched();
  }
}

function rank({ mark }) {
  return { pinned: 0, archived: 2 }[mark] ?? 1;
}

function dayOf(seconds) {
  const start = new Date();
  start.setHours(0, 0, 0, 0);
  const days = (start.getTime() / 1000 - seconds) / 86400;
  if (days <= 0) return sidebarWords.days.today;
  if (days <= 1) return sidebarWords.days.yesterday;
  if (days <= 7) return sidebarWords.days.week;
  return sidebarWords.days.earlier;
}
