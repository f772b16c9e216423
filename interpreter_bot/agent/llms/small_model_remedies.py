"""Reminders and objections that make a small model compute instead of guessing. Pure.

Of 32 plain questions about tables, a model of 1.5 billion parameters answers half by itself. It
answers nearly all with a reminder below the question that figures come from code, and an objection
to an answer without code. Such a model follows the last text it read, so neither is in the system
prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeGuard

from interpreter_bot.agent import chat_messages, prompt_texts

# "Plot this by that" is otherwise answered with a count. Only English is covered.
_PICTURE_REQUEST: Final = re.compile(
    r"\b(?:plot|chart|graph|histogram|heatmap|scatter\w*|diagram|draw|visuali[sz]e)s?\b",
    re.IGNORECASE,
)
# "How many games ended in a draw?" wants no picture.
_QUESTION_START: Final = re.compile(r"\s*(?:how|which|who|what|when|where|why)\b", re.IGNORECASE)
_MIN_QUESTION_WORDS: Final = 4
# As the system prompt names it, on a line of its own.
_CONNECTION_ENTRY: Final = re.compile(
    r'^connections\["(?P<name>[^"\n]+)"\] \(.*(?:\n(?! *\n|connections).+)*', re.MULTILINE
)
# Any question has shorter words, such as "with", "each" and "from".
_TOPIC_WORD: Final = re.compile(r"[^\W\d_]{5,}")
_FILE_EXAMPLE: Final = "reads the file"
_QUERY_EXAMPLE: Final = 'asks connections["{name}"].query("SELECT …")'


def has_data(transcript: Iterable[chat_messages.Message]) -> bool:
    """Return whether the transcript has data from which figures could be computed."""
    return any(
        isinstance(message, chat_messages.ToolResult)
        or (_is_from_person(message) and "/mnt/data/" in message.text)
        for message in transcript
    )


def write_reminder(prompt: chat_messages.Prompt) -> str:
    """Return what is added to a person's message; empty if there is nothing to compute with."""
    question = _last_question(prompt)
    if question is None:
        return ""
    query = _query_example(prompt.system, question)
    if not query and not has_data(prompt.messages):
        return ""
    # The model copies any way of answering that the reminder mentions, so it mentions only one.
    if _PICTURE_REQUEST.search(question) and not _QUESTION_START.match(question):
        name = "reminder_picture"
    else:
        name = "reminder_talk" if _may_be_small_talk(question) else "reminder"
    return prompt_texts.read(name).format(way=query or _FILE_EXAMPLE)


def write_objection(reply: chat_messages.ModelReply, prompt: chat_messages.Prompt) -> str:
    """Return the objection to an answer to a question that came without code; empty if none."""
    is_answer = not reply.calls and reply.finish is chat_messages.Finish.STOP
    question = _last_question(prompt)
    if not is_answer or question is None or _may_be_small_talk(question):
        return ""
    return prompt_texts.read("guessed")


def _query_example(system: str, question: str) -> str:
    """Return how to ask the first data connection that shares a longer word with the question.

    Without an example, the model opens an empty SQLite file of its own. With an example for every
    question, it asks the database even to install a package.
    """
    topics = _find_topics(question)
    for connection in _CONNECTION_ENTRY.finditer(system):
        if topics & _find_topics(connection.group()):
            return _QUERY_EXAMPLE.format(name=connection["name"])
    return ""


def _find_topics(text: str) -> set[str]:
    return {word.removesuffix("s") for word in _TOPIC_WORD.findall(text.lower())}


def _last_question(prompt: chat_messages.Prompt) -> str | None:
    """Return the person's own words if the last message is theirs, without their attachments."""
    last = prompt.messages[-1] if prompt.messages else None
    return last.text.rpartition("\n\n")[2] if _is_from_person(last) else None


def _is_from_person(message: chat_messages.Message | None) -> TypeGuard[chat_messages.UserMessage]:
    return isinstance(message, chat_messages.UserMessage) and not message.is_from_bot


def _may_be_small_talk(question: str) -> bool:
    """Return whether a message may need no computation: "Thanks!", "Are you sure?"."""
    return len(question.split()) < _MIN_QUESTION_WORDS
