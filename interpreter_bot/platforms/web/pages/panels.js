// What is shown over a conversation: limits, network, tools, models, usage, help.

import { el, linked, plain } from "./dom.js";
import { openPanel } from "./dialogs.js";
import { modelWords, panelWords } from "./later_words.js";
import { pythonWords } from "./words.js";

export function showPanel(shown, actions) {
  (FORMS[shown.panel] ?? drawResult)(shown, actions);
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

/** What a command said or listed. */
function drawResult({ panel, rows: all, text, sandbox_level: level }) {
  const { title, about } = panelWords.results[panel];
  const python = level === "none" ? pythonWords.unsandboxed : pythonWords.sandboxed(level);
  const body = all ? rows(all) : el("p", {}, linked(text));
  openPanel(title, ...(about ? [el("p", { class: "muted" }, about(python))] : []), body);
}

const FORMS = {
  async model({ models, model }, { thread, say, canChooseModel }) {
    const form = canChooseModel ? [(await import("./model_form.js")).modelForm()] : [];
    if (!models.length) return openPanel(panelWords.models, el("p", {}, modelWords.none), ...form);
    const choose = (event) => say({ do: "choose", thread, model: event.target.value });
    const choices = models.map((title) =>
      el("label", { class: "check" }, el("input", { type: "radio", name: "model", value: title, checked: title === model, onchange: choose }), el("span", {}, plain(title))));
    openPanel(panelWords.models, el("fieldset", {}, el("legend", { class: "muted" }, modelWords.ofConversation), choices), ...form);
  },

  approval({ chosen, holds }, { say }) {
    const order = Object.keys(panelWords.approvals);
    const choices = order.map((one) =>
      el("label", { class: "check" }, el("input", { type: "radio", name: "approval", value: one, checked: one === chosen, onchange: () => say({ do: "approve", approval: one }) }), el("span", {}, panelWords.approvals[one])));
    const more = order.indexOf(holds) > order.indexOf(chosen)
      ? el("p", { class: "notice" }, panelWords.stricter(panelWords.approvals[holds])) : null;
    openPanel(panelWords.approval, el("fieldset", {}, el("legend", { class: "muted" }, panelWords.approvalWhen), choices), ...[more].filter(Boolean));
  },

  help({ rows: all }) {
    openPanel(panelWords.help, el("h3", {}, panelWords.commands), rows(all.map(([name, what]) => [el("code", {}, name), what])),
      el("h3", {}, panelWords.keys), rows(panelWords.keyTable.map(([name, what]) => [el("kbd", {}, name), what])));
  },
};
