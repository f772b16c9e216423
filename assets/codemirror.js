// What the page's editor of code is made of: see editor.js among the pages, which alone uses it.

export { acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionStatus } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap, indentLess, indentMore } from "@codemirror/commands";
export { globalCompletion, localCompletionSource, python } from "@codemirror/lang-python";
export { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
export { EditorState, Prec, StateEffect, StateField } from "@codemirror/state";
export { EditorView, highlightSpecialChars, keymap, placeholder, showTooltip } from "@codemirror/view";
export { tags } from "@lezer/highlight";
