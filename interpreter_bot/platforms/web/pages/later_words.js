// Texts of the parts of the page that are loaded only when somebody opens them.

import { cellCount, pluralize } from "./words.js";

export const columnCount = (number) => pluralize(number, "column", "columns");
export const fileCount = (number) => pluralize(number, "file", "files");
export const queryCount = (number) => pluralize(number, "query", "queries");
export const rowCount = (number) => pluralize(number, "row", "rows");

export const sampleWords = {
  question: "What is in sales.csv? Show how the revenue of each region developed.",
  code: "import pandas as pd\n\nsales = pd.read_csv(\"/mnt/data/sales.csv\", parse_dates=[\"date\"])\nsales",
  snippets: [
    ["Draw a curve", "import numpy as np\nimport matplotlib.pyplot as plt\n\nx = np.linspace(0, 20, 400)\nplt.plot(x, np.exp(-x / 8) * np.sin(2 * x))\nplt.title(\"A damped oscillation\")\nplt.show()"],
    ["Make a table", "import numpy as np\nimport pandas as pd\n\nrng = np.random.default_rng(1)\ndf = pd.DataFrame({\"region\": rng.choice(list(\"NSEW\"), 500), \"amount\": rng.gamma(2, 50, 500).round(2)})\ndf.groupby(\"region\").describe()"],
    ["Look around", "import os, sys\n\nprint(sys.version)\nprint(os.listdir(\"/mnt/data\"))"],
  ],
};

export const menuWords = {
  variables: "Variables",
  rebuild: "Rebuild lost variables",
  stop: "Stop the code",
  restart: "Restart Python…",
  save: "Save the conversation",
  asPage: "As a web page",
  asNotebook: "As a notebook",
  asPython: "As Python",
  allFiles: "All files",
  print: "Print",
  conversation: "Conversation",
  fork: "Fork conversation",
  undo: "Undo last answer…",
  settings: "Settings",
  model: "Model",
  approval: "Approval",
  place: "What applies here",
  memory: "Memory",
  showCode: "Show code",
  colours: "Colours",
  systemColours: "As the system",
  light: "Light",
  dark: "Dark",
  about: "About this bot",
  schedules: "Schedules",
  usage: "Usage",
  limits: "Limits",
  network: "Network",
  tools: "Tools",
  help: "Help",
};

export const dialogWords = {
  undo: "Undo the last answer?",
  undoes: "Variables, files and history go back to before the last question.",
  restart: "Restart Python?",
  restarts: "Variables are deleted, and the model no longer knows this conversation.",
  restartsFiles: "Delete the files as well",
  doRestart: "Restart",
  renameFile: "Rename this file",
  newName: "New name",
  deleteFile: "Delete this file?",
  deletesFile: (name) => `${name} is deleted for good. This can't be undone.`,
};

export const panelWords = {
  results: {
    limits: { title: "Limits", about: (sandbox) => `${sandbox} One conversation may use:` },
    network: { title: "Network", about: () => "Hosts and data your code can reach:" },
    tools: { title: "Tools", about: () => "Tools your code can call:" },
    connect: { title: "Log in" },
    disconnect: { title: "Log out" },
    schedules: { title: "Schedules" },
    usage: { title: "Usage" },
    settings: { title: "Settings" },
  },
  models: "Models",
  approval: "Approval",
  approvalWhen: "Ask me before code runs",
  approvals: {
    never: "Never",
    plan: "Once per answer, about a plan in plain words",
    every: "Every time, about the code",
  },
  stricter: (approval) => `The operator requires a stricter setting: ${approval.toLowerCase()}.`,
  help: "Help",
  commands: "Commands",
  keys: "Keys",
  keyTable: [
    ["Enter", "Send; in Python mode: new line"],
    ["Ctrl or ⌘ + Enter", "Send, or run the code"],
    ["Shift + Enter", "New line"],
    ["Esc, twice", "Stop the code; variables are kept"],
    ["Tab, Shift + Tab", "In Python mode: indent and dedent; after Esc: leave the editor"],
  ],
};

export const placeWords = {
  addNote: "Add a note",
  allNotes: "All notes",
  forget: "Forget",
  memory: "What I remember here",
  place: "What applies here",
  save: "Save",
};

