"""What keeps a small model from making its figures up. Pure.

It follows what it read last: so the last it reads is that figures come from code, and, once there
is an output, what was asked. An output that says nothing is looked into, one that says all is the
answer. Where a reply still has figures that cannot be known, it is asked for again.
"""

from __future__ import annotations

import re
from typing import Final

from interpreter_bot.agent import claims, describing, figures, fitting, guards, messages, prompting

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
# The line of pandas in place of those that it does not print.
_CUT: Final = re.compile(r"^(?:\.\.+ .*| +\.\.\. *)$", re.MULTILINE)
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
        return _about_output(last, transcript)
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


def _about_output(last: messages.Answered, transcript: tuple[messages.Message, ...]) -> str:
    """Say again what was asked, for an output makes it forget parts of it, and the form."""
    if not _has_run(last):
        return ""
    outputs = 0
    for one in reversed(transcript):
        outputs += _has_run(one)
        if isinstance(one, messages.Told) and not one.is_ours:
            name = _name(last.text) if outputs == 1 else "reminder_output"
            return prompting.read(name).format(question=_words(one))
    return ""


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
    told = next(
        (one for one in reversed(transcript) if isinstance(one, messages.Told) and not one.is_ours),
        None,
    )
    return output if told is not None and not _may_be_talk(_words(told)) else ""


def _has_run(one: messages.Message) -> bool:
    is_output = isinstance(one, messages.Answered)
    return (
        is_output
        and not one.text.endswith(describing.FAILED)
        and not one.text.startswith(guards.REFUSAL)
    )


def _name(output: str) -> str:
    """Choose what is said of a first output."""
    if is_nothing(output):
        return "reminder_nothing"
    return "reminder_long" if _CUT.search(output) else "reminder_output"


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
    if not unknown:
        return ""
    if isinstance(last, messages.Told):
        return prompting.read("guessed")
    return prompting.read("misquoted").format(figures=", ".join(unknown[:_FIGURES]))
