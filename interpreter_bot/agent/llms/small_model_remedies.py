"""Prompts and checks that keep a small model from inventing figures. Pure.

It follows what it read last: so the last it reads is that figures come from code, and, once there
is an output, the question again. An output without a result is looked into, one that says all is
the answer. A reply that still has figures it cannot know is asked for again. Its own failed tries
are left out of the prompt: with them before its eyes it writes another of them, at any
temperature. The transcript itself keeps everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from interpreter_bot.agent import (
    chat_messages,
    context_windows,
    number_matching,
    observations,
    prompt_texts,
    tool_execution,
    tools,
)

# The first failure is mended best by looking at it.
_TRIES: Final = 2
_ANEW: Final = (
    "[{count} tries at this failed, the last with {error!r}. Begin anew and take quite another "
    "way: write one ```python block.]"
)
_ERROR_CHARACTERS: Final = 300

# "Plot this by that" is otherwise answered with a count. Only English is covered.
_PICTURE: Final = re.compile(
    r"\b(?:plot|chart|graph|histogram|heatmap|scatter\w*|diagram|draw|visuali[sz]e)s?\b",
    re.IGNORECASE,
)
# "How many games ended in a draw?"
_ASKS: Final = re.compile(r"\s*(?:how|which|who|what|when|where|why)\b", re.IGNORECASE)
_KIND_OF_PICTURE: Final = re.compile(
    r"\b(?:hist\w*|scatter\w*|bars?|lines?|pie|heatmap|time)\b", re.IGNORECASE
)
_GROUPS: Final = re.compile(r"\b(?:by|per|each)\b", re.IGNORECASE)
_NOTHING: Final = re.compile(
    r"(?:[^\n\d]*[:= ])?(?:0|0\.0+|nan|none|nat|\[\]|0(?:\.0+)?\s?%)\.?\s*"
    r"|[^\n\d]*\b(?-i:nan|NaN)\b[^\n\d]*|Empty DataFrame\b.*|Series\(\[\], .*",
    re.IGNORECASE | re.DOTALL,
)
# What pandas prints in place of lines it leaves out, or a line without information.
_LONG: Final = re.compile(r"^(?:\.\.+ .*| +\.\.\. *|.{400,})$", re.MULTILINE)
# The result of adding up texts where numbers were meant.
_STRUNG: Final = re.compile(r"\S{200}")
_EMPTY_TEXT: Final = re.compile(r"==\s*(?:''|\"\"|None\b)")
_COERCED: Final = re.compile(r"""errors\s*=\s*['"]coerce""")
_ROWS: Final = re.compile(r"^First rows:\n.*?(?:\n\n|\Z)", re.DOTALL | re.MULTILINE)
# A row of column names or none, rows of missing values, and what pandas writes below them.
_ALL_NAN: Final = re.compile(
    r"(?:[^\n\d]*\n)??(?:[^\n]*\b(?:nan|nat|none)[ \t]*(?:\n|\Z))+"
    r"(?:Name:|dtype:|Length:)?[^\n]*\s*",
    re.IGNORECASE,
)
# Marks of output written for people: no table, no literal, no note of ours.
_PLAIN: Final = re.compile(r"(?!.*(?:  |\t|\bdtype\b))[^\[{(<\s].*")
_LABELLED: Final = re.compile(r".*[^\W\d_].*")
# A line of a pandas series: a label that is no mere row number, and a value; then the footer.
_ROW: Final = re.compile(r"(?P<name>(?!\d{1,3} )\S+(?: \S+)*) {2,}-?\d[\d.,]*(?:e[+-]\d+)?")
_FOOTER: Final = re.compile(r"(?:Name|Length|dtype): ")
_ROWS_OF_AN_ANSWER: Final = 12
_ECHO: Final = "[That only repeats the question. Answer it, from what was printed.]"
_ANSWER_LINES: Final = 5
_ANSWER_CHARACTERS: Final = 400
_QUESTION_WORDS: Final = 4
_WORDS_CHARACTERS: Final = 1000
# As the system prompt names it, on a line of its own.
_CONNECTION: Final = re.compile(
    r'^connections\["(?P<name>[^"\n]+)"\] \(.*(?:\n(?! *\n|connections).+)*', re.MULTILINE
)
# Shorter ones stand in any question: "with", "each", "from".
_TOPIC: Final = re.compile(r"[^\W\d_]{5,}")
_FILE: Final = "reads the file"
_QUERY: Final = 'connections["{name}"].query("SELECT …")'
_ONLY_WAY: Final = "Only {query} reaches the database; it returns a DataFrame."
_FIGURES: Final = 10


def without_dead_ends(
    transcript: tuple[chat_messages.Message, ...],
) -> tuple[chat_messages.Message, ...]:
    """Remove dead ends, which only mislead.

    These are code that was refused as a repeat, tries that failed several times in a row, and code
    that found nothing, once it has looked another way.
    """
    shown = _without_nothings(_without_tries(transcript))
    following = (*shown[1:], None)
    return tuple(
        one
        for one, after in zip(shown, following, strict=True)
        if not (isinstance(one, chat_messages.AssistantMessage) and _is_refused_call(after))
    )


def _without_nothings(
    transcript: tuple[chat_messages.Message, ...],
) -> tuple[chat_messages.Message, ...]:
    kept: list[chat_messages.Message] = []
    for one in transcript:
        match (*kept[-3:], one):
            case (
                chat_messages.AssistantMessage(),
                chat_messages.ToolResult(text=text),
                chat_messages.AssistantMessage(calls=(_, *_)),
                chat_messages.ToolResult(),
            ) if is_nothing(text):
                del kept[-3:-1]
                # With its first look before its eyes, it looked in the same way again.
                if _is_refused_call(one):
                    del kept[-1]
                    continue
        kept.append(one)
    return tuple(kept)


def _without_tries(
    transcript: tuple[chat_messages.Message, ...],
) -> tuple[chat_messages.Message, ...]:
    last = transcript[-1] if transcript else None
    # Our own note may stand behind them; a person's words begin another matter.
    has_remark = isinstance(last, chat_messages.UserMessage) and last.is_ours
    end = start = len(transcript) - has_remark
    while start >= 2 and _is_try(transcript[start - 2], transcript[start - 1]):
        start -= 2
    failures = [one for one in transcript[start:end] if _is_failure(one)]
    if end - start < 2 * _TRIES or not failures:
        return transcript
    lines = failures[-1].text.removesuffix(observations.FAILED).strip().splitlines()
    # Our notes stand in brackets.
    error = next((line for line in reversed(lines) if not line.startswith("[")), "")
    hints = [hint for hint in observations.HINTS if hint in lines]
    told = _ANEW.format(count=len(failures), error=error[:_ERROR_CHARACTERS])
    told = "\n".join([*hints, told])
    return (*transcript[:start], chat_messages.UserMessage(told, is_ours=True), *transcript[end:])


def _is_try(one: chat_messages.Message, after: chat_messages.Message) -> bool:
    return isinstance(one, chat_messages.AssistantMessage) and (
        _is_failure(after) or _is_refused_call(after)
    )


def _is_failure(one: chat_messages.Message) -> bool:
    return isinstance(one, chat_messages.ToolResult) and one.text.endswith(observations.FAILED)


def _is_refused_call(one: chat_messages.Message | None) -> bool:
    return isinstance(one, chat_messages.ToolResult) and one.text.startswith(tool_execution.REFUSAL)


def query_example(prompt: chat_messages.Prompt) -> str:
    """Return how the data connection is asked that the last question is about; empty without one.

    It is about the first whose tables, columns or description share a longer word with it: told of
    a database where none is meant, a small model asks that and nothing else.
    """
    asked = _topics(_last_question(prompt.messages)[0])
    for found in _CONNECTION.finditer(prompt.system):
        if asked & _topics(found.group()):
            return _QUERY.format(name=found["name"])
    return ""


def _topics(text: str) -> set[str]:
    return {word.removesuffix("s") for word in _TOPIC.findall(text.lower())}


def has_data(transcript: Iterable[chat_messages.Message]) -> bool:
    """Return whether the transcript has data from which figures could be computed."""
    return any(
        isinstance(message, chat_messages.ToolResult)
        or (
            isinstance(message, chat_messages.UserMessage)
            and not message.is_ours
            and "/mnt/data/" in message.text
        )
        for message in transcript
    )


def reminder(
    transcript: tuple[chat_messages.Message, ...], *, is_small: bool, query: str = ""
) -> str:
    """Return the reminder after the last question; empty if there is nothing to compute with.

    Args:
        transcript: what was said and run.
        is_small: the model is.
        query: how a database is asked, if there is one. A small model otherwise makes a connection
            of its own, to a file that is not there.
    """
    last = transcript[-1] if transcript else None
    if is_small and isinstance(last, chat_messages.ToolResult):
        return _about_output(transcript, query)
    if not isinstance(last, chat_messages.UserMessage):
        return ""
    if last.is_ours:
        return f"[{_ONLY_WAY.format(query=query)}]" if query and is_small else ""
    if not (query or has_data(transcript)):
        return ""
    way = f"asks {query}" if query else _FILE
    return _about_question(last, way, is_small=is_small)


def _about_question(last: chat_messages.UserMessage, way: str, *, is_small: bool) -> str:
    words = _words(last)
    if _ASKS.match(words) or not _PICTURE.search(words):
        is_question = is_small and not _may_be_talk(words)
        return prompt_texts.read("reminder" if is_question else "reminder_talk").format(way=way)
    # It copies any way of drawing it reads of, so only the one that is meant is mentioned.
    if _GROUPS.search(words) and not _KIND_OF_PICTURE.search(words):
        return prompt_texts.read("reminder_groups").format(way=way)
    return prompt_texts.read("reminder_picture").format(way=way)


def _may_be_talk(words: str) -> bool:
    """Return whether a message may need no computation: "Thanks!", "Are you sure?".

    A model that is told of this way out takes it where it should not.
    """
    return len(words.split()) < _QUESTION_WORDS


def _about_output(transcript: tuple[chat_messages.Message, ...], query: str) -> str:
    """Repeat the question after an output, which makes the model forget parts of it."""
    question, since = _last_question(transcript)
    # A repeat that was refused has the output of what it repeats.
    ran = [
        one for one in since if isinstance(one, chat_messages.ToolResult) and not _is_refusal(one)
    ]
    if not question or not ran:
        return ""
    outputs = [one for one in ran if _has_run(one)]
    if ran[-1] not in outputs:
        name = "reminder_failed"
    else:
        name = _name(outputs[0].text) if len(outputs) == 1 else "reminder_output"
    hint = _hint(ran[-1].text, _code_before(ran[-1], since))
    if query and name == "reminder_failed":
        hint = f"{_ONLY_WAY.format(query=query)} {hint}"
    return prompt_texts.read(name).format(question=question, hint=hint).strip()


def _last_question(
    transcript: tuple[chat_messages.Message, ...],
) -> tuple[str, tuple[chat_messages.Message, ...]]:
    """Return a person's last message, and what came after it."""
    for at, one in reversed(list(enumerate(transcript))):
        if isinstance(one, chat_messages.UserMessage) and not one.is_ours:
            return _words(one), transcript[at + 1 :]
    return "", ()


def _code_before(
    last: chat_messages.ToolResult, transcript: tuple[chat_messages.Message, ...]
) -> str:
    """Return the code that produced this output, if it was code."""
    calls = (
        call
        for one in transcript
        if isinstance(one, chat_messages.AssistantMessage)
        for call in one.calls
    )
    wishes = (tools.read(call) for call in calls if call.id == last.call_id)
    return next((one.code for one in wishes if isinstance(one, tools.RunCode)), "")


def _hint(output: str, code: str) -> str:
    """Return a hint at what the code overlooked, as far as the output shows it."""
    hints = []
    if _EMPTY_TEXT.search(code):
        hints.append(observations.MISSING_VALUES)
    if _COERCED.search(code) or _STRUNG.search(output):
        hints.append(observations.NUMBERS_IN_TEXT)
    if not hints and is_nothing(output):
        hints = [observations.MISSING_VALUES, observations.NUMBERS_IN_TEXT]
    return " ".join(hint for hint in hints if hint not in output)


def bare_answer(transcript: tuple[chat_messages.Message, ...]) -> str:
    """Return an output that is the answer as it stands: a value, or a few lines with labels.

    A small model was told that what its code prints is the answer. Asked once more, it puts values
    into sentences where the question said "the number only", and miscopies some. Empty if the
    output is anything else.
    """
    last = transcript[-1] if transcript else None
    if not isinstance(last, chat_messages.ToolResult) or not _has_run(last):
        return ""
    output = last.text.strip()
    lines = output.splitlines()
    is_plain = all(_PLAIN.fullmatch(line) for line in lines) and len(lines) <= _ANSWER_LINES
    is_told = len(lines) == 1 or all(_LABELLED.fullmatch(line) for line in lines)
    if not (is_plain and is_told) or len(output) > _ANSWER_CHARACTERS or is_nothing(output):
        return ""
    return "" if _may_be_talk(_last_question(transcript)[0]) else output


def _has_run(one: chat_messages.ToolResult) -> bool:
    return not one.text.endswith(observations.FAILED) and not _is_refusal(one)


def _is_refusal(one: chat_messages.ToolResult) -> bool:
    return one.text.startswith(tool_execution.REFUSAL)


def _name(output: str) -> str:
    """Choose the note about a first output."""
    if is_nothing(output):
        return "reminder_nothing"
    return "reminder_long" if _LONG.search(output) else "reminder_output"


def is_nothing(output: str) -> bool:
    """Return whether an output is what is printed when a condition matches none of the data."""
    return bool(_NOTHING.fullmatch(output) or _ALL_NAN.fullmatch(output))


def _words(told: chat_messages.UserMessage) -> str:
    """Return a person's own words: descriptions of attachments stand before them."""
    return context_windows.shorten(told.text.rpartition("\n\n")[2], _WORDS_CHARACTERS)


def objection(
    reply: chat_messages.ModelReply, prompt: chat_messages.Prompt, *, is_small: bool
) -> str:
    """Object to a complete reply without code: one that should have used code for a question, or
    one with numbers that the model cannot know.

    Empty if there is no objection.
    """
    if reply.calls or reply.finish is not chat_messages.Finish.STOP:
        return ""
    last = prompt.messages[-1]
    if is_small and isinstance(last, chat_messages.UserMessage) and not _may_be_talk(_words(last)):
        return prompt_texts.read("guessed")
    if any(
        isinstance(one, chat_messages.UserMessage) and _words(one) == reply.text.strip()
        for one in prompt.messages
    ):
        return _ECHO
    told = [
        # A few rows say nothing about the whole table.
        _ROWS.sub("", one.text) if isinstance(one, chat_messages.UserMessage) else one.text
        for one in prompt.messages
        if not isinstance(one, chat_messages.AssistantMessage)
    ]
    given = number_matching.all_numbers((prompt.system, *told))
    # A share may be given in percent.
    known = sorted([*given, *(100 * value for value in given if value <= 1)])
    unknown = [
        f"{value:.{places}f}"
        for value, places in number_matching.numbers_in(
            number_matching.without_list_marks(reply.text)
        )
        if not number_matching.is_among(value, places, known)
    ]
    if unknown and isinstance(last, chat_messages.UserMessage):
        return prompt_texts.read("guessed")
    if unknown:
        return prompt_texts.read("misquoted").format(figures=", ".join(unknown[:_FIGURES]))
    rows = _left_out(reply.text, last.text) if is_small else []
    return prompt_texts.read("left_out").format(rows=", ".join(rows)) if rows else ""


def _left_out(answer: str, output: str) -> list[str]:
    """Return the rows of a short series that an answer does not mention."""
    lines = [line for line in output.strip().splitlines() if not _FOOTER.match(line)]
    rows = [_ROW.fullmatch(line) for line in lines]
    # The name of the index, if it has one.
    rows = rows[1:] if rows and rows[0] is None else rows
    if not 2 <= len(rows) <= _ROWS_OF_AN_ANSWER or None in rows:
        return []
    names = [row["name"] for row in rows if row is not None]
    return [
        name
        for name in names
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", answer, re.IGNORECASE)
    ]
