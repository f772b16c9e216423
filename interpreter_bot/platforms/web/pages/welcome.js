// The first screen of an empty conversation.

import { el, icon, linkify } from "./dom.js";
import { welcomeWords } from "./words.js";

export function welcome({ models, model_notice: notice, can_choose_model: canChoose, sandbox_level: level }, { writeDraft, pickFiles, addFiles }) {
  const hasModel = models.length > 0;
  const examples = el("div", { class: "examples" });
  const addExamples = (chosenExamples) => examples.append(...chosenExamples.map(([title, text]) =>
    el("button", { type: "button", class: "example", onclick: () => writeDraft(text, !hasModel) },
      el("strong", {}, title), hasModel ? el("span", {}, text) : el("code", {}, text.split("\n").filter((line) => line && !line.startsWith("import"))[0]))));
  if (hasModel) addExamples(welcomeWords.questions);
  else import("./later_words.js").then(({ sampleWords }) => addExamples(sampleWords.snippets));
  const trySample = async () => {
    const [{ sampleTable }, { sampleWords }] = await Promise.all([import("./sample_table.js"), import("./later_words.js")]);
    addFiles([new File([sampleTable()], "sales.csv", { type: "text/csv" })]);
    writeDraft(hasModel ? sampleWords.question : sampleWords.code, !hasModel);
  };
  return [
    el("h2", {}, hasModel ? welcomeWords.ask : welcomeWords.run),
    el("p", { class: "lead" }, hasModel ? welcomeWords.askHow : welcomeWords.runHow),
    ...aboutModel(),
    el("button", { type: "button", class: "drop-zone", onclick: pickFiles }, icon("clip"),
      el("span", {}, el("strong", {}, welcomeWords.drop), welcomeWords.dropWhat)),
    el("p", { class: "sample" }, welcomeWords.noData, el("button", { type: "button", class: "small", onclick: trySample }, welcomeWords.takeSample)),
    examples,
    level === "container" ? el("p", { class: "muted sandbox-level" }, welcomeWords.ordinaryContainer) : null,
  ].filter(Boolean);

  /** Show the notice about the model, and the form to choose another one. */
  function aboutModel() {
    if (!notice) return [];
    const words = el("p", { class: "model-notice" }, linkify(notice));
    if (!canChoose) return [words];
    const form = el("div", {});
    import("./model_form.js").then(({ modelForm }) => form.append(modelForm()));
    if (!hasModel) return [form, words];
    return [el("details", { class: "model-notice" }, el("summary", {}, `${welcomeWords.demoAnswers} `, el("strong", {}, welcomeWords.betterModel)), form, el("p", {}, linkify(notice)))];
  }
}
