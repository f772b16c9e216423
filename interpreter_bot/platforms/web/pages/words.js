// Texts of the page, by subject, except those in the HTML. Texts of the parts that are loaded only
// when somebody opens them are in later_words.js.

export const pluralize = (count, singular, plural) => `${count.toLocaleString("en")} ${count === 1 ? singular : plural}`;

export const cellCount = (count) => pluralize(count, "cell", "cells");
export const lineCount = (count) => pluralize(count, "line", "lines");
export const requestCount = (count) => pluralize(count, "request", "requests");
export const tokenCount = (count) => pluralize(count, "token", "tokens");

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
  files: "Files",
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
  betterModel: "Use a better model",
  demoAnswers: "A small demo model answers, and it is often wrong.",
  ask: "What would you like to find out?",
  askHow: "Ask in plain words. Code is written and run for you, and you see every line of it.",
  run: "Python, ready to run",
  runHow: "Write code and run it. Variables stay from one message to the next.",
  drop: "Drop a file here",
  dropWhat: " or click to choose one: a table, a picture, a document, an archive",
  noData: "No data at hand? ",
  takeSample: "Use a sample table",
  ordinaryContainer: "Sandbox level: container. Sessions share this container's process list, and their memory is only checked a few times a second. interpreter-bot doctor says how to get a stronger level.",
  questions: [
    ["Explore a table", "Make up a table of 500 sales with date, region and amount, and plot the revenue by month and region."],
    ["Solve and draw", "Find the roots of x³ − 6x² + 9x − 2 exactly, and draw the curve with its roots marked."],
    ["Run a simulation", "How many people must be in a room for two to share a birthday? Simulate it, and compare with the formula."],
  ],
};

export const sidebarWords = {
  archived: "Archived",
  archivedCount: (count) => `Archived (${count})`,
  busy: "running",
  days: { today: "Today", yesterday: "Yesterday", week: "Last 7 days", earlier: "Earlier" },
  deleteConversation: "Delete this conversation?",
  deletes: (title) => `“${title}” is deleted for good, with its variables and files.`,
  found: (count) => `${count} found`,
  moreAbout: (title) => `More about ${title}`,
  name: "Name",
  newConversation: "New conversation",
  nothingFound: "Nothing found. Search does not cover code or output.",
  pin: "Pin",
  pinned: "Pinned",
  renameConversation: "Rename the conversation",
  unpin: "Unpin",
};

export const composerWords = {
  askPlaceholder: "Ask about your data, or drop a file",
  codePlaceholder: "Python to run",
  askHint: "Enter sends · Shift + Enter for a new line",
  codeHint: (key) => `${key} + Enter runs`,
  editCode: "Edit this code?",
  editsCode: "This replaces your draft.",
  escapeStops: "Esc again stops",
  pressEscape: "Press Escape again to stop",
  sentLater: "Your message is sent once its files are uploaded.",
  writeSomething: "Please write something first.",
  writeCode: "Please write the code to run.",
  tooLong: (characters, limit) => `Your message has ${characters.toLocaleString("en")} characters, and the limit is ${limit.toLocaleString("en")}. Please save it as a file and attach it.`,
  notUploaded: (names) => `The page was closed before this was uploaded: ${names.join(", ")}. Please attach it again.`,
  noFolders: "Folders cannot be uploaded. Please zip the folder first.",
};

export const conversationWords = {
  branching: "Making a branch",
  notLoaded: "That message is further up: press Show earlier messages.",
  preparingDownload: "Preparing the download",
  restarted: "The bot restarted before it got to this.",
  tableFile: (title, suffix) => `${title || "Conversation"} table.${suffix}`,
};

export const turnWords = {
  endings: {
    ok: "Done", error: "Error", "timed out": "Out of time", "out of memory": "Out of memory",
    crashed: "Python crashed", stopped: "Stopped", refused: "Not run", "in background": "Goes on",
  },
  answer: (text) => `Answer: ${text}`,
  askAgain: "Ask again",
  attachedFiles: "Attached files",
  code: "Code and its output",
  codeAsksInput: "The code asks for input",
  codeInBackground: "Code in the background",
  codeNotRun: "Code that was not run",
  done: "Done",
  estimated: (text) => `about ${text}`,
  failed: (count) => `${count} failed`,
  files: "Files made or changed",
  fromCache: (count) => ` (${count.toLocaleString("en")} from cache)`,
  money: (amount) => `${amount} spent`,
  noOutput: "Done. No output.",
  ofAtMost: (seconds, limit) => `${seconds} of at most ${limit}`,
  progress: "Progress",
  queued: (count) => `Queued: ${requestCount(count)} ahead`,
  ran: (count) => `Ran ${cellCount(count)}`,
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

export const outputWords = {
  copyLatex: "Copy LaTeX",
  done: "Done",
  interactive: "Interactive output",
  picture: "Picture",
  pictureDeleted: "This picture has been deleted.",
  showAll: (count) => `… Show all ${count > 1 ? lineCount(count) : "of it"}`,
  showEnd: "Show the end only",
  text: "Text",
  toDo: "To do",
};
