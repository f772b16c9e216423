// Queries to Python, and their answers: parts of live tables, and completions of code.

import { connectionWords, pythonWords } from "./words.js";

const MAX_WAIT_MILLISECONDS = 60_000;
const COMPLETION_WAIT_MILLISECONDS = 1000;
const pendingQueries = new Map();
let lastQueryId = 0;

/** Read a part of a table; returns it, or {problem, is_busy, is_gone}. */
export function readTable(sendAction, table, view) {
  return sendQuery(sendAction, { table, view }, MAX_WAIT_MILLISECONDS);
}

/** Ask for completions after `code`; the answer is empty if it does not come within a second. */
export function fetchCompletions(sendAction, code) {
  return sendQuery(sendAction, { code }, COMPLETION_WAIT_MILLISECONDS);
}

function sendQuery(sendAction, fields, milliseconds) {
  const queryId = ++lastQueryId;
  return new Promise((resolve) => {
    const answer = (result) => {
      clearTimeout(timer);
      pendingQueries.delete(queryId);
      resolve(result);
    };
    const timer = setTimeout(answer, milliseconds, { problem: pythonWords.noAnswer });
    pendingQueries.set(queryId, answer);
    if (!sendAction({ do: "read_data", query_id: queryId, ...fields })) answer({ problem: connectionWords.none });
  });
}

addEventListener("data-read", ({ detail: result }) => pendingQueries.get(result.query_id)?.(result));
// No answer will come over a lost connection.
addEventListener("disconnected", () => {
  for (const answer of [...pendingQueries.values()]) answer({ problem: connectionWords.lost, is_busy: true });
});
