// What is shown over a conversation: limits, network, tools, models, usage, help.

import { $, el, linked, plain } from "./dom.js";
import { openPanel } from "./dialogs.js";
import { modelWords, panelWords, placeWords } from "./later_words.js";
import { buttonWords, pythonWords } from "./words.js";

export function showPanel(shown, actions) {
  if (shown.problem) return complain(shown.problem);
  const draw = shown.form ? drawForm : FORMS[shown.panel];
  (draw ?? drawResult)(shown, actions);
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

/** Say why a form was refused, above what was entered. */
function complain(problem) {
  $("panel-body").querySelector(".notice")?.remove();
  $("panel-body").prepend(el("p", { class: "notice bad", role: "alert" }, problem));
}

/** The form of a command: a field with choices is a selection, all others are texts. */
function drawForm({ panel, rest, form }, { thread, say }) {
  const fields = form.fields.map(({ name, label, value, choices, max_characters: most }) => el("label", {}, el("span", {}, label), choices.length
    ? el("select", { name }, choices.map((one) => el("option", { value: one, selected: one === value }, plain(one))))
    : el("textarea", { name, rows: 5, maxlength: most, dir: "auto" }, value)));
  const node = el("form", { class: "command-form", onsubmit: send }, fields, el("div", { class: "row end" }, el("button", { type: "submit", class: "strong" }, placeWords.save)));
  function send(event) {
    event.preventDefault();
    say({ do: "submit", thread, panel, rest, entered: Object.fromEntries(new FormData(node)) });
  }
  openPanel(form.title, node);
}

const FORMS = {
  place({ rows: all, text }, { thread, say }) {
    const show = (words, rest) => el("button", { class: "small", onclick: () => say({ do: "show", thread, panel: "place", rest }) }, words);
    openPanel(placeWords.place, all ? rows(all) : el("p", {}, text), el("div", { class: "row end" }, all ? show(buttonWords.edit, "edit") : show(placeWords.place, "")));
  },

  memory({ rows: all, rest, text }, { thread, say }) {
    const show = (rest) => say({ do: "show", thread, panel: "memory", rest });
    const act = (words, rest) => el("button", { class: "small", onclick: () => show(rest) }, words);
    const drawn = (all ?? []).map(([number, words]) => el("tr", {}, el("td", { dir: "auto" }, inLocalTime(words)),
      el("td", { class: "row end" }, /^\d+$/.test(number) ? [act(buttonWords.edit, `edit ${number}`), act(placeWords.forget, `forget ${number}`)] : [])));
    const body = all ? el("table", { class: "rows" }, el("tbody", {}, drawn)) : el("p", {}, text);
    openPanel(placeWords.memory, body, el("div", { class: "row end" }, ...(rest ? [act(placeWords.allNotes, "")] : []), act(placeWords.addNote, "add")));
  },

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
