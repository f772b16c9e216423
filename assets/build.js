// Builds what of the page is made of packages, as package-lock.json pins them: `make assets`.
// What is built says of which sources, so that a test finds out where they have changed since.

import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";

const directory = process.argv[2] ?? "../interpreter_bot/platforms/web/pages";
const ASSETS = {
  // All packages of CodeMirror have the same licence.
  "codemirror.js": ["CodeMirror 6 with its Python, and what they need", ["@codemirror/state"]],
  "markdown_it.js": ["markdown-it, and what it needs", ["markdown-it", "linkify-it", "mdurl", "uc.micro", "entities", "punycode.js"]],
};

const digestOf = (...contents) => contents.reduce((hash, one) => hash.update(one), createHash("sha256")).digest("hex");

for (const [name, [title, packages]] of Object.entries(ASSETS)) {
  const { outputFiles } = await build({
    entryPoints: [name],
    bundle: true,
    format: "esm",
    minify: true,
    target: "es2022",
    legalComments: "none",
    write: false,
  });
  const body = outputFiles[0].contents;
  const sources = ["build.js", name, "package-lock.json"].map((source) => readFileSync(source));
  const licences = packages.map((name) => readFileSync(`node_modules/${name}/${readdirSync(`node_modules/${name}`).find((file) => file.startsWith("LICENSE"))}`, "utf8").trim());
  const head = `/*
${title}: packages of npm, by \`make assets\`.
Sources: ${digestOf(...sources)}
Result: ${digestOf(body)}

${licences.join("\n\n")}
*/
`;
  writeFileSync(`${directory}/${name}`, Buffer.concat([Buffer.from(head), body]));
}
