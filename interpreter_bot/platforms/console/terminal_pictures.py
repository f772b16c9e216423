"""Pictures within a terminal's text, by the protocols of kitty and of iTerm2.

Both take the file as it is: nothing of a picture, which code made, is decoded in this process. A
terminal says in its environment which of them it knows; tmux and screen pass neither on. Other
terminals show the picture's name, and where it was saved.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final, Literal, TextIO, TypeAlias

from interpreter_bot import values

Protocol: TypeAlias = Literal["kitty", "iterm2", ""]

_MAX_BYTES: Final = 8 * 1024 * 1024
_CHUNK_CHARACTERS: Final = 4096
_CELL_PIXELS: Final = 8
_KITTY: Final = frozenset({"kitty", "ghostty"})
_ITERM2: Final = frozenset({"iTerm.app", "WezTerm", "mintty"})


def protocol(choice: str, environment: Mapping[str, str], out: TextIO) -> Protocol:
    """Return how standard output shows pictures; empty if it cannot, or is not to.

    Args:
        choice: a protocol, "auto" or "none".
        environment: where a terminal says what it is.
        out: standard output.
    """
    if choice == "none" or not out.isatty():
        return ""
    match choice:
        case "kitty" | "iterm2":
            return choice
    program, kind = environment.get("TERM_PROGRAM", ""), environment.get("TERM", "")
    if "TMUX" in environment or kind.startswith(("screen", "tmux", "dumb")):
        return ""
    if program in _KITTY or kind in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    is_iterm2 = program in _ITERM2 or environment.get("LC_TERMINAL") == "iTerm2"
    return "iterm2" if is_iterm2 else ""


def drawn(output: values.Image | values.Html, by: Protocol, *, columns: int) -> str:
    """Return what makes a terminal of so many columns show a picture; else nothing."""
    data, mime = output.preview, "image/png"
    if isinstance(output, values.Image) and not data:
        data, mime = output.data, output.mime
    if not 0 < len(data) <= _MAX_BYTES:
        return ""
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
    """Return whether a PNG is wider than so many cells, which are of about that many pixels."""
    is_png = data[:8] == b"\x89PNG\r\n\x1a\n"
    return is_png and int.from_bytes(data[16:20], "big") > columns * _CELL_PIXELS
