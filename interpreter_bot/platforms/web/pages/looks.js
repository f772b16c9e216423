// Looks into live tables: questions to Python, and the answers that come back.

const LONGEST_MILLISECONDS = 60_000;
const waiting = new Map();
let last = 0;

/**
 * Ask about a table; gives what was found, or {problem, is_busy, is_gone}.
 * @param {(message: object) => boolean} say
 */
export function look(say, table, wanted) {
  const question = ++last;
  return new Promise((resolve) => {
    const answer = (found) => {
      clearTimeout(timer);
      waiting.delete(question);
      resolve(found);
    };
    const timer = setTimeout(answer, LONGEST_MILLISECONDS, { problem: "Python did not answer." });
    waiting.set(question, answer);
    if (!say({ do: "look", table, question, wanted })) answer({ problem: "There is no connection right now." });
  });
}

export function looked(found) {
  waiting.get(found.question)?.(found);
}

/** No answer comes over a connection that was lost. */
export function unanswered() {
  for (const answer of [...waiting.values()]) answer({ problem: "The connection was lost.", is_busy: true });
}
