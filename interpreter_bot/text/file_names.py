"""Make the names of files safe: for this system, for displays, and for other systems. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_NAME_BYTES: Final = 200
"""The longest name that `safe_name` returns; a system allows 255, so a number can be added."""

# The backslash, look-alikes of the slash, and invisible letters.
_DECEIVING = frozenset(
    "\\\u2044\u2215\u2216\u29f5\u29f8\u29f9\ufe68\uff0f\uff3c\u115f\u1160\u2800\u3164\uffa0"
)
_SUFFIX = re.compile(r"(?:\.tar)?\.[^. ]{1,16}\Z")
_RESERVED = re.compile(
    r"(?:con|conin\$|conout\$|prn|aux|nul|com[\d¹²³]|lpt[\d¹²³]) *(?:\.|\Z)", re.IGNORECASE
)


def is_plain(character: str) -> bool:
    """Return whether a character is visible and unambiguous."""
    return character.isprintable() and character not in _DECEIVING


def safe_name(name: str) -> str:
    """Turn any file name into one safe path component.

    The result is the last part of the path, in NFC, never empty, and at most `MAX_NAME_BYTES` long
    with its suffix kept. Invisible characters are removed, and so are characters that mean
    something to shells, Windows or Markdown links. Deterministic and idempotent.
    """
    text = re.split(r"[/\\]", name.rstrip("/\\ "))[-1]
    text = "".join(map(_replace_unsafe, unicodedata.normalize("NFC", text)))
    text = _trim(unicodedata.normalize("NFC", text))
    if _RESERVED.match(text):
        text = f"_{text}"
    suffix = match[0] if (match := _SUFFIX.search(text)) else ""
    stem = text[: len(text) - len(suffix)].encode()[: MAX_NAME_BYTES - len(suffix.encode())]
    return _trim(stem.decode(errors="ignore").rstrip(". ") + suffix) or "file"


class PortablePaths:
    """Gives the files of one directory tree distinct paths that every system can unpack."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._directories: set[str] = set()

    def path(self, name: str) -> str:
        """Return a new path for a file: its own name if every system allows it."""
        *parents, last = [_make_portable(part) for part in name.split("/") if part] or ["_"]
        path = ""
        for parent in parents:
            # Systems that ignore case cannot have a file and a directory of the same name.
            place = f"{path}{parent}"
            while _fold(place) in self._files:
                place += "_"
            self._directories.add(_fold(place))
            path = f"{place}/"
        suffix = match[0] if (match := _SUFFIX.search(last)) else ""
        stem = last[: len(last) - len(suffix)]
        place, number = f"{path}{last}", 2
        while _fold(place) in self._files or _fold(place) in self._directories:
            place, number = f"{path}{stem} ({number}){suffix}", number + 1
        self._files.add(_fold(place))
        return place


def _make_portable(part: str) -> str:
    text = "".join("_" if _is_unportable(character) else character for character in part)
    stripped = text.rstrip(". ")
    text = stripped + "_" * (len(text) - len(stripped))
    return f"_{text}" if _RESERVED.match(text) else text


def _is_unportable(character: str) -> bool:
    return character in '\\:*?"<>|' or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _replace_unsafe(character: str) -> str:
    if character.isspace():
        return " "
    if character in '<>:"|?*' or (character.isprintable() and not is_plain(character)):
        return "_"
    return character if character.isprintable() else ""


def _trim(text: str) -> str:
    return re.sub(" +", " ", text).lstrip(".-~ ").rstrip(". ")
