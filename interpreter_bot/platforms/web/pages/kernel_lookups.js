// Looks into live tables, and at code that is being written: questions to Python, and its answers.

import { connectionWords, pythonWords } from "./words.js";

const LONGEST_MILLISECONDS = 60_000;
const TYPING_MILLISECONDS = 1000;
const waiting = new Map();
let last = 0;

/**
 * Ask about a table; gives what was found, or {problem, is_busy, is_gone}.
 * @param {(message: object) => boolean} say
 */
export function look(say, table, wanted) {
  return asked(say, { table, wanted }, LONGEST_MILLISECONDS);
}

/** Ask how code may go on, of which `code` is written; whoever types on does not wait for it. */
export function completions(say, code) {
  return asked(say, { code }, TYPING_MILLISECONDS);
}

function asked(say, about, milliseconds) {
  const question = ++last;
  return new Promise((resolve) => {
    const answer = (found) => {
      clearTimeout(timer);
      waiting.delete(question);
      resolve(found);
    };
    const timer = setTimeout(answer, milliseconds, { problem: pythonWords.noAnswer });
    waiting.set(question, answer);
    if (!say({ do: "look", question, ...about })) answer({ problem: connectionWords.none });
  });
}

addEventListener("looked", ({ detail: found }) => waiting.get(found.question)?.(found));
// No answer comes over a connection that was lost.
addEventListener("disconnected", () => {
  for (const answer of [...waiting.values()]) answer({ problem: connectionWords.lost, is_busy: true });
});
