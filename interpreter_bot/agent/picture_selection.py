"""Pictures in messages to a model: which, how many, how large. Pure.

Nothing here decodes one. A picture that is not small by its own header is scaled down in the
sandbox.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from interpreter_bot import values
from interpreter_bot.agent import chat_messages
from interpreter_bot.text import output_screens

MAX_SIDE: Final = 1568
"""The longest side, in pixels: from there on providers scale down themselves."""
MAX_BYTES: Final = 1024 * 1024
"""The most bytes of one picture."""
HEAD_BYTES: Final = 16
"""The bytes of a file's head that tell whether it is a picture."""
MAX_OF_EXECUTION: Final = 4
"""The most pictures of one execution that a model is shown."""
MAX: Final = 8
"""The most pictures in a prompt: the newest."""

# In the place of dropped pictures. Words that change with them cost no cache more.
_NAMED_LEFT_OUT: Final = (
    "[The picture {name!r} is not shown here any more; view_image shows it again.]"
)
_LEFT_OUT: Final = "[The pictures of this output are not shown here any more.]"
_SOURCE_BYTES: Final = 4 * 1024 * 1024
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG: Final = b"\xff\xd8\xff"
_MAGIC: Final = (_PNG, _JPEG, b"GIF8")
_PREVIEWED: Final = (values.Html, values.Latex)


def is_picture(head: bytes) -> bool:
    """Return whether a file with this head is a picture of a kind that models see."""
    return head.startswith(_MAGIC) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def png_size(data: bytes) -> tuple[int, int] | None:
    """Read width and height of a PNG."""
    if len(data) < 24 or not data.startswith(_PNG):
        return None
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def of_outputs(outputs: Iterable[output_screens.Standing], max_count: int) -> tuple[bytes, ...]:
    """Return the last pictures that an execution showed, unscaled."""
    found = filter(None, map(_picture_bytes, outputs))
    seen = [data for data in found if is_picture(data[:HEAD_BYTES]) and len(data) <= _SOURCE_BYTES]
    return tuple(seen[max(len(seen) - max_count, 0) :])


def _picture_bytes(output: output_screens.Standing) -> bytes:
    if isinstance(output, values.Image):
        return output.preview or output.data
    return output.preview if isinstance(output, _PREVIEWED) else b""


def small(data: bytes) -> chat_messages.Picture | None:
    """Return a picture that may go to a model unscaled, judged by its head; else None."""
    size = png_size(data)
    if size is None or len(data) > MAX_BYTES or not 0 < min(size) <= max(size) <= MAX_SIDE:
        return None
    return chat_messages.Picture("image/png", data)


def scaled(mime: str, data: bytes) -> chat_messages.Picture | None:
    """Return a picture that the sandbox scaled, unless it is not what was asked for."""
    if mime == "image/png":
        return small(data)
    is_jpeg = mime == "image/jpeg" and data.startswith(_JPEG) and len(data) <= MAX_BYTES
    return chat_messages.Picture(mime, data) if is_jpeg else None


def newest(
    transcript: Sequence[chat_messages.Message], limit: int = MAX
) -> tuple[chat_messages.Message, ...]:
    """Drop old pictures, and say so in their place; the text beside them describes them.

    Which ones depends on their number alone, so that a prompt stays unchanged for some time.
    """
    count = sum(len(_of(one)) for one in transcript)
    if not count:
        return tuple(transcript)
    # Half of them at a time: each time, the servers' caches of all that follows are lost.
    batch = max(limit // 2, 1)
    excess = -(-max(count - limit, 0) // batch) * batch
    result = []
    for one in transcript:
        found = _of(one)
        left_out, excess = min(excess, len(found)), max(excess - len(found), 0)
        kept = tuple(picture for picture in found[left_out:] if picture.data)
        result.append(one if kept == found else _left_out(_with(one, kept), found))
    return tuple(result)


def _left_out(
    message: chat_messages.Message, found: Iterable[chat_messages.Picture]
) -> chat_messages.Message:
    """Say in a message which of its pictures it has no longer."""
    gone = [one for one in found if one not in _of(message)]
    lines = [_NAMED_LEFT_OUT.format(name=one.name) for one in gone if one.name]
    if len(lines) < len(gone):
        lines.append(_LEFT_OUT)
    return dataclasses.replace(message, text="\n".join([message.text, *lines]))


def without(transcript: Iterable[chat_messages.Message]) -> tuple[chat_messages.Message, ...]:
    """Drop the content of all pictures."""
    return tuple(_with(one, ()) if _of(one) else one for one in transcript)


def any_in(transcript: Iterable[chat_messages.Message]) -> bool:
    """Return whether there is any picture."""
    return any(map(_of, transcript))


def within_limits(transcript: Sequence[chat_messages.Message]) -> list[chat_messages.Message]:
    """Drop the content of all but the newest pictures; that they were there stays known."""
    result = list(transcript)
    left = MAX
    for place in reversed(range(len(result))):
        found = _of(result[place])
        if not found:
            continue
        emptied = max(len(found) - max(left, 0), 0)
        left -= len(found)
        if any(picture.data for picture in found[:emptied]):
            kept = [dataclasses.replace(one, data=b"") for one in found[:emptied]]
            result[place] = _with(result[place], (*kept, *found[emptied:]))
    return result


def fill(
    transcript: Sequence[chat_messages.Message], contents: dict[str, bytes]
) -> list[chat_messages.Message]:
    """Restore the content of stored pictures, by SHA-256."""
    return [
        _with(
            one,
            tuple(
                dataclasses.replace(picture, data=contents.get(picture.sha256, b""))
                for picture in found
            ),
        )
        if (found := _of(one))
        else one
        for one in transcript
    ]


def all_of(transcript: Iterable[chat_messages.Message]) -> list[chat_messages.Picture]:
    """List all pictures, oldest first."""
    return [picture for one in transcript for picture in _of(one)]


def _of(message: chat_messages.Message) -> tuple[chat_messages.Picture, ...]:
    return () if isinstance(message, chat_messages.AssistantMessage) else message.pictures


def _with(
    message: chat_messages.Message, found: tuple[chat_messages.Picture, ...]
) -> chat_messages.Message:
    if isinstance(message, chat_messages.AssistantMessage):
        return message
    return dataclasses.replace(message, pictures=found)
