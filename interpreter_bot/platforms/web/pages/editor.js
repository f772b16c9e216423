// The editor of Python. It is loaded with CodeMirror when somebody first writes code, and is in a
// shadow tree, because in the document itself CodeMirror would need inline styles.

import { el } from "./dom.js";
import { fetchCompletions } from "./kernel_lookups.js";
import {
  acceptCompletion, autocompletion, bracketMatching, closeBrackets, closeBracketsKeymap, closeCompletion, completionStatus,
  defaultKeymap, EditorState, EditorView, globalCompletion, highlightSpecialChars, HighlightStyle, history, historyKeymap,
  indentLess, indentMore, indentOnInput, indentUnit, keymap, localCompletionSource, placeholder, Prec, python, showTooltip,
  StateEffect, StateField, syntaxHighlighting, tags,
} from "./codemirror.js";
import { composerWords } from "./words.js";

const INDENT_SPACES = 4;
const MAX_CONTEXT_CHARACTERS = 4000;
const MAX_OPTIONS = 200;
const COMPLETES_AFTER = /[\w.,(["'/]$/;

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

const THEME = EditorView.theme({
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

const setSignature = StateEffect.define();
const signatureField = StateField.define({
  create: () => null,
  update(shown, transaction) {
    for (const effect of transaction.effects) if (effect.is(setSignature)) return effect.value;
    const isOver = transaction.newDoc.length === 0 || (transaction.selection && !transaction.docChanged);
    return isOver || !shown ? null : { ...shown, pos: Math.min(transaction.changes.mapPos(shown.pos), transaction.newDoc.length) };
  },
  provide: (field) => showTooltip.from(field),
});

export class Editor {
  constructor(element, callbacks) {
    this.callbacks = callbacks;
    const root = element.attachShadow({ mode: "open", delegatesFocus: true });
    this.extensions = this.makeExtensions();
    this.view = new EditorView({ root, parent: root });
    this.reset("");
  }

  makeExtensions() {
    const bound = (key, run, shift) => ({ key, run, shift });
    return [
      Prec.highest(keymap.of([
        bound("Mod-Enter", () => (this.callbacks.submit(), true)),
        bound("Escape", (view) => this.onEscape(view)),
        bound("Tab", (view) => acceptCompletion(view) || indentLine(view), indentLess),
        bound("ArrowUp", (view) => this.recallPast(view, 1)),
        bound("ArrowDown", (view) => this.recallPast(view, -1)),
      ])),
      EditorView.domEventHandlers({
        // After Escape, Tab goes on to the next control, for people without a mouse.
        keydown: (event, view) => void (["Escape", "Tab", "Shift"].includes(event.key) || view.setTabFocusMode(false)),
        // Files are attached, wherever they are dropped.
        drop: (event) => event.dataTransfer.files.length > 0,
        beforeinput: overwriteSelection,
      }),
      EditorView.updateListener.of((update) => update.docChanged && this.callbacks.onChange(this.text)),
      // If a long line were scrolled sideways, the short lines would look empty.
      EditorView.lineWrapping,
      EditorView.contentAttributes.of({ "aria-label": composerWords.codePlaceholder, autocapitalize: "off" }),
      keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap]),
      python(),
      indentUnit.of(" ".repeat(INDENT_SPACES)),
      EditorState.tabSize.of(INDENT_SPACES),
      history(), indentOnInput(), bracketMatching(), closeBrackets(), highlightSpecialChars(),
      autocompletion({ icons: false, filterStrict: true, activateOnTypingDelay: 150, override: [(context) => this.completeCode(context)] }),
      signatureField,
      placeholder(composerWords.codePlaceholder),
      syntaxHighlighting(COLOURS),
      THEME,
    ];
  }

  get text() {
    return this.view.state.doc.toString();
  }

  /** Start over with a text, and without earlier edits to undo. */
  reset(text, anchor = text.length, head = anchor) {
    this.view.setState(EditorState.create({ doc: text, selection: { anchor, head }, extensions: this.extensions }));
    this.recalled = null;
  }

  /** Replace all of the text, as an edit that can be undone. */
  replaceText(text) {
    this.recalled = null;
    const { length } = this.view.state.doc;
    this.view.dispatch({ changes: { from: 0, to: length, insert: text } });
    this.view.dispatch({ selection: { anchor: this.view.state.doc.length }, scrollIntoView: true });
  }

  focus() {
    this.view.focus();
  }

  /** Close open menus and hints; if there are none, let Tab leave the editor. */
  onEscape(view) {
    const isOpen = completionStatus(view.state) === "active" || view.state.field(signatureField) !== null;
    closeCompletion(view);
    if (isOpen) view.dispatch({ effects: setSignature.of(null) });
    view.setTabFocusMode(!isOpen);
    return isOpen;
  }

  /** Complete code: with what Python knows, then with names in the text and of the language. */
  async completeCode(context) {
    const { pos, state, explicit: isExplicit } = context;
    const textBefore = state.sliceDoc(Math.max(0, pos - MAX_CONTEXT_CHARACTERS), pos);
    const isNeeded = isExplicit || COMPLETES_AFTER.test(textBefore);
    const answer = isNeeded ? await fetchCompletions(this.callbacks.askPython, textBefore) : {};
    if (context.aborted) return null;
    // Another conversation's code may stand here by now.
    if (this.view.state.sliceDoc(Math.max(0, pos - MAX_CONTEXT_CHARACTERS), pos) === textBefore) this.showSignature(answer.signature ?? null, pos);
    const start = pos - (answer.typed ?? /\w*$/.exec(textBefore)[0].length);
    const options = (answer.options ?? []).map(([label, type, detail]) => ({ label, type, detail, boost: detail === "column" || label.endsWith("=") ? 2 : 1 }));
    const labels = new Set(options.map(({ label }) => label));
    for (const source of [localCompletionSource, globalCompletion]) {
      const localResult = await source(context);
      if (localResult?.from === start) options.push(...localResult.options.filter(({ label }) => !labels.has(label)));
    }
    const isWhole = (answer.options ?? []).length < MAX_OPTIONS;
    return options.length ? { from: start, options, validFor: isWhole ? /^\w*$/ : undefined } : null;
  }

  /** Show the signature of the function whose arguments are being written. */
  showSignature(call, pos) {
    const current = this.view.state.field(signatureField);
    if (!call && !current) return;
    const [firstParagraph] = (call?.doc ?? "").split("\n\n");
    const create = () => ({ dom: el("div", { class: "cm-signature", role: "status" }, el("b", {}, call.label), firstParagraph ? el("p", {}, firstParagraph) : null) });
    this.view.dispatch({ effects: setSignature.of(call && { pos: current?.pos ?? pos, above: true, create }) });
  }

  /** From the first line go back to code that was run before, from the last forward again. */
  recallPast(view, step) {
    const { state } = view;
    const { main } = state.selection;
    const edge = step > 0 ? state.doc.line(1) : state.doc.line(state.doc.lines);
    if (completionStatus(state) === "active" || !main.empty || main.head < edge.from || main.head > edge.to) return false;
    if (this.recalled?.texts[this.recalled.index] !== this.text) this.recalled = { texts: [this.text, ...this.callbacks.pastCodes()], index: 0 };
    const { texts, index } = this.recalled;
    if (texts[index + step] === undefined) return false;
    const newRecalled = { texts, index: index + step };
    this.replaceText(texts[newRecalled.index]);
    this.recalled = newRecalled;
    // Further back with the next stroke, however many lines there are.
    if (step > 0) view.dispatch({ selection: { anchor: 0 }, scrollIntoView: true });
    return true;
  }
}

/** Replace a selection: a browser would put inline styles into the lines that it joins. */
function overwriteSelection(event, view) {
  const { from, to, empty: isEmpty } = view.state.selection.main;
  if (event.inputType !== "insertText" || !event.data || isEmpty || view.composing) return false;
  const makeChange = () => view.state.update(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
  const handlers = view.state.facet(EditorView.inputHandler);
  if (!handlers.some((handler) => handler(view, from, to, event.data, makeChange))) view.dispatch(makeChange());
  return true;
}

function indentLine(view) {
  const { state } = view;
  if (!state.selection.main.empty) return indentMore(view);
  const { head } = state.selection.main;
  const spaces = INDENT_SPACES - ((head - state.doc.lineAt(head).from) % INDENT_SPACES);
  view.dispatch(state.replaceSelection(" ".repeat(spaces)), { userEvent: "input", scrollIntoView: true });
  return true;
}
