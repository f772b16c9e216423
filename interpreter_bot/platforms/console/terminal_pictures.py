"""Pictures within a terminal's text, by the protocols of kitty and of iTerm2.

Both accept the picture file unchanged, so this process decodes no files of hostile code.
Environment variables tell which protocol a terminal supports; tmux and screen forward neither.
Other terminals show the name of the picture and its path.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final, Literal, TextIO, TypeAlias

from interpreter_bot import values

Protocol: TypeAlias = Literal["kitty", "iterm2", ""]

_MAX_PICTURE_BYTES: Final = 8 * 1024 * 1024
_CHUNK_CHARACTERS: Final = 4096
_CELL_PIXELS: Final = 8
_KITTY_TERMINALS: Final = frozenset({"kitty", "ghostty"})
_ITERM2_TERMINALS: Final = frozenset({"iTerm.app", "WezTerm", "mintty"})


def choose_protocol(choice: str, environment: Mapping[str, str], out: TextIO) -> Protocol:
    """Return the protocol by which standard output shows pictures; empty for none.

    `choice` is a protocol, "auto" or "none".
    """
    if choice == "none" or not out.isatty():
        return ""
    match choice:
        case "kitty" | "iterm2":
            return choice
    program, terminal = environment.get("TERM_PROGRAM", ""), environment.get("TERM", "")
    if "TMUX" in environment or terminal.startswith(("screen", "tmux", "dumb")):
        return ""
    if program in _KITTY_TERMINALS or terminal in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    is_iterm2 = program in _ITERM2_TERMINALS or environment.get("LC_TERMINAL") == "iTerm2"
    return "iterm2" if is_iterm2 else ""


def draw_picture(
    output: values.Image | values.Html, protocol_name: Protocol, *, columns: int
) -> str:
    """Return the escapes that show a picture on a terminal; empty if it cannot show it."""
    data, mime = output.preview, "image/png"
    if isinstance(output, values.Image) and not data:
        data, mime = output.data, output.mime
    if not 0 < len(data) <= _MAX_PICTURE_BYTES:
        return ""
    if protocol_name == "iterm2" and mime in ("image/png", "image/jpeg", "image/gif"):
        width = f";width={columns}" if _is_wide(data, columns) else ""
        content = base64.b64encode(data).decode()
        return f"\x1b]1337;File=inline=1;size={len(data)}{width}:{content}\x07\n"
    if protocol_name == "kitty" and mime == "image/png":
        return _kitty_escapes(data, f",c={columns}" if _is_wide(data, columns) else "")
    return ""


def _kitty_escapes(data: bytes, width: str) -> str:
    content = base64.b64encode(data).decode()
    parts = [
        content[start : start + _CHUNK_CHARACTERS]
        for start in range(0, len(content), _CHUNK_CHARACTERS)
    ]
    # The picture is shown at the cursor. q=2 suppresses answers, which would be read as typed text.
    heads = [f"a=T,f=100,q=2{width},", *[""] * (len(parts) - 1)]
    return (
        "".join(
            f"\x1b_G{head}m={int(number < len(parts) - 1)};{part}\x1b\\"
            for number, (head, part) in enumerate(zip(heads, parts, strict=True))
        )
        + "\n"
    )


def _is_wide(data: bytes, columns: int) -> bool:
    """Return whether a PNG is wider than so many columns of about 8 pixels."""
    is_png = data[:8] == b"\x89PNG\r\n\x1a\n"
    return is_png and int.from_bytes(data[16:20], "big") > columns * _CELL_PIXELS
