// The list of conversations, and the search in them.

import { $, el, icon, cleanText } from "./dom.js";
import { buttonWords, sidebarWords } from "./words.js";

const TYPING_MILLISECONDS = 150;

export class Sidebar {
  constructor({ sendAction, openNew, forgetDraft }) {
    Object.assign(this, { sendAction, openNew, forgetDraft });
    this.conversations = [];
    this.current = "";
    this.searchResults = null;
    $("new").append(icon("plus"), el("span", {}, sidebarWords.newConversation));
    $("new").addEventListener("click", () => {
      this.show(false);
      openNew();
    });
    $("menu").append(icon("menu"));
    $("menu").addEventListener("click", () => this.show(true));
    $("shade").addEventListener("click", () => this.show(false));
    $("search").addEventListener("input", () => this.onSearchInput());
    $("search").addEventListener("keydown", (event) => event.key === "Escape" && $("search").value && this.endSearch(event));
  }

  /** Show or hide the list, which lies over the page on a small screen. */
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
    return this.conversations.find((conversation) => conversation.thread === thread)?.title || sidebarWords.newConversation;
  }

  treeOf(thread) {
    return this.conversations.find((conversation) => conversation.thread === thread)?.tree ?? thread;
  }

  /** One conversation of each tree of branches: the shown one, or the one used last. */
  get visibleConversations() {
    const byTree = new Map();
    for (const conversation of this.conversations)
      if (!byTree.has(conversation.tree) || conversation.thread === this.current) byTree.set(conversation.tree, conversation);
    return [...byTree.values()];
  }

  draw(conversations, current) {
    Object.assign(this, { conversations, current });
    const focusedThread = document.activeElement?.closest?.("[data-thread]")?.dataset.thread;
    const list = $("conversations");
    const scrollTop = list.scrollTop;
    list.replaceChildren(...(this.searchResults === null ? this.groupNodes() : this.resultNodes()));
    list.scrollTop = scrollTop;
    if (focusedThread) list.querySelector(`[data-thread="${CSS.escape(focusedThread)}"] a`)?.focus();
  }

  groupNodes() {
    const groups = new Map();
    for (const conversation of this.visibleConversations.sort((conversation, next) => markRank(conversation) - markRank(next))) {
      const name = { pinned: sidebarWords.pinned, archived: sidebarWords.archived }[conversation.mark] ?? dayGroup(conversation.used);
      groups.set(name, [...(groups.get(name) ?? []), conversation]);
    }
    return [...groups].flatMap(([name, group]) => {
      const items = el("ul", {}, group.map((conversation) => this.conversationItem(conversation)));
      if (name !== sidebarWords.archived) return [el("h2", {}, name), items];
      const isOpen = $("archived")?.open || group.some(({ thread }) => thread === this.current);
      return [el("details", { id: "archived", open: isOpen }, el("summary", {}, sidebarWords.archivedCount(group.length)), items)];
    });
  }

  conversationItem(conversation) {
    const { thread, is_busy: isBusy } = conversation;
    const title = cleanText(conversation.title || sidebarWords.newConversation);
    const busyMark = isBusy ? el("span", { class: "pulse", role: "img", "aria-label": sidebarWords.busy }) : null;
    return el("li", { "data-thread": thread, class: thread === this.current ? "current" : null }, this.link(thread, title), busyMark,
      el("button", { type: "button", class: "icon", "aria-label": sidebarWords.moreAbout(title), "aria-haspopup": "menu", onclick: (event) => this.openMenu(event.currentTarget, conversation) }, icon("more")));
  }

  async openMenu(button, conversation) {
    (await import("./menus.js")).openMenu(button, [["", ...this.menuEntries(conversation)]]);
  }

  link(thread, title, ...more) {
    return el("a", { href: `#${thread}`, "aria-current": thread === this.current ? "page" : null, title, onclick: () => this.show(false) }, el("bdi", {}, title), ...more);
  }

  menuEntries(conversation) {
    const setMark = (newMark) => () => this.sendAction({ do: "mark", thread: conversation.thread, mark: newMark });
    return [
      conversation.mark === "pinned" ? [sidebarWords.unpin, "pin", setMark("")] : [sidebarWords.pin, "pin", setMark("pinned")],
      [buttonWords.renameWith, "pen", () => this.renameConversation(conversation)],
      conversation.mark === "archived" ? [buttonWords.bringBack, "box", setMark("")] : [buttonWords.archive, "box", setMark("archived")],
      [buttonWords.delete, "bin", () => this.deleteConversation(conversation)],
    ];
  }

  async renameConversation({ thread, title }) {
    const { askForText } = await import("./dialogs.js");
    const newTitle = await askForText(sidebarWords.renameConversation, { label: sidebarWords.name, value: title, action: buttonWords.rename });
    if (newTitle?.trim()) this.sendAction({ do: "rename", thread, title: newTitle.trim().slice(0, 200) });
  }

  async deleteConversation({ thread, title, tree }) {
    const { askToConfirm } = await import("./dialogs.js");
    const text = sidebarWords.deletes(cleanText(title || sidebarWords.newConversation));
    if (!(await askToConfirm(sidebarWords.deleteConversation, text, { action: buttonWords.delete, isDestructive: true }))) return;
    const threads = this.conversations.filter((conversation) => conversation.tree === tree).map((conversation) => conversation.thread);
    if (!this.sendAction({ do: "delete", thread })) return;
    // Opening another conversation saves the draft of this one.
    if (threads.includes(this.current)) this.openNew();
    for (const deletedThread of threads) this.forgetDraft(deletedThread);
  }

  // ---- search

  onSearchInput() {
    clearTimeout(this.searchTimer);
    const text = $("search").value.trim();
    if (!text) return this.showResults({ text, conversations: null });
    this.searchTimer = setTimeout(() => this.sendAction({ do: "search", text: text.slice(0, 200) }), TYPING_MILLISECONDS);
  }

  /** Show search results, unless they are for another text than the field has now. */
  showResults({ text, conversations }) {
    if (text !== $("search").value.trim().slice(0, 200)) return;
    const shownTrees = new Set();
    const isNew = (tree) => !shownTrees.has(tree) && shownTrees.add(tree);
    this.searchResults = conversations?.filter(({ thread }) => isNew(this.treeOf(thread))) ?? null;
    const summary = this.searchResults?.length ? sidebarWords.found(this.searchResults.length) : sidebarWords.nothingFound;
    $("found").textContent = this.searchResults === null ? "" : summary;
    this.draw(this.conversations, this.current);
  }

  resultNodes() {
    return [el("ul", {}, this.searchResults.map(({ thread, title, excerpt }) =>
      el("li", { "data-thread": thread }, this.link(thread, cleanText(title || sidebarWords.newConversation), excerpt ? el("small", { dir: "auto" }, cleanText(excerpt)) : null))))];
  }

  endSearch(event) {
    event.stopPropagation();
    $("search").value = "";
    this.onSearchInput();
  }
}

function markRank({ mark }) {
  return { pinned: 0, archived: 2 }[mark] ?? 1;
}

function dayGroup(seconds) {
  const start = new Date();
  start.setHours(0, 0, 0, 0);
  const days = (start.getTime() / 1000 - seconds) / 86400;
  if (days <= 0) return sidebarWords.days.today;
  if (days <= 1) return sidebarWords.days.yesterday;
  if (days <= 7) return sidebarWords.days.week;
  return sidebarWords.days.earlier;
}
