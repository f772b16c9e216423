"""What keeps a small model from making its figures up. Pure.

It follows what it read last: so the last it reads is that figures come from code, and, once there
is an output, what was asked. An output that says nothing is looked into, one that says all is the
answer. Where a reply still has figures that cannot be known, it is asked for again.
"""

from __future__ import annotations

import re
from typing import Final

from interpreter_bot.agent import (
    claims,
    describing,
    figures,
    fitting,
    guards,
    messages,
    prompting,
    tools,
)

# "Plot this by that" is otherwise answered with a count. Other languages do as well as they can.
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
# The line of pandas in place of those that it does not print, or a line that nobody reads.
_LONG: Final = re.compile(r"^(?:\.\.+ .*| +\.\.\. *|.{400,})$", re.MULTILINE)
# What comes of adding up texts where numbers were meant.
_STRUNG: Final = re.compile(r"\S{200}")
_EMPTY_TEXT: Final = re.compile(r"==\s*(?:''|\"\"|None\b)")
_COERCED: Final = re.compile(r"""errors\s*=\s*['"]coerce""")
_ROWS: Final = re.compile(r"^First rows:\n.*?(?:\n\n|\Z)", re.DOTALL | re.MULTILINE)
# A row of names or none, rows of what is missing, and what pandas writes below them.
_ALL_NAN: Final = re.compile(
    r"(?:[^\n\d]*\n)??(?:[^\n]*\b(?:nan|nat|none)[ \t]*(?:\n|\Z))+"
    r"(?:Name:|dtype:|Length:)?[^\n]*\s*",
    re.IGNORECASE,
)
# What is written for people: no table, no literal, no remark of ours.
_PLAIN: Final = re.compile(r"(?!.*(?:  |\t|\bdtype\b))[^\[{(<\s].*")
_LABELLED: Final = re.compile(r".*[^\W\d_].*")
# Of a series of pandas: a name that is no mere number of a row, and a value; what stands below.
_ROW: Final = re.compile(r"(?P<name>(?!\d{1,3} )\S+(?: \S+)*) {2,}-?\d[\d.,]*(?:e[+-]\d+)?")
_FOOTER: Final = re.compile(r"(?:Name|Length|dtype): ")
_ROWS_OF_AN_ANSWER: Final = 12
_ECHO: Final = "[That only repeats the question. Answer it, from what was printed.]"
_ANSWER_LINES: Final = 5
_ANSWER_CHARACTERS: Final = 400
_QUESTION_WORDS: Final = 4
_WORDS_CHARACTERS: Final = 1000
_FIGURES: Final = 10


def reminder(transcript: tuple[messages.Message, ...], *, is_small: bool) -> str:
    """Say what is to follow the last question; empty where there is nothing to compute with."""
    last = transcript[-1] if transcript else None
    if is_small and isinstance(last, messages.Answered):
        return _about_output(transcript)
    if not isinstance(last, messages.Told) or last.is_ours or not claims.has_data(transcript):
        return ""
    words = _words(last)
    if _ASKS.match(words) or not _PICTURE.search(words):
        is_question = is_small and not _may_be_talk(words)
        return prompting.read("reminder" if is_question else "reminder_talk")
    # It copies whatever way of drawing it reads of, so it reads of none that is not meant.
    if _GROUPS.search(words) and not _KIND_OF_PICTURE.search(words):
        return prompting.read("reminder_groups")
    return prompting.read("reminder_picture")


def _may_be_talk(words: str) -> bool:
    """Say whether nothing may have to be found out: "Thanks!", "Are you sure?".

    A model that is told of this way out takes it where it should not.
    """
    return len(words.split()) < _QUESTION_WORDS


def _about_output(transcript: tuple[messages.Message, ...]) -> str:
    """Say again what was asked, for an output makes it forget parts of it, and the form."""
    question, since = _asked(transcript)
    # A repeat that was refused has the output of what it repeats.
    ran = [one for one in since if isinstance(one, messages.Answered) and not _is_refusal(one)]
    if not question or not ran:
        return ""
    outputs = [one for one in ran if _has_run(one)]
    if ran[-1] not in outputs:
        name = "reminder_failed"
    else:
        name = _name(outputs[0].text) if len(outputs) == 1 else "reminder_output"
    hint = _hint(ran[-1].text, _code_before(ran[-1], since))
    return prompting.read(name).format(question=question, hint=hint).strip()


def _asked(
    transcript: tuple[messages.Message, ...],
) -> tuple[str, tuple[messages.Message, ...]]:
    """Return a person's last words, and what came after them."""
    for at, one in reversed(list(enumerate(transcript))):
        if isinstance(one, messages.Told) and not one.is_ours:
            return _words(one), transcript[at + 1 :]
    return "", ()


