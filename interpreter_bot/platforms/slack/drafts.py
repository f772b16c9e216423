"""An answer as the messages that are wanted. Pure.

A picture stands in a message of its own, below the words that came before it: Slack shows a picture
to everybody only if its message is *posted* with it. One that an edit adds, or that is streamed, is
an empty frame to other readers (slackapi/java-slack-sdk#1441, slackapi/python-slack-sdk#1961).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from interpreter_bot.platforms.rendering import message_splitting
from interpreter_bot.platforms.slack import answer_contents, blocks
from interpreter_bot.wording import slack_words

WORKING: Final = f"_{slack_words.WORKING}_"
"""The first sign of an answer."""

_MAX_PICTURES: Final = 40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One wanted message.

    Attributes:
        text: Markdown, harmless.
        pictures: in place of text.
        below: blocks under both.
    """

    text: str = ""
    pictures: tuple[answer_contents.Picture, ...] = ()
    below: tuple[blocks.Block, ...] = ()


def draw(
    pieces: Sequence[answer_contents.Piece],
    below: Sequence[blocks.Block],
    *,
    max_characters: int,
    with_details: bool,
    heading: str = "",
    live: str = "",
    is_final: bool = True,
) -> list[Draft]:
    """Draw an answer.

    Args:
        pieces: of it.
        below: blocks under the last message.
        max_characters: of the text of a message.
        with_details: details of tasks are shown.
        heading: Markdown above it.
        live: Markdown under it, which may still change.
        is_final: it is complete; else its last message has text, which can be edited.
    """
    parts: list[str | tuple[answer_contents.Picture, ...]] = [heading]
    for run in answer_contents.runs(pieces):
        pictures = tuple(piece for piece in run if isinstance(piece, answer_contents.Picture))
        parts.append(pictures or answer_contents.markdown(run, with_details=with_details))
    parts.append(live)
    drafts: list[Draft] = []
    text = ""
    for part in parts:
        if isinstance(part, str):
            text = f"{text}\n\n{part}".strip("\n")
            continue
        drafts += _pages(text, max_characters)
        text = ""
        for start in range(0, len(part), _MAX_PICTURES):
            drafts.append(Draft(pictures=part[start : start + _MAX_PICTURES]))
    drafts += _pages(text or ("" if is_final else WORKING), max_characters)
    if not drafts or len(drafts[-1].text) + blocks.size(below) > blocks.MAX_CHARACTERS:
        drafts.append(Draft())
    drafts[-1] = dataclasses.replace(drafts[-1], below=tuple(below))
    return drafts


def _pages(text: str, max_characters: int) -> list[Draft]:
    return [Draft(text=page) for page in message_splitting.split(text, max_characters)]
