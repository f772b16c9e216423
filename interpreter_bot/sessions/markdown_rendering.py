"""Markdown as HTML, drawn in a separate process with bounded time and memory.

Markdown of people, models and code is hostile: a few kilobytes may take a parser minutes. A text
that is not drawn in time is shown as plain text.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import logging
import os
import resource
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final

import markdown_it

from interpreter_bot.text import markdown_cost

_log = logging.getLogger(__name__)

_MAX_CHARACTERS: Final = 100_000
_MAX_SECONDS: Final = 10
_MAX_MEMORY_BYTES: Final = 512 * 1024 * 1024
_MAX_LINE_BYTES: Final = 8 * 1024 * 1024
_COMMAND: Final = ("-I", "-B", "-m", "interpreter_bot.sessions.markdown_rendering")


async def render(texts: Iterable[str]) -> Mapping[str, str]:
    """Return the HTML of texts; a text that is not drawn in time becomes plain text."""
    pages = {text: f"<pre>{html.escape(text)}</pre>" for text in texts}
    # Short texts come first, as a long one may use up the time.
    quick_texts = sorted(
        (
            text
            for text in pages
            if len(text) <= _MAX_CHARACTERS and not markdown_cost.is_slow_to_parse(text)
        ),
        key=len,
    )
    if quick_texts:
        async for text, page in _draw(quick_texts):
            pages[text] = page
    return pages


async def _draw(texts: list[str]) -> AsyncIterator[tuple[str, str]]:
    """Let a process draw texts in order, and stop at the first that is not drawn in time."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *_COMMAND),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
        start_new_session=True,
        limit=_MAX_LINE_BYTES,
    )
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    writing = asyncio.create_task(_send_texts(process.stdin, texts), name="Markdown to be drawn")
    try:
        async with asyncio.timeout(2 * _MAX_SECONDS):
            for text in texts:
                line = await process.stdout.readline()
                if not line.endswith(b"\n"):
                    break
                yield text, json.loads(line)
    except (TimeoutError, ValueError) as error:
        _log.info("not all Markdown was drawn", exc_info=error)
    finally:
        writing.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _send_texts(writer: asyncio.StreamWriter, texts: list[str]) -> None:
    with contextlib.suppress(ConnectionError):
        for text in texts:
            writer.write(json.dumps(text).encode() + b"\n")
            await writer.drain()
        writer.close()


def main() -> None:
    """Draw each text of standard input, one a line, as JSON."""
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_SECONDS, _MAX_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # This preset escapes HTML, and draws no links with dangerous schemes.
    parser = markdown_it.MarkdownIt("js-default")
    for line in sys.stdin:
        sys.stdout.write(json.dumps(parser.render(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
