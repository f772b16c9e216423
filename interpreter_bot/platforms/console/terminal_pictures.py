"""Pictures within a terminal's text, in the best way that it has.

The protocols of kitty and of iTerm2 take the file as it is; which of them a terminal knows, it says
in its environment, and within tmux or screen, which pass neither on, none. Others are asked whether
they know sixel; all that have many colours can show blocks. Both take pixels, see
`terminal_rasters`: nothing of a picture, which code made, is decoded in this process.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import logging
import os
import re
import select
import struct
import termios
import time
import tty
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TextIO, TypeAlias

from interpreter_bot import values
from interpreter_bot.platforms.console import terminal_rasters

_log = logging.getLogger(__name__)

Protocol: TypeAlias = Literal["kitty", "iterm2", "sixel", "blocks", ""]

_MOST_BYTES: Final = 8 * 1024 * 1024
_CHUNK_CHARACTERS: Final = 4096
_CELL_PIXELS: Final = 8
_KITTY: Final = frozenset({"kitty", "ghostty"})
_ITERM2: Final = frozenset({"iTerm.app", "WezTerm", "mintty"})
# Primary device attributes: all terminals answer, and 4 among the numbers stands for sixel.
_QUESTION: Final = b"\x1b[c"
_ANSWER: Final = re.compile(rb"\x1b\[\?([0-9;]*)c")
_SIXEL: Final = b"4"
_ANSWER_SECONDS: Final = 0.5
_ANSWER_BYTES: Final = 256
_MOST_SIDE: Final = 1200
# What is asked below a picture stands on the same screen.
_LINES_BELOW: Final = 2


def found(choice: str, environment: Mapping[str, str], out: TextIO) -> Pictures | None:
    """Find how standard output shows pictures; a terminal may be asked, and has half a second.

    Args:
        choice: a protocol, "auto" or "none".
        environment: where a terminal says what it is.
        out: standard output.

    Returns:
        What draws them; None if they cannot be shown, or are not to be.
    """
    if choice == "none" or not out.isatty():
        return None
    descriptor = out.fileno()
    is_true_colour = environment.get("COLORTERM") in ("truecolor", "24bit")
    by: Protocol = protocol(environment)
    match choice:
        case "kitty" | "iterm2" | "sixel" | "blocks":
            by = choice
        case _ if not by and environment.get("TERM", "dumb") != "dumb":
            if knows_sixel(descriptor):
                by = "sixel"
            elif _has_colours(environment) and out.encoding.lower().startswith("utf"):
                by = "blocks"
    return Pictures(by, descriptor, is_true_colour=is_true_colour) if by else None


def protocol(environment: Mapping[str, str]) -> Literal["kitty", "iterm2", ""]:
    """Return the protocol for files that a terminal names; empty if none that is known."""
    program, kind = environment.get("TERM_PROGRAM", ""), environment.get("TERM", "")
    if "TMUX" in environment or kind.startswith(("screen", "tmux", "dumb")):
        return ""
    if program in _KITTY or kind in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    is_iterm2 = program in _ITERM2 or environment.get("LC_TERMINAL") == "iTerm2"
    return "iterm2" if is_iterm2 else ""


def _has_colours(environment: Mapping[str, str]) -> bool:
    kind = environment.get("TERM", "")
    is_true = environment.get("COLORTERM") in ("truecolor", "24bit")
    return not environment.get("NO_COLOR") and (is_true or "256color" in kind or "direct" in kind)


def knows_sixel(descriptor: int) -> bool:
    """Ask a terminal whether it knows sixel; no answer in time is a no."""
    try:
        if os.tcgetpgrp(descriptor) != os.getpgrp():
            return False  # In the background, asking would stop this process.
        with _unbuffered(descriptor):
            if select.select([descriptor], [], [], 0)[0]:
                return False  # What was typed already is for others to read.
            os.write(descriptor, _QUESTION)
            answer = _answer(descriptor, time.monotonic() + _ANSWER_SECONDS)
    except (OSError, termios.error) as error:
        # It cannot be read from, or is not the terminal that this was started at.
        _log.info("the terminal cannot be asked", exc_info=error)
        return False
    return answer is not None and _SIXEL in answer[1].split(b";")


def _answer(descriptor: int, end: float) -> re.Match[bytes] | None:
    read = b""
    while len(read) < _ANSWER_BYTES:
        rest = max(end - time.monotonic(), 0)
        if not select.select([descriptor], [], [], rest)[0]:
            return None
        chunk = os.read(descriptor, _ANSWER_BYTES)
        read += chunk
        if not chunk or (answer := _ANSWER.search(read)) is not None:
            return answer if chunk else None
    return None


@contextlib.contextmanager
def _unbuffered(descriptor: int) -> Iterator[None]:
    """Let what comes be read at once, and keep it from being shown."""
    before = termios.tcgetattr(descriptor)
    # Not the default, which would throw away what was typed already.
    tty.setcbreak(descriptor, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


class Pictures:
    """Draws pictures at a terminal, no larger than it is."""

    def __init__(self, by: Protocol, descriptor: int, *, is_true_colour: bool) -> None:
        """Draw nothing yet.

        Args:
            by: how.
            descriptor: of the terminal, which says how large it is.
            is_true_colour: it has more than 256 colours.
        """
        self.by = by
        self._descriptor = descriptor
        self._is_true_colour = is_true_colour

    def drawn(self, output: values.Image | values.Html) -> str:
        """Return what makes the terminal show a picture, which may take seconds; else nothing."""
        data, mime = output.preview, "image/png"
        if isinstance(output, values.Image) and not data:
            data, mime = output.data, output.mime
        if not 0 < len(data) <= _MOST_BYTES:
            return ""
        if self.by in ("kitty", "iterm2"):
            return _as_file(data, mime, self.by, columns=self._size()[1])
        return self._as_pixels(data) if mime == "image/png" else ""

    def _size(self) -> tuple[int, int, int, int]:
        """Return lines, columns, and the width and height of all of them in pixels."""
        told = fcntl.ioctl(self._descriptor, termios.TIOCGWINSZ, bytes(8))
        lines, columns, width, height = struct.unpack("HHHH", told)
        lines, columns = lines or 24, columns or 80
        # Over some connections it says nothing of pixels.
        return (
            lines,
            columns,
            width or columns * _CELL_PIXELS,
            height or lines * 2 * _CELL_PIXELS,
        )

    def _as_pixels(self, png: bytes) -> str:
        lines, columns, width, height = self._size()
        used = max(lines - _LINES_BELOW, 1)
        if self.by == "sixel":
            bounds = min(width, _MOST_SIDE), min(height * used // lines, _MOST_SIDE)
        else:
            bounds = columns, 2 * used
        raster = terminal_rasters.decoded(png, columns=bounds[0], lines=bounds[1])
        if raster is None:
            return ""
        if self.by == "sixel":
            return terminal_rasters.sixel(raster)
        return terminal_rasters.half_blocks(raster, is_true_colour=self._is_true_colour)


def _as_file(data: bytes, mime: str, by: Protocol, *, columns: int) -> str:
    if by == "iterm2" and mime in ("image/png", "image/jpeg", "image/gif"):
        width = f";width={columns}" if _is_wide(data, columns) else ""
        content = base64.b64encode(data).decode()
        return f"\x1b]1337;File=inline=1;size={len(data)}{width}:{content}\x07\n"
    if by == "kitty" and mime == "image/png":
        return _for_kitty(data, f",c={columns}" if _is_wide(data, columns) else "")
    return ""


def _for_kitty(data: bytes, width: str) -> str:
    content = base64.b64encode(data).decode()
    parts = [
        content[start : start + _CHUNK_CHARACTERS]
        for start in range(0, len(content), _CHUNK_CHARACTERS)
    ]
    # It is shown at the cursor, and its answer would be taken for what a person types.
    heads = [f"a=T,f=100,q=2{width},", *[""] * (len(parts) - 1)]
    return (
        "".join(
            f"\x1b_G{head}m={int(number < len(parts) - 1)};{part}\x1b\\"
            for number, (head, part) in enumerate(zip(heads, parts, strict=True))
        )
        + "\n"
    )


def _is_wide(data: bytes, columns: int) -> bool:
    """Say whether a PNG is wider than so many cells, which are of about that many pixels."""
    is_png = data[:8] == b"\x89PNG\r\n\x1a\n"
    return is_png and int.from_bytes(data[16:20], "big") > columns * _CELL_PIXELS
