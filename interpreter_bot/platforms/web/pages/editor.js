// Where Python is written. Fetched with CodeMirror when somebody first writes code. It lives in a
// shadow tree, for in a document of its own CodeMirror would need inline styles.

import { el } from "./dom.js";
import { completions } from "./kernel_lookups.js";
import {
  acceptCompletion, autocompletion, bracketMatching, closeBrackets, closeBracketsKeymap, closeCompletion, completionStatus,
  defaultKeymap, EditorState, EditorView, globalCompletion, highlightSpecialChars, HighlightStyle, history, historyKeymap,
  indentLess, indentMore, indentOnInput, indentUnit, keymap, localCompletionSource, placeholder, Prec, python, showTooltip,
  StateEffect, StateField, syntaxHighlighting, tags,
} from "./codemirror.js";
import { composerWords } from "./words.js";

const INDENT = 4;
const MAX_TOLD = 4000;
const MAX_OPTIONS = 200;
const ASKED_AFTER = /[\w.,(["'/]$/;

const COLOURS = HighlightStyle.define(
  Object.entries({
    keyword: [tags.keyword, tags.bool, tags.null, tags.self],
    string: [tags.string, tags.special(tags.string), tags.escape],
    number: [tags.number],
    comment: [tags.comment],
    call: [tags.function(tags.variableName), tags.function(tags.propertyName), tags.definition(tags.className), tags.meta],
    builtin: [tags.standard(tags.name)],
  }).map(([name, tag]) => ({ tag, color: `var(--${name})`, fontStyle: name === "comment" ? "italic" : null })),
);

const LOOK = EditorView.theme({
  "&": { color: "var(--ink)", background: "none", maxHeight: "40dvh", minHeight: "4.2rem" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { font: ".875rem/1.6 var(--mono)", overflow: "auto", scrollbarWidth: "thin" },
  ".cm-content": { padding: "0", minHeight: "4.2rem", caretColor: "var(--ink)" },
  ".cm-line": { padding: "0" },
  ".cm-placeholder": { color: "var(--soft)" },
  "&.cm-focused .cm-matchingBracket": { background: "var(--accent-wash)", outline: "1px solid var(--accent)" },
  "&.cm-focused .cm-nonmatchingBracket": { background: "var(--bad-wash)" },
  ".cm-tooltip": { background: "var(--raised)", border: "1px solid var(--line-strong)", borderRadius: "8px", overflow: "hidden", boxShadow: "var(--shadow)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { font: ".8438rem/1.5 var(--mono)", maxHeight: "14rem" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: ".1rem .6rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--accent)", color: "var(--accent-ink)" },
  ".cm-signature": { padding: ".3rem .6rem", maxWidth: "min(40rem, 90vw)", font: ".8125rem/1.5 var(--mono)", whiteSpace: "pre-wrap", overflowWrap: "anywhere" },
  ".cm-signature p": { margin: ".2rem 0 0", color: "var(--soft)" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
  ".cm-completionDetail": { color: "inherit", opacity: ".75", fontStyle: "normal" },
});

const signed = StateEffect.define();
const signature = StateField.define({
  create: () => null,
  update(shown, transaction) {
    for (const effect of transaction.effects) if (effect.is(signed)) return effect.value;
    const isOver = transaction.newDoc.length === 0 || (transaction.selection && !transaction.docChanged);
    return isOver || !shown ? null : { ...shown, pos: Math.min(transaction.changes.mapPos(shown.pos), transaction.newDoc.length) };
  },
  provide: (field) => showTooltip.from(field),
});

export class Editor {
  /**
   * @param {HTMLElement} place
   * @param {{changed(text: string): void, submit(): void, recalled(): string[], ask(message: object): boolean}} user
   *   `recalled` gives what was written before, the latest first; `ask` asks something of Python.
   */
  constructor(place, user) {
    this.user = user;
    const root = place.attachShadow({ mode: "open", delegatesFocus: true });
    this.extensions = this.extended();
    this.view = new EditorView({ root, parent: root });
    this.begin("");
  }

  extended() {
    const bound = (key, run, shift) => ({ key, run, shift });
    return [
      Prec.highest(keymap.of([
        bound("Mod-Enter", () => (this.user.submit(), true)),
        bound("Escape", (view) => this.leave(view)),
        bound("Tab", (view) => acceptCompletion(view) || indent(view), indentLess),
        bound("ArrowUp", (view) => this.recall(view, 1)),
        bound("ArrowDown", (view) => this.recall(view, -1)),
      ])),
      EditorView.domEventHandlers({
        // After Escape, Tab goes on to the next control, for those who have no mouse.
        keydown: (event, view) => void (["Escape", "Tab", "Shift"].includes(event.key) || view.setTabFocusMode(false)),
        // Files are attached, wherever they are dropped.
        drop: (event) => event.dataTransfer.files.length > 0,
        beforeinput: replaced,
      }),
      EditorView.updateListener.of((update) => update.docChanged && this.user.changed(this.text)),
      // Scrolled sideways, the lines before a long one would look empty.
      EditorView.lineWrapping,
      EditorView.contentAttributes.of({ "aria-label": composerWords.codePlaceholder, autocapitalize: "off" }),
      keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap]),
      python(),
      indentUnit.of(" ".repeat(INDENT)),
      EditorState.tabSize.of(INDENT),
      history(), indentOnInput(), bracketMatching(), closeBrackets(), highlightSpecialChars(),
      autocompletion({ icons: false, filterStrict: true, activateOnTypingDelay: 150, override: [(context) => this.completed(context)] }),
      signature,
      placeholder(composerWords.codePlaceholder),
      syntaxHighlighting(COLOURS),
      LOOK,
    ];
  }

  get text() {
    return this.view.state.doc.toString();
  }

  /** Begin anew with a text: what was there before cannot come back. */
  begin(text, anchor = text.length, head = anchor) {
    this.view.setState(EditorState.create({ doc: text, selection: { anchor, head }, extensions: this.extensions }));
    this.past = null;
  }

  /** Replace all of the text, as an edit that can be undone. */
  put(text) {
    this.past = null;
    const { length } = this.view.state.doc;
    this.view.dispatch({ changes: { from: 0, to: length, insert: text } });
    this.view.dispatch({ selection: { anchor: this.view.state.doc.length }, scrollIntoView: true });
  }

  focus() {
    this.view.focus();
  }

  /** Escape closes what is open; then it lets Tab leave. */
  leave(view) {
    const isOpen = completionStatus(view.state) === "active" || view.state.field(signature) !== null;
    closeCompletion(view);
    if (isOpen) view.dispatch({ effects: signed.of(null) });
    view.setTabFocusMode(!isOpen);
    return isOpen;
  }

  /** Say how the code may go on: what Python knows, then what stands in it and in the language. */
  async completed(context) {
    const { pos, state, explicit: isAsked } = context;
    const before = state.sliceDoc(Math.max(0, pos - MAX_TOLD), pos);
    const isWorthIt = isAsked || ASKED_AFTER.test(before);
    const found = isWorthIt ? await completions(this.user.ask, before) : {};
    if (context.aborted) return null;
    // Another conversation's code may stand here by now.
    if (this.view.state.sliceDoc(Math.max(0, pos - MAX_TOLD), pos) === before) this.sign(found.signature ?? null, pos);
    const from = pos - (found.typed ?? /\w*$/.exec(before)[0].length);
    const options = (found.options ?? []).map(([label, type, detail]) => ({ label, type, detail, boost: detail === "column" || label.endsWith("=") ? 2 : 1 }));
    const known = new Set(options.map(({ label }) => label));
    for (const source of [localCompletionSource, globalCompletion]) {
      const here = await source(context);
      if (here?.from === from) options.push(...here.options.filter(({ label }) => !known.has(label)));
    }
    const isWhole = (found.options ?? []).length < MAX_OPTIONS;
    return options.length ? { from, options, validFor: isWhole ? /^\w*$/ : undefined } : null;
  }

  /** Show what the function takes whose arguments are being written. */
  sign(told, pos) {
    const shown = this.view.state.field(signature);
    if (!told && !shown) return;
    const [words] = (told?.doc ?? "").split("\n\n");
    const create = () => ({ dom: el("div", { class: "cm-signature", role: "status" }, el("b", {}, told.label), words ? el("p", {}, words) : null) });
    this.view.dispatch({ effects: signed.of(told && { pos: shown?.pos ?? pos, above: true, create }) });
  }

  /** In the first line go back to what was run before, and forward again in the last. */
  recall(view, step) {
    const { state } = view;
    const { main } = state.selection;
    const edge = step > 0 ? state.doc.line(1) : state.doc.line(state.doc.lines);
    if (completionStatus(state) === "active" || !main.empty || main.head < edge.from || main.head > edge.to) return false;
    if (this.past?.texts[this.past.at] !== this.text) this.past = { texts: [this.text, ...this.user.recalled()], at: 0 };
    const { texts, at } = this.past;
    if (texts[at + step] === undefined) return false;
    const past = { texts, at: at + step };
    this.put(texts[past.at]);
    this.past = past;
    // Further back with the next stroke, however many lines there are.
    if (step > 0) view.dispatch({ selection: { anchor: 0 }, scrollIntoView: true });
    return true;
  }
}

/** Write over a selection: a browser that does so itself puts styles into the lines it joins. */
function replaced(event, view) {
  const { from, to, empty: isEmpty } = view.state.selection.main;
  if (event.inputType !== "insertText" || !event.data || isEmpty || view.composing) return false;
  const changed = () => view.state.update(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
  const handlers = view.state.facet(EditorView.inputHandler);
  if (!handlers.some((handler) => handler(view, from, to, event.data, changed))) view.dispatch(changed());
  return true;
}

function indent(view) {
  const { state } = view;
  if (!state.selection.main.empty) return indentMore(view);
  const { head } = state.selection.main;
  const spaces = INDENT - ((head - state.doc.lineAt(head).from) % INDENT);
  view.dispatch(state.replaceSelection(" ".repeat(spaces)), { userEvent: "input", scrollIntoView: true });
  return true;
}
