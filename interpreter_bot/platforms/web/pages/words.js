// What people read on the page, by subject, but for the words that stand in the HTML.

const counted = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

export const cells = (number) => counted(number, "cell", "cells");
export const columns = (number) => counted(number, "column", "columns");
export const files = (number) => counted(number, "file", "files");
export const lines = (number) => counted(number, "line", "lines");
export const queries = (number) => counted(number, "query", "queries");
export const requests = (number) => counted(number, "request", "requests");
export const rows = (number) => counted(number, "row", "rows");
export const tokens = (number) => counted(number, "token", "tokens");

export const buttonWords = {
  archive: "Archive",
  bringBack: "Bring back",
  cancel: "Cancel",
  close: "Close",
  copied: "Copied",
  copy: "Copy",
  delete: "Delete",
  download: "Download",
  edit: "Edit",
  enlarge: "Enlarge",
  explore: "Explore",
  fullScreen: "Full screen",
  leaveFullScreen: "Leave full screen",
  notCopied: "Not copied",
  open: "Open",
  rename: "Rename",
  renameWith: "Rename…",
  run: "Run",
  runCells: "Run its cells",
  send: "Send",
  stop: "Stop",
  tryAgain: "Try again",
  undo: "Undo",
  view: "View",
};

export const connectionWords = {
  attachAgain: "There is no connection right now. Attach the file again in a moment.",
  lost: "The connection was lost.",
  messageKept: "There is no connection right now. Your message is kept.",
  none: "There is no connection right now. Try again in a moment.",
  notAccepted: "The bot did not accept this message. It is kept here.",
  retried: "The connection is lost. Trying again…",
};

export const pythonWords = {
  asked: "Asking Python…",
  noAnswer: "Python did not answer. Try again in a moment.",
  starting: "Starting Python…",
  state: (state) => `Python ${state}`,
  unsandboxed: "Code runs without a sandbox: it can do whatever the bot can.",
  sandboxed: (level) => `Code runs in a sandbox (level: ${level}).`,
};

export const welcomeWords = {
  ask: "What would you like to find out?",
  askHow: "Ask in plain words. Code is written and run for you, and you see every line of it.",
  run: "Python, ready to run",
  runHow: "Write code and run it. Variables stay from one message to the next.",
  drop: "Drop a file here",
  dropWhat: " or click to choose one: a table, a picture, a document, an archive",
  noData: "No data at hand? ",
  takeSample: "Use a sample table",
  sampleQuestion: "What is in sales.csv? Show how the revenue of each region developed.",
  sampleCode: "import pandas as pd\n\nsales = pd.read_csv(\"/mnt/data/sales.csv\", parse_dates=[\"date\"])\nsales",
  ordinaryContainer: "Sandbox level: container. Sessions share this container's process list, and their memory is only checked a few times a second. interpreter-bot doctor says how to get a stronger level.",
  questions: [
    ["Explore a table", "Make up a table of 500 sales with date, region and amount, and plot the revenue by month and region."],
    ["Solve and draw", "Find the roots of x³ − 6x² + 9x − 2 exactly, and draw the curve with its roots marked."],
    ["Run a simulation", "How many people must be in a room for two to share a birthday? Simulate it, and compare with the formula."],
  ],
  snippets: [
    ["Draw a curve", "import numpy as np\nimport matplotlib.pyplot as plt\n\nx = np.linspace(0, 20, 400)\nplt.plot(x, np.exp(-x / 8) * np.sin(2 * x))\nplt.title(\"A damped oscillation\")\nplt.show()"],
    ["Make a table", "import numpy as np\nimport pandas as pd\n\nrng = np.random.default_rng(1)\ndf = pd.DataFrame({\"region\": rng.choice(list(\"NSEW\"), 500), \"amount\": rng.gamma(2, 50, 500).round(2)})\ndf.groupby(\"region\").describe()"],
    ["Look around", "import os, sys\n\nprint(sys.version)\nprint(os.listdir(\"/mnt/data\"))"],
  ],
};

