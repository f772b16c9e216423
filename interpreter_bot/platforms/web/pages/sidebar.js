// The list of conversations.

import { $, el, icon, plain } from "./dom.js";
import { confirmed, asked } from "./dialogs.js";

export class Sidebar {
  constructor({ say, begin }) {
    this.say = say;
    this.all = [];
    $("new").append(icon("plus"), el("span", {}, "New conversation"));
    $("new").addEventListener("click", () => {
      this.show(false);
      begin();
    });
    $("menu").append(icon("menu"));
    $("menu").addEventListener("click", () => this.show(true));
    $("shade").addEventListener("click", () => this.show(false));
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
    return this.all.find((one) => one.thread === thread)?.title || "New conversation";
  }

  draw(all, current) {
    this.all = all;
    const focused = document.activeElement?.closest?.("[data-thread]")?.dataset.thread;
    const list = $("conversations");
    const scrolled = list.scrollTop;
    const groups = new Map();
    for (const one of all) {
      const day = dayOf(one.used);
      groups.set(day, [...(groups.get(day) ?? []), one]);
    }
    list.replaceChildren(...[...groups].flatMap(([day, some]) => [
      el("h2", {}, day), el("ul", {}, some.map((one) => this.entry(one, one.thread === current)))]));
    list.scrollTop = scrolled;
    if (focused) list.querySelector(`[data-thread="${CSS.escape(focused)}"] a`)?.focus();
  }

  entry(one, isCurrent) {
    const title = plain(one.title || "New conversation");
    const busy = one.is_busy ? el("span", { class: "pulse", role: "img", "aria-label": "at work" }) : null;
    const link = el("a", { href: `#${one.thread}`, "aria-current": isCurrent ? "page" : null, title, onclick: () => this.show(false) }, el("bdi", {}, title));
    return el("li", { "data-thread": one.thread, class: isCurrent ? "current" : null }, link, busy,
      el("button", { type: "button", class: "icon", "aria-label": `Rename ${title}`, title: "Rename", onclick: () => this.rename(one) }, icon("pen")),
      el("button", { type: "button", class: "icon", "aria-label": `Delete ${title}`, title: "Delete", onclick: () => this.delete(one) }, icon("bin")));
  }

  async rename({ thread, title }) {
    const given = await asked("Rename the conversation", { label: "Name", value: title, action: "Rename" });
    if (given?.trim()) this.say({ do: "rename", thread, title: given.trim().slice(0, 200) });
  }

  async delete({ thread, title }) {
    const told = `“${plain(title || "New conversation")}” is deleted with everything in it: what was said, its variables and its files.`;
    if (await confirmed("Delete the conversation?", told, { action: "Delete", isBad: true })) this.say({ do: "delete", thread });
  }
}

function dayOf(seconds) {
  const start = new Date();
  start.setHours(0, 0, 0, 0);
  const days = (start.getTime() / 1000 - seconds) / 86400;
  if (days <= 0) return "Today";
  if (days <= 1) return "Yesterday";
  if (days <= 7) return "Last 7 days";
  return "Earlier";
}
