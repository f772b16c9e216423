// Forms for questions of code or of the bot to a person, in the middle of a turn.

import { el, makeScrollable, loadStyles } from "./dom.js";
import { highlightPython } from "./python_highlighting.js";
import { questionWords } from "./later_words.js";
import { buttonWords } from "./words.js";

// A form that moves under the mouse might be answered by mistake.
await loadStyles("/forms.css");

const CHOICE_LABELS = { session: questionWords.forSession };

export function questionForm({ text: prompt, is_password: isSecret }, answer) {
  const field = el("input", { type: isSecret ? "password" : "text", "aria-label": prompt || questionWords.inputForCode, autocomplete: "off", dir: "auto", maxlength: 60000 });
  const button = el("button", { type: "submit", class: "small strong" }, questionWords.enter);
  const form = el("form", { class: "question", onsubmit: send }, el("label", { dir: "auto" }, el("span", { class: "prompt" }, prompt || questionWords.input), field), button);
  function send(event) {
    event.preventDefault();
    answer(field.value);
    button.disabled = true;
  }
  form.settle = (answerText) => {
    // It may have been answered in another tab.
    const shownAnswer = isSecret ? "•".repeat(Math.min(field.value.length, 12)) : (answerText ?? "");
    form.replaceWith(el("pre", { class: "printed answered", dir: "auto" }, `${prompt}${shownAnswer}`));
  };
  return form;
}

/** Ask a question of the model, which is answered by one of its choices or by other words. */
export function modelQuestionForm({ text: question, choices }, answer) {
  const field = el("input", { type: "text", "aria-label": questionWords.otherAnswer, placeholder: choices.length ? questionWords.otherAnswer : "", autocomplete: "off", dir: "auto", maxlength: 60000 });
  const choiceButtons = choices.map((choice) => el("button", { type: "button", class: "small", dir: "auto", onclick: () => answer(choice) }, choice));
  const form = el("form", { class: "approval", onsubmit: send, "aria-label": question },
    el("p", { dir: "auto" }, question), choiceButtons.length ? el("div", { class: "row" }, ...choiceButtons) : null,
    el("div", { class: "row" }, field, el("button", { type: "submit", class: "small strong" }, questionWords.enter)));
  function send(event) {
    event.preventDefault();
    if (field.value.trim()) answer(field.value);
  }
  form.settle = (_, outcome) => (outcome ? form.replaceWith(el("p", { class: "notice", dir: "auto" }, outcome)) : form.remove());
  return form;
}

/** Ask for approval. If the code belongs to a plan, the plan is to be approved, so the code is folded. */
export function approvalForm({ text: code, revealed, warning, subject, title, facts, approve, edit: editLabel, decline: declineLabel, choices, can_edit: canEdit }, answer) {
  const isPlan = subject === "plan";
  const codeElement = makeScrollable(el("pre", {}, subject === "note" ? revealed : el("code", { dir: "ltr" }, highlightPython(revealed))));
  const codeDetails = isPlan && !warning ? el("details", {}, el("summary", {}, questionWords.firstCode), codeElement) : codeElement;
  const field = el("textarea", { "aria-label": subject === "note" ? title : questionWords.codeToRun, rows: Math.min(code.split("\n").length + 1, 24), spellcheck: "false", hidden: true });
  const edit = el("button", { type: "button", class: "small", onclick: showEditor }, editLabel ?? buttonWords.edit);
  const choiceButtons = (choices ?? []).map((choice) => el("button", { type: "button", class: "small", onclick: () => answer(choice) }, CHOICE_LABELS[choice] ?? choice));
  const form = el("form", { class: "approval", onsubmit: approveCode, "aria-label": title },
    el("p", {}, title), warning ? el("p", { class: "notice bad" }, warning) : null, codeDetails, field,
    ...(facts ?? "").split("\n").filter(Boolean).map((fact) => el("p", { class: "muted" }, fact)),
    el("div", { class: "row" }, el("button", { type: "submit", class: "small strong" }, approve), ...choiceButtons, canEdit ? edit : null,
      el("button", { type: "button", class: "small", onclick: () => answer(null) }, declineLabel ?? questionWords.decline)));
  function showEditor() {
    field.value = code;
    field.hidden = false;
    codeDetails.hidden = edit.hidden = true;
    field.focus();
  }
  function approveCode(event) {
    event.preventDefault();
    // A text field changes line ends, so code that was not edited is sent as it came.
    answer(field.hidden ? code : field.value);
  }
  form.settle = (_, outcome) => (outcome ? form.replaceWith(el("p", { class: "notice" }, outcome)) : form.remove());
  return form;
}
