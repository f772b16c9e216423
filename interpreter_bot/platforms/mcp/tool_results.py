"""Results of tool calls as content for clients: output of a run, files, sentences. Pure.

An encoded result stays below a megabyte, because clients of the SDK refuse larger events.
"""

from __future__ import annotations

import base64
import codecs
import mimetypes
import urllib.parse
from collections.abc import Iterable, Sequence
from typing import Final

import mcp_types

from interpreter_bot import events, values
from interpreter_bot.platforms.rendering import display_items, output_selection
from interpreter_bot.sessions import turn_log
from interpreter_bot.text import quantities
from interpreter_bot.wording import mcp_words

# An encoded character may take six bytes, so the text takes 120 kB at most.
_CAPABILITIES: Final = display_items.Capabilities(
    text_characters=20_000, text_lines=500, max_table_width=200, max_table_rows=50
)
_MAX_PICTURE_BYTES: Final = 600 * 1024
MAX_FILE_BYTES: Final = 512 * 1024
"""The most bytes of a file that one call returns."""
_MAX_TEXT_BYTES: Final = 128 * 1024
_MAX_FILES: Final = 500
_MAX_FILES_MADE: Final = 50
_MAX_NOTES: Final = 20
_PICTURE_SIGNATURES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}


def sentence_result(text: str, *, is_error: bool = False) -> mcp_types.CallToolResult:
    """Return a result of one sentence."""
    return mcp_types.CallToolResult(content=[_text_content(text)], is_error=is_error)


def run_result(log: turn_log.TurnLog, handle: str) -> mcp_types.CallToolResult:
    """Return the output of a run, how it ended, and the handle of its session."""
    content: list[mcp_types.ContentBlock] = []
    notices = [part.text for part in log.parts if isinstance(part, events.NoticeShown)]
    lines = [_bracket(notice) for notice in notices[:_MAX_NOTES]]
    remaining_bytes = _MAX_PICTURE_BYTES
    selector = output_selection.OutputSelector(_CAPABILITIES)
    cells = log.cells
    items = [item for cell in cells for item in selector.choose(cell.number, cell.screen.items)]
    for item in items:
        if isinstance(item, display_items.PictureItem) and len(item.data) <= remaining_bytes:
            remaining_bytes -= len(item.data)
            content += [*_lines_content(lines), _image_content(item.data, item.mime)]
            lines = []
        else:
            lines.append(_describe(item))
    finished = cells[-1].finished if cells else None
    is_ok = finished is not None and finished.ending is values.Ending.OK
    lines += [_bracket(sentence) for sentence in _describe_endings(finished, log.end)]
    if log.files:
        artifacts = [event.artifact for event in log.files.values()]
        file_lines = [
            _describe_file(artifact.name, artifact.size_bytes)
            for artifact in artifacts[:_MAX_FILES_MADE]
        ]
        lines.append(_bracket(mcp_words.files_made(file_lines, len(artifacts) - len(file_lines))))
    if not content and not lines:
        lines.append(_bracket(mcp_words.NO_OUTPUT))
    lines.append(_bracket(mcp_words.session_line(handle)))
    return mcp_types.CallToolResult(content=[*content, *_lines_content(lines)], is_error=not is_ok)


def file_list_result(infos: Sequence[values.FileInfo]) -> mcp_types.CallToolResult:
    """Return a list of files."""
    lines = [_describe_file(info.name, info.size_bytes) for info in infos[:_MAX_FILES]]
    if len(infos) > _MAX_FILES:
        lines.append(_bracket(mcp_words.more_files(len(infos) - _MAX_FILES)))
    return sentence_result("\n".join(lines) or _bracket(mcp_words.NO_FILES))


def file_result(info: values.FileInfo, data: bytes, start: int) -> mcp_types.CallToolResult:
    """Return a part of a file.

    Args:
        info: the file as it was opened.
        data: the part that was read.
        start: its offset in the file.
    """
    is_whole = start == 0 and len(data) >= info.size_bytes
    mime = next((kind for head, kind in _PICTURE_SIGNATURES.items() if data.startswith(head)), "")
    if mime and is_whole:
        return mcp_types.CallToolResult(content=[_image_content(data, mime)])
    content: mcp_types.ContentBlock
    text, count = _decode(data[:_MAX_TEXT_BYTES], is_last=len(data) <= _MAX_TEXT_BYTES)
    if text is not None:
        content, end = _text_content(text), start + count
    else:
        content, end = _bytes_content(info.name, data), start + len(data)
    hint = _bracket(mcp_words.how_to_continue(info.size_bytes, end))
    continuation = [] if end >= info.size_bytes else [_text_content(hint)]
    return mcp_types.CallToolResult(content=[content, *continuation])


def _decode(data: bytes, *, is_last: bool) -> tuple[str | None, int]:
    """Decode text up to its last complete character; return it and how many bytes it takes.

    The text is None if the bytes are no text.
    """
    if b"\0" in data:
        return None, 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data, final=False)
    except UnicodeDecodeError:
        return None, 0
    incomplete_bytes = len(decoder.getstate()[0])
    # A file that is nothing but an incomplete character is no text.
    return (
        (None, 0)
        if incomplete_bytes and is_last and incomplete_bytes == len(data)
        else (text, len(data) - incomplete_bytes)
    )


def _describe_endings(
    finished: values.Finished | None, end: events.TurnEnded | None
) -> Iterable[str]:
    """Yield sentences about the end of a run, unless its output shows how it ended."""
    if finished is not None:
        if finished.ending not in (values.Ending.OK, values.Ending.ERROR):
            yield finished.reason or mcp_words.code_ended(finished.ending.value)
        if finished.kernel_lost:
            yield mcp_words.VARIABLES_GONE
    if end is not None and end.sentence and (finished is None or not finished.reason):
        yield end.sentence


def _describe(item: display_items.Item) -> str:
    match item:
        case display_items.NoteItem():
            return _bracket(item.text)
        case display_items.PictureItem():
            return _describe_unsent(item.name, item.data, item.alt)
        case display_items.FileItem():
            return _describe_unsent(item.name, item.data, item.about)
        case display_items.PageItem():
            return _describe_unsent(item.name, item.html, item.title)
        case _:
            return item.text


def _describe_unsent(name: str, data: bytes, about: str) -> str:
    return _bracket(mcp_words.not_sent(name, quantities.size(len(data)), about))


def _bracket(text: str) -> str:
    return f"[{text}]"


def _describe_file(name: str, size_bytes: int) -> str:
    return f"{name} ({quantities.size(size_bytes)})"


def _lines_content(lines: Sequence[str]) -> list[mcp_types.ContentBlock]:
    return [_text_content("\n".join(lines))] if lines else []


def _text_content(text: str) -> mcp_types.TextContent:
    return mcp_types.TextContent(text=text)


def _image_content(data: bytes, mime: str) -> mcp_types.ImageContent:
    return mcp_types.ImageContent(data=base64.b64encode(data).decode("ascii"), mime_type=mime)


def _bytes_content(name: str, data: bytes) -> mcp_types.EmbeddedResource:
    return mcp_types.EmbeddedResource(
        resource=mcp_types.BlobResourceContents(
            uri=f"file:///mnt/data/{urllib.parse.quote(name)}",
            mime_type=mimetypes.guess_type(name)[0] or "application/octet-stream",
            blob=base64.b64encode(data).decode("ascii"),
        )
    )