export const modelWords = {
  choose: "Choose a model",
  betterModel: "Use a better model",
  demoAnswers: "A small demo model answers, and it is often wrong.",
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

export const sidebarWords = {
  archived: "Archived",
  archivedCount: (number) => `Archived (${number})`,
  busy: "running",
  days: { today: "Today", yesterday: "Yesterday", week: "Last 7 days", earlier: "Earlier" },
  deleted: (title) => `“${title}” is deleted, with its variables and files.`,
  found: (number) => `${number} found`,
  moreAbout: (title) => `More about ${title}`,
  name: "Name",
  newConversation: "New conversation",
  nothingFound: "Nothing found. Search does not cover code or output.",
  pin: "Pin",
  pinned: "Pinned",
  renameConversation: "Rename the conversation",
  unpin: "Unpin",
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
  showCode: "Show code",
  colours: "Colours",
  systemColours: "As the system",
  light: "Light",
  dark: "Dark",
  about: "About this bot",
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
  editCode: "Edit this code?",
  editsCode: "This replaces your draft.",
  renameFile: "Rename this file",
  newName: "New name",
  deleteFile: "Delete this file?",
  deletesFile: (name) => `${name} is deleted for good. This can't be undone.`,
};

export const panelWords = {
  limits: "Limits",
  limitsOf: (sandbox) => `${sandbox} One conversation may use:`,
  models: "Models",
  approval: "Approval",
  approvalWhen: "Ask me before code runs",
  approvals: {
    never: "Never",
    plan: "Once per answer, about a plan in plain words",
    every: "Every time, about the code",
  },
  stricter: (approval) => `The operator requires a stricter setting: ${approval.toLowerCase()}.`,
  network: "Network",
  networkOf: "Hosts and data your code can reach:",
  tools: "Tools",
  toolsOf: "Tools your code can call:",
  logIn: "Log in",
  logOut: "Log out",
  usage: "Usage",
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

export const composerWords = {
  askPlaceholder: "Ask about your data, or drop a file",
  codePlaceholder: "Python to run",
  askHint: "Enter sends · Shift + Enter for a new line",
  codeHint: (key) => `${key} + Enter runs`,
  escapeStops: "Esc again stops",
  pressEscape: "Press Escape again to stop",
  writeSomething: "Please write something first.",
  writeCode: "Please write the code to run.",
  tooLong: (characters, limit) => `Your message has ${characters.toLocaleString("en")} characters, and the limit is ${limit.toLocaleString("en")}. Please save it as a file and attach it.`,
  notUploaded: (names) => `The page was closed before this was uploaded: ${names.join(", ")}. Please attach it again.`,
  noFolders: "Folders cannot be uploaded. Please zip the folder first.",
  removeFile: (name) => `Remove ${name}`,
  cancelUpload: (name) => `Cancel the upload of ${name}`,
  tooLarge: (name, size, limit) => `${name} has ${size}, and the limit is ${limit} a file.`,
  uploadFailed: (name, reason) => `${name} was not uploaded: ${reason}`,
  uploadBroken: "the connection broke off.",
  uploadShare: (percent, size) => `${percent} % of ${size}`,
  storing: "storing…",
  waitsForFiles: "Waiting for its files to be uploaded: ",
  noText: "no text",
  takeBack: "Take back",
};

export const conversationWords = {
  branching: "Making a branch",
  branches: "Branches",
  code: "Code",
  earlierBranch: "Earlier branch",
  laterBranch: "Later branch",
  notLoaded: "That message is further up: press Show earlier messages.",
  notebookStopped: (name) => `${name} was not run to its end.`,
  preparingDownload: "Preparing the download",
  question: "Question",
  restarted: "The bot restarted before it got to this.",
  runRest: (number) => `Run the remaining ${cells(number)}`,
  tableFile: (title, suffix) => `${title || "Conversation"} table.${suffix}`,
};

export const turnWords = {
  endings: {
    ok: "Done", error: "Error", timed_out: "Out of time", out_of_memory: "Out of memory",
    crashed: "Python crashed", stopped: "Stopped", refused: "Not run",
  },
  answer: (text) => `Answer: ${text}`,
  askAgain: "Ask again",
  attachedFiles: "Attached files",
  code: "Code and its output",
  codeAsksInput: "The code asks for input",
  codeNotRun: "Code that was not run",
  done: "Done",
  estimated: (text) => `about ${text}`,
  failed: (number) => `${number} failed`,
  files: "Files made or changed",
  fromCache: (number) => ` (${number.toLocaleString("en")} from cache)`,
  money: (amount) => `${amount} spent`,
  noOutput: "Done. No output.",
  ofAtMost: (seconds, limit) => `${seconds} of at most ${limit}`,
  progress: "Progress",
  queued: (number) => `Queued: ${requests(number)} ahead`,
  ran: (number) => `Ran ${cells(number)}`,
  runAgain: "Run again",
  running: "Running…",
  runningCode: "Running code",
  sending: "Sending…",
  stopped: "Stopped",
  stoppedHere: "Stopped here",
  thinking: "Thinking…",
  variablesLost: "Variables are gone, files are kept.",
  whyFailed: "Why did this fail?",
  whyQuestion: "Why did this code fail, and how can I fix it?",
  withdraw: "Withdraw",
  writing: "Writing code",
  youAsked: "You asked",
  youRan: "You ran",
};

export const questionWords = {
  codeToRun: "Code to run",
  doNotRun: "Do not run",
  enter: "Enter",
  firstCode: "The first code of this plan",
  forSession: "For this session",
  input: "Input:",
  inputForCode: "Input for the code",
  runCode: "Run this code?",
  runPlan: "Carry out this plan?",
};

export const outputWords = {
  copyLatex: "Copy LaTeX",
  done: "Done",
  interactive: "Interactive output",
  picture: "Picture",
  pictureDeleted: "This picture has been deleted.",
  showAll: (number) => `… Show all ${number > 1 ? lines(number) : "of it"}`,
  showEnd: "Show the end only",
  text: "Text",
  toDo: "To do",
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
  distinct: (number, isMore) => `${isMore ? "at least " : ""}${counted(number, "value", "values")}`,
  filter: "Filter",
  filterColumn: (name) => `Filter ${name}`,
  firstOf: (number) => `, the first of ${number.toLocaleString("en")}`,
  firstOfMore: ", the first of more",
  firstShown: (parts) => `, the first ${parts.join(" and ")} shown`,
  found: (number, total) => `${number.toLocaleString("en")} of ${rows(total)}`,
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
  files: "Files",
  schema: "Schema",
  variables: "Variables",
};

export const fileWords = {
  allFiles: "All files",
  allOf: (number, size, limit) => `${files(number)}, ${size} of ${limit}`,
  changed: "This file has changed.",
  current: "Current version",
  downloadAll: "Download all",
  empty: "This file is empty.",
  firstBytes: (size, total) => `The first ${size} of ${total}:`,
  gone: (name) => `${name} does not exist any more.`,
  history: (number) => `History (${number})`,
  madeBy: (request) => `made by: ${request}`,
  noFiles: "No files yet. Drop one on the page, or let code write one to /mnt/data.",
  noRequest: "a message without text",
  notANotebook: "This is not a notebook.",
  notKept: "Not kept",
  notSent: "Not sent yet.",
  notText: (size) => `This file is not text, so its ${size} cannot be shown.`,
  notUtf8: "This text is not in UTF-8, so letters that cannot be read are shown as \ufffd. Python can find out its encoding.",
  readAgain: "Read it again",
  reading: "Reading…",
  reload: "Show it again",
  restored: (name) => `It is back as ${name}; the current file is unchanged.`,
  sentWith: (request) => `sent with: ${request}`,
  sheet: "Sheet ",
  toCurrent: "Back to the current version",
  upload: "Upload",
  versionOf: (time) => `The version of ${time}. `,
};

export const variableWords = {
  column: "Column",
  firstValue: "First value",
  imported: (names) => `Imported: ${names.join(", ")}`,
  madeBy: "Made by ",
  moreColumns: (number) => `and ${columns(number)} more`,
  noName: "no name",
  noTables: "No tables are loaded. Once a variable holds one, its columns and types appear here.",
  none: "No variables yet. Run some code, and they appear here.",
  readBy: "Read by ",
  rebuild: (number) => `Rebuild lost variables: run ${cells(number)}`,
  type: "Type",
  usedBy: (number) => `Used by ${cells(number)}`,
  explore: (name) => `Explore ${name}`,
};

export const visitWords = {
  expired: "This link has expired. Ask for a new one in the chat.",
  notOpened: "Not opened",
  reading: (platform, time) => `You are reading a conversation of ${platform}. This link works until ${time}.`,
};
