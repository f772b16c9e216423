// What is shown over a conversation: limits, network, tools, models, usage, help.

import { el, linked, plain } from "./dom.js";
import { openPanel } from "./dialogs.js";

export function showPanel(shown, actions) {
  DRAWERS[shown.panel]?.(shown, actions);
}

export function rows(pairs) {
  return el("table", { class: "rows" }, el("tbody", {}, pairs.map(([name, ...rest]) => el("tr", {}, el("th", { scope: "row" }, name), rest.map((one) => el("td", {}, withCode(one)))))));
}

/** Words in which names stand between backticks, if they are words. */
function withCode(words) {
  return typeof words === "string" ? words.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part)) : words;
}

/** Moments as the server's `command_panels` writes them, in the time zone of the reader. */
export function inLocalTime(text) {
  return text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, (moment) => new Date(moment).toLocaleString([], { dateStyle: "long", timeStyle: "short" }));
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

  network({ rows: all }) {
    openPanel("Network", el("p", { class: "muted" }, "Hosts and data your code can reach:"), rows(all));
  },

  tools({ rows: all }) {
    openPanel("Tools", el("p", { class: "muted" }, "Tools your code can call:"), rows(all));
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
      ["Shift + Enter", "A new line"], ["Esc, twice", "Stop the code; variables are kept"],
      ["Tab, Shift + Tab", "In Python mode: indent and dedent; after Esc they leave the editor"],
    ];
    openPanel("Help", el("h3", {}, "Commands"), rows(all.map(([name, what]) => [el("code", {}, name), what])),
      el("h3", {}, "Keys"), rows(keys.map(([name, what]) => [el("kbd", {}, name), what])));
  },
};
