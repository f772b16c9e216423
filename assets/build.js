// Builds what of the page is made of packages, as package-lock.json pins them: `make assets`.
// What is built says of which sources, so that a test finds out where they have changed since.

import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

const SOURCES = ["build.js", "codemirror.js", "package-lock.json"];
const target = process.argv[2] ?? "../interpreter_bot/platforms/web/pages/codemirror.js";

const digestOf = (...contents) => contents.reduce((hash, one) => hash.update(one), createHash("sha256")).digest("hex");
const licence = readFileSync("node_modules/@codemirror/state/LICENSE", "utf8").trim();
const { outputFiles } = await build({
  entryPoints: ["codemirror.js"],
  bundle: true,
  format: "esm",
  minify: true,
  target: "es2022",
  legalComments: "none",
  write: false,
});
const body = outputFiles[0].contents;
const head = `/*
CodeMirror 6 with its Python, and what they need: packages of npm, by \`make assets\`.
Sources: ${digestOf(...SOURCES.map((name) => readFileSync(name)))}
Result: ${digestOf(body)}

${licence}
*/
`;
writeFileSync(target, Buffer.concat([Buffer.from(head), body]));
