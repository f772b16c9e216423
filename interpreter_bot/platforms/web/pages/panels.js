// Panels over a conversation: limits, network, tools, models, usage, help.

import { $, el, linkify, cleanText } from "./dom.js";
import { openPanel } from "./dialogs.js";
import { modelWords, panelWords, placeWords } from "./later_words.js";
import { buttonWords, pythonWords } from "./words.js";

export function showPanel(message, actions) {
  if (message.problem) return showProblem(message.problem);
  const draw = message.form ? drawForm : PANELS[message.panel];
  (draw ?? drawResult)(message, actions);
}

export function factTable(pairs) {
  return el("table", { class: "rows" }, el("tbody", {}, pairs.map(([name, ...values]) => el("tr", {}, el("th", { scope: "row" }, name), values.map((value) => el("td", {}, renderBackticks(value)))))));
}

/** Draw text whose names stand between backticks; anything else is returned as it is. */
function renderBackticks(words) {
  return typeof words === "string" ? cleanLine(words).split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part)) : words;
}

/** Return a text of people as one line, in which no character hides or reorders the bot's words. */
function cleanLine(text) {
  return cleanText(text.replace(/\s+/g, " "));
}

/** Convert moments, as the server's `command_panels` writes them, to the time zone of the reader. */
export function inLocalTime(text) {
  return text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, (moment) => new Date(moment).toLocaleString([], { dateStyle: "long", timeStyle: "short" }));
}

/** Draw the result of a command: a sentence or a list. */
function drawResult({ panel, rows: facts, text, sandbox_level: level }) {
  const { title, about } = panelWords.results[panel];
  const python = level === "none" ? pythonWords.unsandboxed : pythonWords.sandboxed(level);
  const body = facts ? factTable(facts) : el("p", {}, linkify(text));
  openPanel(title, ...(about ? [el("p", { class: "muted" }, about(python))] : []), body);
}

/** Say why a form was refused, above what was entered. */
function showProblem(problem) {
  $("panel-body").querySelector(".notice")?.remove();
  $("panel-body").prepend(el("p", { class: "notice bad", role: "alert" }, problem));
}

/** Draw the form of a command: a field with choices is a selection, all others are texts. */
function drawForm({ panel, argument, form }, { thread, sendAction }) {
  const fields = form.fields.map(({ name, label, value, choices, max_characters: maxCharacters }) => el("label", {}, el("span", {}, label), choices.length
    ? el("select", { name }, choices.map((choice) => el("option", { value: choice, selected: choice === value }, cleanText(choice))))
    : el("textarea", { name, rows: 5, maxlength: maxCharacters, dir: "auto" }, value)));
  const formElement = el("form", { class: "command-form", onsubmit: send }, fields, el("div", { class: "row end" }, el("button", { type: "submit", class: "strong" }, placeWords.save)));
  function send(event) {
    event.preventDefault();
    sendAction({ do: "submit", thread, panel, argument, fields: Object.fromEntries(new FormData(formElement)) });
  }
  openPanel(form.title, formElement);
}

const PANELS = {
  place({ rows: facts, text }, { thread, sendAction }) {
    const showButton = (label, argument) => el("button", { class: "small", onclick: () => sendAction({ do: "show", thread, panel: "place", argument }) }, label);
    openPanel(placeWords.place, facts ? factTable(facts) : el("p", {}, text), el("div", { class: "row end" }, facts ? showButton(buttonWords.edit, "edit") : showButton(placeWords.place, "")));
  },

  memory({ rows: facts, argument, text }, { thread, sendAction }) {
    const show = (argument) => sendAction({ do: "show", thread, panel: "memory", argument });
    const actionButton = (label, argument) => el("button", { class: "small", onclick: () => show(argument) }, label);
    const tableRows = (facts ?? []).map(([noteId, label]) => el("tr", {}, el("td", { dir: "auto" }, inLocalTime(cleanLine(label))),
      el("td", { class: "row end" }, /^\d+$/.test(noteId) ? [actionButton(buttonWords.edit, `edit ${noteId}`), actionButton(placeWords.forget, `forget ${noteId}`)] : [])));
    const body = facts ? el("table", { class: "rows" }, el("tbody", {}, tableRows)) : el("p", {}, text);
    openPanel(placeWords.memory, body, el("div", { class: "row end" }, ...(argument ? [actionButton(placeWords.allNotes, "")] : []), actionButton(placeWords.addNote, "add")));
  },

  async model({ models, model }, { thread, sendAction, canChooseModel }) {
    const form = canChooseModel ? [(await import("./model_form.js")).modelForm()] : [];
    if (!models.length) return openPanel(panelWords.models, el("p", {}, modelWords.none), ...form);
    const choose = (event) => sendAction({ do: "choose_model", thread, model: event.target.value });
    const choices = models.map((title) =>
      el("label", { class: "check" }, el("input", { type: "radio", name: "model", value: title, checked: title === model, onchange: choose }), el("span", {}, cleanText(title))));
    openPanel(panelWords.models, el("fieldset", {}, el("legend", { class: "muted" }, modelWords.ofConversation), choices), ...form);
  },

  approval({ chosen: selected, effective }, { sendAction }) {
    const policies = Object.keys(panelWords.approvals);
    const choices = policies.map((policy) =>
      el("label", { class: "check" }, el("input", { type: "radio", name: "approval", value: policy, checked: policy === selected, onchange: () => sendAction({ do: "set_approval", approval: policy }) }), el("span", {}, panelWords.approvals[policy])));
    const stricterNotice = policies.indexOf(effective) > policies.indexOf(selected)
      ? el("p", { class: "notice" }, panelWords.stricter(panelWords.approvals[effective])) : null;
    openPanel(panelWords.approval, el("fieldset", {}, el("legend", { class: "muted" }, panelWords.approvalWhen), choices), ...[stricterNotice].filter(Boolean));
  },

  help({ rows: commands }) {
    openPanel(panelWords.help, el("h3", {}, panelWords.commands), factTable(commands.map(([name, help]) => [el("code", {}, name), help])),
      el("h3", {}, panelWords.keys), factTable(panelWords.keyTable.map(([name, help]) => [el("kbd", {}, name), help])));
  },
};
