// Other versions of a question and its answer: a form to write one, and links between them.

import { el, loadStyles } from "./dom.js";
import { branchWords } from "./later_words.js";
import { buttonWords } from "./words.js";

await loadStyles("/forms.css");

/** Let a person edit the question of a turn in place. */
export function editQuestion(turn) {
  if (turn.requestElement.hidden) return;
  const close = () => {
    form.remove();
    turn.requestElement.hidden = false;
    turn.editButton.focus();
  };
  const form = editForm(turn.head, { send: (text) => turn.context.branch(turn, text), close });
  turn.requestElement.hidden = true;
  turn.requestElement.after(form);
  form.firstChild.focus();
}

/** Return a form that edits a question; sending it begins a new branch. */
function editForm({ request, is_code: isCode }, { send, close }) {
  const field = el("textarea", { "aria-label": isCode ? branchWords.code : branchWords.question, dir: isCode ? "ltr" : "auto", spellcheck: String(!isCode), rows: Math.min(request.split("\n").length + 1, 20) });
  field.value = request;
  const form = el("form", { class: `edit-asked ${isCode ? "is-code" : ""}`, onsubmit: submit, onkeydown: onKey }, field,
    el("div", { class: "row end" }, el("button", { type: "button", class: "quiet", onclick: close }, buttonWords.cancel), el("button", { class: "strong" }, isCode ? buttonWords.run : buttonWords.send)));
  function submit(event) {
    event.preventDefault();
    if (!field.value.trim()) return;
    send(field.value);
    close();
  }
  function onKey(event) {
    if (event.isComposing) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey || (event.target === field && !isCode && !event.shiftKey))) submit(event);
  }
  return form;
}

/** Return the number of this version, with links to the versions before and after it. */
export function branchLinks({ position, threads }) {
  const link = (index, label, text) =>
    el("a", { href: threads[index] && `#${threads[index]}`, class: "icon", role: "link", "aria-label": label, "aria-disabled": threads[index] ? null : "true" }, text);
  return el("nav", { class: "versions", "aria-label": branchWords.branches },
    link(position - 1, branchWords.earlierBranch, "‹"), el("span", {}, `${position + 1} / ${threads.length}`), link(position + 1, branchWords.laterBranch, "›"));
}
