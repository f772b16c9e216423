"""The model's memory of a session, stored turn by turn.

A turn stores the messages that it added, or all messages if it summarised older ones. A turn that
was cut off, because the bot died or before the model was asked, stores none; it is described by its
record instead.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from interpreter_bot import values
from interpreter_bot.agent import (
    chat_messages,
    context_windows,
    observations,
    picture_selection,
    transcripts,
)
from interpreter_bot.store import databases, records
from interpreter_bot.text import output_screens

_log = logging.getLogger(__name__)

_MAX_TURNS: Final = 100
# Turns are dropped in batches, as each change at the beginning invalidates model servers' caches.
_TURNS_PER_BATCH: Final = 50
_MAX_PART_CHARACTERS: Final = 1500
_MAX_TURN_CHARACTERS: Final = 12_000
_CUT_OFF_REASONS: Final = {
    values.TurnStatus.INTERRUPTED: (
        "This turn was cut off before its end, because the bot was restarted."
    ),
    values.TurnStatus.STOPPED: "The person stopped this turn before anything came of it.",
    values.TurnStatus.FAILED: "This turn failed before anything came of it: {answer}",
}
_PERSON_CODE_HEADING: Final = "[The person ran this code in the same kernel, without you:]"
_JOB_HEADING: Final = "[This code of yours went on in the background, and has ended:]"
RESET: Final[Mapping[str, Any]] = {"messages": [], "is_whole": True}
"""The stored memory of a reset."""


async def load(
    database: databases.Database, session_id: int, *, before: int
) -> list[chat_messages.Message]:
    """Load the messages of a session before one of its turns, whose id is `before`."""
    entries: list[chat_messages.Message] = []
    async with database.transaction(is_writing=False):
        turns = await database.turns.list_for_session(
            session_id, limit=_MAX_TURNS + 1, before=before
        )
        if len(turns) > _MAX_TURNS:
            count = await database.turns.count(session_id, before=before)
            turns = turns[
                -(count - _TURNS_PER_BATCH * -(-(count - _MAX_TURNS) // _TURNS_PER_BATCH)) :
            ]
        ids = [turn.id for turn in turns]
        parts = await database.parts.list_for_turns(ids, kind=records.PartKind.MEMORY)
        # Parts with an output are pictures that the memory refers to.
        details = {part.turn_id: part.detail for part in parts if part.output is None}
        for turn in turns:
            detail = details.get(turn.id)
            if detail is None:
                # Cut-off turns are described, as people refer to them.
                if turn.status in _CUT_OFF_REASONS:
                    entries += await _describe_cut_off(database, turn)
                continue
            if detail.get("is_whole"):
                entries = []
            entries += _decode(detail)
    return await _load_pictures(entries, database)


async def _load_pictures(
    entries: list[chat_messages.Message], database: databases.Database
) -> list[chat_messages.Message]:
    """Return the messages with the contents of the pictures that a model may be shown again."""
    pictures = picture_selection.list_pictures(entries)[
        -picture_selection.MAX_PICTURES_PER_PROMPT :
    ]
    contents = {picture.sha256: await database.blobs.load(picture.sha256) for picture in pictures}
    return picture_selection.restore_contents(
        entries, {digest: data for digest, data in contents.items() if data}
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TurnMemory:
    """The model's memory of a session, to which a turn adds messages.

    Attributes:
        transcript: the session's transcript, including this turn.
        earlier_messages: the messages before this turn.
        was_replaced: whether earlier messages were already replaced when this bot resumed the turn.
    """

    transcript: transcripts.Transcript
    earlier_messages: tuple[chat_messages.Message, ...]
    was_replaced: bool = False

    @property
    def _stored_messages(self) -> tuple[bool, tuple[chat_messages.Message, ...]]:
        """Whether all messages are stored, as earlier ones were replaced; and the stored ones."""
        entries, count = self.transcript.entries, len(self.earlier_messages)
        is_whole = self.was_replaced or entries[:count] != self.earlier_messages
        return is_whole, entries if is_whole else entries[count:]

    def detail(self) -> dict[str, Any]:
        """Return the memory as JSON to be stored."""
        is_whole, messages = self._stored_messages
        return {
            "messages": [chat_messages.to_dict(message) for message in messages],
            "is_whole": is_whole,
        }

    def list_pictures(self) -> list[values.Image]:
        """Return the pictures whose digests are in the stored memory."""
        pictures = picture_selection.list_pictures(self._stored_messages[1])
        return [
            values.Image(mime=picture.mime, data=picture.data)
            for picture in pictures
            if picture.data
        ]


async def begin_memory(database: databases.Database, session_id: int, *, before: int) -> TurnMemory:
    """Begin the memory of a turn, whose id is `before`."""
    transcript = transcripts.Transcript(await load(database, session_id, before=before))
    return TurnMemory(transcript, transcript.entries)


async def restore_memory(
    database: databases.Database, session_id: int, detail: Mapping[str, Any], *, before: int
) -> TurnMemory:
    """Restore the memory of a turn that another bot began; its last calls may have no results.

    Args:
        detail: the stored memory of the turn.
    """
    is_whole = bool(detail.get("is_whole"))
    earlier_memory = TurnMemory(transcripts.Transcript(), ())
    if not is_whole:
        earlier_memory = await begin_memory(database, session_id, before=before)
    messages = await _load_pictures(_decode(detail), database)
    transcript = transcripts.Transcript(
        [*earlier_memory.earlier_messages, *messages], is_resumed=True
    )
    return TurnMemory(transcript, earlier_memory.earlier_messages, was_replaced=is_whole)


def describe_code_run(
    code: str,
    outputs: Iterable[values.Output],
    finished: values.Finished,
    max_characters: int,
    *,
    is_job: bool = False,
) -> list[chat_messages.Message]:
    """Describe for the model a run of the person's code, or of the model's own job."""
    screen = output_screens.Screen()
    for output in outputs:
        screen.show(output)
    shown_code = context_windows.shorten(code, max_characters)
    text = observations.describe_execution(screen.outputs, finished, max_characters)
    heading = _JOB_HEADING if is_job else _PERSON_CODE_HEADING
    return [
        chat_messages.UserMessage(
            f"{heading}\n```python\n{shown_code}\n```\n[It showed:]\n{text}",
            is_from_bot=True,
        )
    ]


def _decode(detail: Mapping[str, Any]) -> list[chat_messages.Message]:
    try:
        return [chat_messages.from_dict(message) for message in detail["messages"]]
    except (ValueError, KeyError, TypeError):
        _log.exception("the stored memory of a turn cannot be read")
        return []


async def _describe_cut_off(
    database: databases.Database, turn: records.Turn
) -> Sequence[chat_messages.Message]:
    parts = await database.parts.list_for_turn(turn.id)
    lines = []
    for part in parts:
        text = context_windows.shorten(part.text, _MAX_PART_CHARACTERS)
        if part.kind is records.PartKind.CODE:
            lines.append(f"Code that was run:\n{text}")
        elif part.kind is records.PartKind.TEXT:
            lines.append(f"You had said: {text}")
        elif part.kind is records.PartKind.NOTICE:
            lines.append(f"The person was told: {text}")
        elif part.output is not None and part.output.plain:
            lines.append(
                f"It showed: {context_windows.shorten(part.output.plain, _MAX_PART_CHARACTERS)}"
            )
    text = context_windows.shorten("\n".join(lines), _MAX_TURN_CHARACTERS)
    reason = _CUT_OFF_REASONS[turn.status].format(answer=turn.answer)
    remark = chat_messages.UserMessage(
        "[" + "\n".join(filter(None, (text, reason))) + "]", is_from_bot=True
    )
    return [chat_messages.UserMessage(turn.request), remark] if turn.request else [remark]