def _code_before(last: messages.Answered, transcript: tuple[messages.Message, ...]) -> str:
    """Return the code whose output this is, if it was code."""
    calls = (call for one in transcript if isinstance(one, messages.Said) for call in one.calls)
    wishes = (tools.read(call) for call in calls if call.id == last.call_id)
    return next((one.code for one in wishes if isinstance(one, tools.RunCode)), "")


def _hint(output: str, code: str) -> str:
    """Say what the code did not reckon with, as far as it shows."""
    hints = []
    if _EMPTY_TEXT.search(code):
        hints.append(describing.MISSING_VALUES)
    if _COERCED.search(code) or _STRUNG.search(output):
        hints.append(describing.NUMBERS_IN_TEXT)
    if not hints and is_nothing(output):
        hints = [describing.MISSING_VALUES, describing.NUMBERS_IN_TEXT]
    return " ".join(hint for hint in hints if hint not in output)


def bare_answer(transcript: tuple[messages.Message, ...]) -> str:
    """Return an output that is the answer as it stands: a value, or a few lines with labels.

    A small model was told that what its code prints is the answer. Asked once more, it puts values
    into sentences where the question said "the number only", and miscopies some. Empty where the
    output is anything else.
    """
    last = transcript[-1] if transcript else None
    if not isinstance(last, messages.Answered) or not _has_run(last):
        return ""
    output = last.text.strip()
    lines = output.splitlines()
    is_plain = all(_PLAIN.fullmatch(line) for line in lines) and len(lines) <= _ANSWER_LINES
    is_told = len(lines) == 1 or all(_LABELLED.fullmatch(line) for line in lines)
    if not (is_plain and is_told) or len(output) > _ANSWER_CHARACTERS or is_nothing(output):
        return ""
    return "" if _may_be_talk(_asked(transcript)[0]) else output


def _has_run(one: messages.Answered) -> bool:
    return not one.text.endswith(describing.FAILED) and not _is_refusal(one)


def _is_refusal(one: messages.Answered) -> bool:
    return one.text.startswith(guards.REFUSAL)


def _name(output: str) -> str:
    """Choose what is said of a first output."""
    if is_nothing(output):
        return "reminder_nothing"
    return "reminder_long" if _LONG.search(output) else "reminder_output"


def is_nothing(output: str) -> bool:
    """Say whether it is what is printed where a condition did not fit the data."""
    return bool(_NOTHING.fullmatch(output) or _ALL_NAN.fullmatch(output))


def _words(told: messages.Told) -> str:
    """Take a person's own words: what came along stands before them."""
    return fitting.shortened(told.text.rpartition("\n\n")[2], _WORDS_CHARACTERS)


def objection(reply: messages.Reply, prompt: messages.Prompt, *, is_small: bool) -> str:
    """Object to a whole reply without code: to one that skips the code for a question, and else to
    one that has numbers in it which the model was never told.

    Empty where there is nothing to object to.
    """
    if reply.calls or reply.finish is not messages.Finish.STOP:
        return ""
    last = prompt.messages[-1]
    if is_small and isinstance(last, messages.Told) and not _may_be_talk(_words(last)):
        return prompting.read("guessed")
    if any(
        isinstance(one, messages.Told) and _words(one) == reply.text.strip()
        for one in prompt.messages
    ):
        return _ECHO
    told = [
        # Of a few rows nothing follows for the table.
        _ROWS.sub("", one.text) if isinstance(one, messages.Told) else one.text
        for one in prompt.messages
        if not isinstance(one, messages.Said)
    ]
    given = figures.known((prompt.system, *told))
    # A share may be told in percent.
    known = sorted([*given, *(100 * value for value in given if value <= 1)])
    unknown = [
        f"{value:.{places}f}"
        for value, places in figures.of(figures.without_list_marks(reply.text))
        if not figures.is_among(value, places, known)
    ]
    if unknown and isinstance(last, messages.Told):
        return prompting.read("guessed")
    if unknown:
        return prompting.read("misquoted").format(figures=", ".join(unknown[:_FIGURES]))
    rows = _left_out(reply.text, last.text) if is_small else []
    return prompting.read("left_out").format(rows=", ".join(rows)) if rows else ""


def _left_out(answer: str, output: str) -> list[str]:
    """Name the rows of a short series that an answer does not speak of."""
    lines = [line for line in output.strip().splitlines() if not _FOOTER.match(line)]
    rows = [_ROW.fullmatch(line) for line in lines]
    # The name of the index, where it has one.
    rows = rows[1:] if rows and rows[0] is None else rows
    if not 2 <= len(rows) <= _ROWS_OF_AN_ANSWER or None in rows:
        return []
    names = [row["name"] for row in rows if row is not None]
    return [
        name
        for name in names
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", answer, re.IGNORECASE)
    ]
