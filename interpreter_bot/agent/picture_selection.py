"""Select the pictures in messages to a model, within limits of number and size. Pure.

Nothing is decoded here. Unless its header shows that a picture is small, the sandbox scales it.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from interpreter_bot import values
from interpreter_bot.agent import chat_messages
from interpreter_bot.text import output_screens

MAX_SIDE_PIXELS: Final = 1568
"""The longest side of a picture; providers scale larger ones down themselves."""
MAX_BYTES: Final = 1024 * 1024
"""The size limit of one picture."""
HEAD_BYTES: Final = 16
"""How many bytes of a file show whether it is a picture."""
MAX_PICTURES_PER_EXECUTION: Final = 4
"""Pictures of one execution that a model is shown: the newest."""
MAX_PICTURES_PER_PROMPT: Final = 8
"""Pictures in one prompt: the newest."""

# These notes replace dropped pictures.
_NAMED_OMITTED_NOTE: Final = (
    "[The picture {name!r} is not shown here any more; view_image shows it again.]"
)
_OMITTED_NOTE: Final = "[The pictures of this output are not shown here any more.]"
_MAX_SOURCE_BYTES: Final = 4 * 1024 * 1024
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG: Final = b"\xff\xd8\xff"
_MAGIC: Final = (_PNG, _JPEG, b"GIF8")
_TYPES_WITH_PREVIEW: Final = (values.Html, values.Latex)


def is_picture(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is a picture that models can see."""
    return head.startswith(_MAGIC) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def png_size(data: bytes) -> tuple[int, int] | None:
    """Read width and height of a PNG."""
    if len(data) < 24 or not data.startswith(_PNG):
        return None
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def find_pictures(
    outputs: Iterable[output_screens.VisibleOutput], max_count: int
) -> tuple[bytes, ...]:
    """Return the last pictures among an execution's outputs, unscaled."""
    contents = filter(None, map(_picture_bytes, outputs))
    pictures = [
        data
        for data in contents
        if is_picture(data[:HEAD_BYTES]) and len(data) <= _MAX_SOURCE_BYTES
    ]
    return tuple(pictures[max(len(pictures) - max_count, 0) :])


def _picture_bytes(output: output_screens.VisibleOutput) -> bytes:
    if isinstance(output, values.Image):
        return output.preview or output.data
    return output.preview if isinstance(output, _TYPES_WITH_PREVIEW) else b""


def accept_unscaled_picture(data: bytes) -> chat_messages.Picture | None:
    """Return a PNG as a picture if its header shows that it needs no scaling."""
    size = png_size(data)
    if size is None or len(data) > MAX_BYTES or not 0 < min(size) <= max(size) <= MAX_SIDE_PIXELS:
        return None
    return chat_messages.Picture("image/png", data)


def accept_scaled_picture(mime: str, data: bytes) -> chat_messages.Picture | None:
    """Check a picture that the sandbox scaled; None if it exceeds a limit."""
    if mime == "image/png":
        return accept_unscaled_picture(data)
    is_jpeg = mime == "image/jpeg" and data.startswith(_JPEG) and len(data) <= MAX_BYTES
    return chat_messages.Picture(mime, data) if is_jpeg else None


def keep_newest(
    transcript: Sequence[chat_messages.Message],
) -> tuple[chat_messages.Message, ...]:
    """Replace old pictures by notes; the text beside a picture describes it.

    The result depends only on the number of pictures, so that it stays the same for some calls.
    """
    count = sum(len(_pictures_in(message)) for message in transcript)
    if not count:
        return tuple(transcript)
    # Pictures are dropped in batches, as each change makes the server's cache of all later messages
    # useless.
    batch = MAX_PICTURES_PER_PROMPT // 2
    excess = -(-max(count - MAX_PICTURES_PER_PROMPT, 0) // batch) * batch
    result = []
    for message in transcript:
        pictures = _pictures_in(message)
        omitted_count, excess = min(excess, len(pictures)), max(excess - len(pictures), 0)
        kept_pictures = tuple(picture for picture in pictures[omitted_count:] if picture.data)
        result.append(
            message
            if kept_pictures == pictures
            else _note_omitted(_with_pictures(message, kept_pictures), pictures)
        )
    return tuple(result)


def _note_omitted(
    message: chat_messages.Message, pictures: Iterable[chat_messages.Picture]
) -> chat_messages.Message:
    """Add to a message a note on each picture that it no longer has."""
    omitted = [picture for picture in pictures if picture not in _pictures_in(message)]
    lines = [_NAMED_OMITTED_NOTE.format(name=picture.name) for picture in omitted if picture.name]
    if len(lines) < len(omitted):
        lines.append(_OMITTED_NOTE)
    return dataclasses.replace(message, text="\n".join([message.text, *lines]))


def drop_pictures(
    transcript: Iterable[chat_messages.Message],
) -> tuple[chat_messages.Message, ...]:
    """Remove all pictures."""
    return tuple(
        _with_pictures(message, ()) if _pictures_in(message) else message for message in transcript
    )


def has_pictures(transcript: Iterable[chat_messages.Message]) -> bool:
    """Return whether any message has a picture."""
    return any(map(_pictures_in, transcript))


def drop_old_contents(transcript: Sequence[chat_messages.Message]) -> list[chat_messages.Message]:
    """Drop the content of all but the newest pictures."""
    result = list(transcript)
    remaining_count = MAX_PICTURES_PER_PROMPT
    for index in reversed(range(len(result))):
        pictures = _pictures_in(result[index])
        if not pictures:
            continue
        emptied_count = max(len(pictures) - max(remaining_count, 0), 0)
        remaining_count -= len(pictures)
        if any(picture.data for picture in pictures[:emptied_count]):
            emptied_pictures = [
                dataclasses.replace(picture, data=b"") for picture in pictures[:emptied_count]
            ]
            result[index] = _with_pictures(
                result[index], (*emptied_pictures, *pictures[emptied_count:])
            )
    return result


def restore_contents(
    transcript: Sequence[chat_messages.Message], contents: dict[str, bytes]
) -> list[chat_messages.Message]:
    """Restore the content of stored pictures, by SHA-256."""
    return [
        _with_pictures(
            message,
            tuple(
                dataclasses.replace(picture, data=contents.get(picture.sha256, b""))
                for picture in pictures
            ),
        )
        if (pictures := _pictures_in(message))
        else message
        for message in transcript
    ]


def list_pictures(transcript: Iterable[chat_messages.Message]) -> list[chat_messages.Picture]:
    """List all pictures, oldest first."""
    return [picture for message in transcript for picture in _pictures_in(message)]


def _pictures_in(message: chat_messages.Message) -> tuple[chat_messages.Picture, ...]:
    return () if isinstance(message, chat_messages.AssistantMessage) else message.pictures


def _with_pictures(
    message: chat_messages.Message, pictures: tuple[chat_messages.Picture, ...]
) -> chat_messages.Message:
    if isinstance(message, chat_messages.AssistantMessage):
        return message
    return dataclasses.replace(message, pictures=pictures)
