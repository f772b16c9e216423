// The parser of Markdown: see markdown.js among the pages, which alone uses it.

export { default } from "markdown-it";
