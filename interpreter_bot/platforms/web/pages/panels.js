// What is shown beside a conversation: files, variables, limits, network, tools, models, usage, help.

import { count, el, linked, plain, scrollable, size } from "./dom.js";
import { closePanel, openPanel } from "./dialogs.js";

export function showPanel(shown, actions) {
  DRAWERS[shown.panel]?.(shown, actions);
}

function rows(pairs) {
  return el("table", { class: "rows" }, el("tbody", {}, pairs.map(([name, ...rest]) => el("tr", {}, el("th", { scope: "row" }, name), rest.map((one) => el("td", {}, withCode(one)))))));
}

/** Words in which names stand between backticks, if they are words. */
function withCode(words) {
  return typeof words === "string" ? words.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part)) : words;
}

/** Moments as the server's `command_panels` writes them, in the time zone of the reader. */
function inLocalTime(text) {
  return text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, (moment) => new Date(moment).toLocaleString([], { dateStyle: "long", timeStyle: "short" }));
}

/** The cells that made or read a variable; each leads to where it ran. */
function users(uses) {
  if (!uses.length) return "";
  const there = ({ turn_id: turn }) => (closePanel(), dispatchEvent(new CustomEvent("reveal", { detail: turn })));
  const cell = (use) => el("li", {}, el("button", { type: "button", class: "small", onclick: () => there(use) }, use.is_maker ? "Made by " : "Read by ", el("code", { dir: "ltr" }, plain(use.line))));
  return el("details", { class: "uses" }, el("summary", {}, count(uses.length, "cell", "cells")), el("ul", {}, uses.map(cell)));
}

/** Each variable, and the inside of those that are tables. */
function listed(variables, say) {
  const inside = el("div", {});
  const open = async (one) => {
    const { LiveTable } = await import("./tables.js");
    const gone = (sentence) => inside.replaceChildren(el("p", { class: "notice" }, sentence));
    const live = new LiveTable(one, { say, gone });
    inside.replaceChildren(el("h3", {}, plain(one.name)), live.element);
    live.search.focus();
  };
  const row = (one) =>
    el("tr", {}, el("th", { scope: "row" }, plain(one.name)), el("td", {}, plain(one.type)), el("td", {}, one.shape.map((number) => number.toLocaleString("en")).join(" × ")),
      el("td", {}, one.size_bytes === null ? "" : size(one.size_bytes)),
      el("td", { dir: "auto" }, one.handle ? el("button", { type: "button", class: "small", "aria-label": `Look into ${plain(one.name)}`, onclick: () => open(one) }, "Look inside") : plain(one.text)),
      el("td", {}, users(one.uses ?? [])));
  const head = ["Name", "Type", "Shape", "Size", "Value", "Used by"].map((one) => el("th", { scope: "col" }, one));
  return el("div", {}, scrollable(el("div", { class: "wide-table" }, el("table", { class: "data" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, variables.map(row))))), inside);
}

const APPROVALS = {
  never: "Never",
  plan: "Once per answer, about a plan in plain words",
  every: "Every time, about the code",
};

const DRAWERS = {
  limits({ rows: all, sandbox_level: level }) {
    const walls = level === "none"
      ? "Code runs without a sandbox: it can do whatever the bot can."
      : `Code runs in a sandbox (level: ${level}).`;
    openPanel("Limits", el("p", { class: "muted" }, `${walls} This is what one conversation may use:`), rows(all));
  },

  model({ models, model }, { thread, say }) {
    if (!models.length) return openPanel("Models", el("p", {}, "There is no model. Python runs all the same."));
    const choose = (event) => say({ do: "choose", thread, model: event.target.value });
    const choices = models.map((title) =>
      el("label", { class: "check" }, el("input", { type: "radio", name: "model", value: title, checked: title === model, onchange: choose }), el("span", {}, plain(title))));
    openPanel("Models", el("fieldset", {}, el("legend", { class: "muted" }, "Model for this conversation"), choices));
  },

  approval({ chosen, holds }, { say }) {
    const order = Object.keys(APPROVALS);
    const choices = order.map((one) =>
      el("label", { class: "check" }, el("input", { type: "radio", name: "approval", value: one, checked: one === chosen, onchange: () => say({ do: "approve", approval: one }) }), el("span", {}, APPROVALS[one])));
    const more = order.indexOf(holds) > order.indexOf(chosen)
      ? el("p", { class: "notice" }, `The operator requires a stricter setting: ${APPROVALS[holds].toLowerCase()}`) : null;
    openPanel("Approval", el("fieldset", {}, el("legend", { class: "muted" }, "Ask me before code runs"), choices), ...[more].filter(Boolean));
  },

  variables({ rows: all, lost_cells: cells, variables, problem }, { runAgain, say }) {
    const again = () => (closePanel(), runAgain());
    const more = cells ? [el("button", { type: "button", class: "quiet", onclick: again }, `Rebuild lost variables: run ${count(cells, "cell", "cells")}`)] : [];
    const told = problem ? [el("p", { class: "notice" }, problem)] : variables.length ? [listed(variables, say)] : [];
    openPanel("Variables", ...told, rows(all.map(([name, ...rest]) => [name, ...rest.map(inLocalTime)])), ...more);
  },

  network({ rows: all }) {
    openPanel("Network", el("p", { class: "muted" }, "What code may reach outside:"), rows(all));
  },

  tools({ rows: all }) {
    openPanel("Tools", el("p", { class: "muted" }, "What code may call of other systems:"), rows(all));
  },

  connect({ text }) {
    openPanel("Log in", el("p", {}, linked(text)));
  },

  disconnect({ text }) {
    openPanel("Log out", el("p", {}, text));
  },

  usage({ rows: all }) {
    openPanel("Usage", rows(all));
  },

  help({ rows: all }) {
    const keys = [
      ["Enter", "Send; in Python mode a new line"], ["Ctrl or ⌘ + Enter", "Send, or run"],
      ["Shift + Enter", "A new line"], ["Esc, twice", "Stop what runs; variables are kept"],
      ["Tab, Shift + Tab", "In Python mode: indent and dedent; after Esc they leave the editor"],
    ];
    openPanel("Help", el("h3", {}, "Commands"), rows(all.map(([name, what]) => [el("code", {}, name), what])),
      el("h3", {}, "Keys"), rows(keys.map(([name, what]) => [el("kbd", {}, name), what])));
  },
};
