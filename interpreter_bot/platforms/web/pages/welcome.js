// The first screen of a conversation in which nothing was said yet.

import { el, icon } from "./dom.js";
import { modelForm } from "./model_form.js";

const PROMPTS = [
  ["Explore a table", "Make up a table of 500 sales with date, region and amount, and plot the revenue by month and region."],
  ["Solve and draw", "Find the roots of x³ − 6x² + 9x − 2 exactly, and draw the curve with its roots marked."],
  ["Run a simulation", "How many people must be in a room for two to share a birthday? Simulate it, and compare with the formula."],
];
const SNIPPETS = [
  ["Draw a curve", "import numpy as np\nimport matplotlib.pyplot as plt\n\nx = np.linspace(0, 20, 400)\nplt.plot(x, np.exp(-x / 8) * np.sin(2 * x))\nplt.title(\"A damped oscillation\")\nplt.show()"],
  ["Make a table", "import numpy as np\nimport pandas as pd\n\nrng = np.random.default_rng(1)\ndf = pd.DataFrame({\"region\": rng.choice(list(\"NSEW\"), 500), \"amount\": rng.gamma(2, 50, 500).round(2)})\ndf.groupby(\"region\").describe()"],
  ["Look around", "import os, sys\n\nprint(sys.version)\nprint(os.listdir(\"/mnt/data\"))"],
];

const OF_CONTAINERS = "Sandbox level: container. Sessions share this container's process list, and memory is watched and not bounded. interpreter-bot doctor says how to get a stronger level.";

export function welcome({ models, model_notice: notice, can_choose_model: canChoose, sandbox_level: level }, { write, pick, take }) {
  const hasModel = models.length > 0;
  const examples = (hasModel ? PROMPTS : SNIPPETS).map(([title, text]) =>
    el("button", { type: "button", class: "example", onclick: () => write(text, !hasModel) },
      el("strong", {}, title), hasModel ? el("span", {}, text) : el("code", {}, text.split("\n").filter((one) => one && !one.startsWith("import"))[0])));
  const trySample = async () => {
    const { sampleTable } = await import("./sample_table.js");
    take([new File([sampleTable()], "sales.csv", { type: "text/csv" })]);
    write(hasModel ? "What is in sales.csv? Show how the revenue of each region developed." : "import pandas as pd\n\nsales = pd.read_csv(\"/mnt/data/sales.csv\", parse_dates=[\"date\"])\nsales", !hasModel);
  };
  const form = notice && canChoose ? modelForm(hasModel) : null;
  return [
    el("h2", {}, hasModel ? "What would you like to find out?" : "Python, ready to run"),
    el("p", { class: "lead" }, hasModel
      ? "Ask in plain words. Code is written and run for you, and you see every line of it."
      : "Write code and run it. Variables stay from one message to the next."),
    hasModel ? null : form,
    el("button", { type: "button", class: "drop-zone", onclick: pick }, icon("clip"),
      el("span", {}, el("strong", {}, "Drop a file here"), " or click to choose one: a table, a picture, a document, an archive")),
    el("p", { class: "sample" }, "No data at hand? ", el("button", { type: "button", class: "small", onclick: trySample }, "Take a sample table")),
    el("div", { class: "examples" }, examples),
    notice ? el("p", { class: "model-notice" }, notice) : null,
    hasModel ? form : null,
    level === "container" ? el("p", { class: "muted sandbox-level" }, OF_CONTAINERS) : null,
  ].filter(Boolean);
}
