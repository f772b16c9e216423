"""The terminal: its chat, its pipes, and the files it reads and writes."""

from __future__ import annotations

from typing import Final

CHAT_GREETING: Final = (
    "Ask a question, or run your own code with /py CODE. /help lists the commands. "
    "Tab completes, Ctrl-C stops an answer, Ctrl-D ends the chat."
)
STOPPING: Final = "Stopping… Press Ctrl-C again to end running answers at once."
NO_QUESTION: Final = "There is no question. See `interpreter-bot ask --help`."
STDIN_NAME: Final = "Standard input"
STDIN_WAITED_FOR: Final = "Waiting for standard input. If there is none, add </dev/null."
STDIN_UNREADABLE: Final = "Standard input cannot be read."
STDIN_NOT_TEXT: Final = "Standard input is not text, so it cannot be a question."
NO_INPUT: Final = "The code asked for input, but there is none."
INPUT_DECLINED: Final = "The code asked for input, and the answer was declined."
NOBODY_TO_ASK: Final = "Declined: standard input has ended, so nobody can answer."
MALFORMED_ANSWER: Final = (
    'An answer is a line such as {"id": 1, "answer": "yes"}; this was ignored: '
)
OUTPUT_UNREAD: Final = "Nobody reads the output, and too much of it is waiting."


def question_too_long(limit: int) -> str:
    return (
        f"Standard input is longer than the {limit:,} characters that a question may have. Give "
        "the question as an argument; standard input then becomes a file."
    )


def code_too_large(name: object) -> str:
    return f"{name} is too large to be code."


def file_unreadable(name: object, reason: object) -> str:
    return f"{name} cannot be read: {reason}."


def not_text(name: str) -> str:
    return f"{name} cannot be read as text."


def nothing_saved(directory: object) -> str:
    return f"Nothing can be saved in {directory}."


def not_saved(path: object, reason: str | None) -> str:
    return f"{path} could not be saved: {reason}."


def how_to_keep(command: str) -> str:
    return f"To save pictures and files, start with `{command} --keep DIR`."
