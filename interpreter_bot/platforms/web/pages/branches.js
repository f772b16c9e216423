// Other versions of a question and its answer: writing one, and going from one to the next.

import { el, styled } from "./dom.js";
import { branchWords } from "./later_words.js";
import { buttonWords } from "./words.js";

await styled("/forms.css");

/** Let the question of a turn be written anew where it stands. */
export function edit(turn) {
  if (turn.asked.hidden) return;
  const close = () => {
    form.remove();
    turn.asked.hidden = false;
    turn.editor.focus();
  };
  const form = editForm(turn.head, { send: (text) => turn.around.branch(turn, text), close });
  turn.asked.hidden = true;
  turn.asked.after(form);
  form.firstChild.focus();
}

/** A form with a question in it; what is sent goes on in a branch of its own. */
function editForm({ request, is_code: isCode }, { send, close }) {
  const field = el("textarea", { "aria-label": isCode ? branchWords.code : branchWords.question, dir: isCode ? "ltr" : "auto", spellcheck: String(!isCode), rows: Math.min(request.split("\n").length + 1, 20) });
  field.value = request;
  const form = el("form", { class: `edit-asked ${isCode ? "is-code" : ""}`, onsubmit: submit, onkeydown: key }, field,
    el("div", { class: "row end" }, el("button", { type: "button", class: "quiet", onclick: close }, buttonWords.cancel), el("button", { class: "strong" }, isCode ? buttonWords.run : buttonWords.send)));
  function submit(event) {
    event.preventDefault();
    if (!field.value.trim()) return;
    send(field.value);
    close();
  }
  function key(event) {
    if (event.isComposing) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey || (event.target === field && !isCode && !event.shiftKey))) submit(event);
  }
  return form;
}

/** Which of several versions this is, and the way to those beside it. */
export function versionsOf({ at, threads }) {
  const beside = (to, words, sign) =>
    el("a", { href: threads[to] && `#${threads[to]}`, class: "icon", role: "link", "aria-label": words, "aria-disabled": threads[to] ? null : "true" }, sign);
  return el("nav", { class: "versions", "aria-label": branchWords.branches },
    beside(at - 1, branchWords.earlierBranch, "‹"), el("span", {}, `${at + 1} / ${threads.length}`), beside(at + 1, branchWords.laterBranch, "›"));
}
