"""What keeps a small model from making its figures up. Pure.

It follows what it read last: so the last it reads is that figures come from code. Where it still
gives some that it cannot know, it is asked again.
"""

from __future__ import annotations

import re
from typing import Final

from interpreter_bot.agent import figures, messages, prompting

# Where files are said to be that a person sent.
_FOLDER: Final = "/mnt/data/"
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


def reminder(transcript: tuple[messages.Message, ...]) -> str:
    """Say what is to follow the last question; empty where there is nothing to compute with."""
    last = transcript[-1] if transcript else None
    if not isinstance(last, messages.Told) or last.is_ours or not _has_data(transcript):
        return ""
    # What came along stands before the person's own words.
    words = last.text.rpartition("\n\n")[2]
    if _ASKS.match(words) or not _PICTURE.search(words):
        return prompting.read("reminder")
    # It copies whatever way of drawing it reads of, so it reads of none that is not meant.
    if _GROUPS.search(words) and not _KIND_OF_PICTURE.search(words):
        return prompting.read("reminder_groups")
    return prompting.read("reminder_picture")


def _has_data(transcript: tuple[messages.Message, ...]) -> bool:
    return any(
        _FOLDER in one.text
        if isinstance(one, messages.Told)
        else isinstance(one, messages.Answered)
        for one in transcript
    )


def is_guess(reply: messages.Reply, prompt: messages.Prompt) -> bool:
    """Say whether a whole reply without code has numbers in it that the model was never told."""
    if reply.calls or reply.finish is not messages.Finish.STOP:
        return False
    told = [one.text for one in prompt.messages if not isinstance(one, messages.Said)]
    known = figures.known((prompt.system, *told))
    return not all(
        figures.is_among(value, places, known)
        for value, places in figures.of(figures.without_list_marks(reply.text))
    )