export const modelWords = {
  choose: "Choose a model",
  key: "Key of OpenAI or Anthropic",
  keyOf: "API key of OpenAI, Anthropic or another server",
  address: "Address, if you run a server of your own",
  addressOf: "Address of a server",
  foundHere: "Found on this machine: ",
  tryIt: "Try and use it",
  trying: "Asking the model…",
  unanswered: "The bot does not answer. Try again in a moment.",
  whatHappens: "The bot asks the model for one word first. The key is stored encrypted where the bot runs, and is never shown.",
  none: "There is no model yet. You can still run your own code.",
  ofConversation: "Model for this conversation",
};

export const uploadWords = {
  removeFile: (name) => `Remove ${name}`,
  cancelUpload: (name) => `Cancel the upload of ${name}`,
  tooLarge: (name, size, limit) => `${name} has ${size}, and the limit is ${limit} a file.`,
  uploadFailed: (name, reason) => `${name} was not uploaded: ${reason}`,
  uploadBroken: "the connection broke off.",
  uploadShare: (percent, size) => `${percent} % of ${size}`,
  storing: "storing…",
};

export const branchWords = {
  branches: "Branches",
  code: "Code",
  earlierBranch: "Earlier branch",
  laterBranch: "Later branch",
  question: "Question",
};

export const questionWords = {
  codeToRun: "Code to run",
  decline: "Decline",
  enter: "Enter",
  firstCode: "The first code of this plan",
  forSession: "For this session",
  input: "Input:",
  inputForCode: "Input for the code",
  otherAnswer: "Other answer",
};

export const galleryWords = {
  larger: "Larger",
  next: "Next picture",
  place: (number, total) => `${number} of ${total}`,
  previous: "Previous picture",
  smaller: "Smaller",
};

export const tableWords = {
  allMissing: "all missing",
  asCsv: "All as CSV",
  asParquet: "Parquet",
  columnNumber: (number) => `column ${number}`,
  condition: "Condition",
  copyCells: "Copy cells",
  distinct: (number, isMore) => `${isMore ? "at least " : ""}${pluralize(number, "value", "values")}`,
  filter: "Filter",
  filterColumn: (name) => `Filter ${name}`,
  firstOf: (number) => `, the first of ${number.toLocaleString("en")}`,
  firstOfMore: ", the first of more",
  firstShown: (parts) => `, the first ${parts.join(" and ")} shown`,
  found: (number, total) => `${number.toLocaleString("en")} of ${rowCount(total)}`,
  index: "index",
  missing: (number, isEstimated) => `, ${isEstimated ? "about " : ""}${number.toLocaleString("en")} missing`,
  range: (least, most) => `${least} to ${most}`,
  removeFilter: (filter) => `Remove the filter ${filter}`,
  search: "Search all rows",
  showCell: "Show all of it",
  table: "Table",
  value: "Value",
};

export const paneWords = {
  beside: "Beside the conversation",
  close: "Close the pane",
  schema: "Schema",
  variables: "Variables",
};

export const fileWords = {
  allFiles: "All files",
  allOf: (number, size, limit) => `${fileCount(number)}, ${size} of ${limit}`,
  changed: "This file has changed.",
  downloadAll: "Download all",
  empty: "This file is empty.",
  firstBytes: (size, total) => `The first ${size} of ${total}:`,
  gone: (name) => `${name} does not exist any more.`,
  noFiles: "No files yet. Drop one on the page, or let code write one to /mnt/data.",
  notANotebook: "This is not a notebook.",
  notText: (size) => `This file is not text, so its ${size} cannot be shown.`,
  notUtf8: "This text is not in UTF-8, so letters that cannot be read are shown as \ufffd. Python can find out its encoding.",
  readAgain: "Read it again",
  reading: "Reading…",
  reload: "Show it again",
  sheet: "Sheet ",
  upload: "Upload",
};

export const variableWords = {
  column: "Column",
  firstValue: "First value",
  imported: (names) => `Imported: ${names.join(", ")}`,
  madeBy: "Made by ",
  moreColumns: (number) => `and ${columnCount(number)} more`,
  noName: "no name",
  noTables: "No tables are loaded. Once a variable holds one, its columns and types appear here.",
  none: "No variables yet. Run some code, and they appear here.",
  readBy: "Read by ",
  rebuild: (number) => `Rebuild lost variables: run ${cellCount(number)}`,
  type: "Type",
  usedBy: (number) => `Used by ${cellCount(number)}`,
  explore: (name) => `Explore ${name}`,
};

export const visitWords = {
  expired: "This link has expired. Ask for a new one in the chat.",
  notOpened: "Not opened",
  reading: (platform, time) => `You are reading a conversation of ${platform}. This link works until ${time}.`,
};
