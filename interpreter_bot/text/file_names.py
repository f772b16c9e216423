"""Names of files that people send, made harmless; and which characters are. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_NAME_BYTES: Final = 200
"""Longest name that `safe_name` gives, so that a number still fits into the system's 255."""

# The escape's own sign, look-alikes of the slash, and invisible letters.
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
    """Make one harmless path component of any file name.

    The last part of a path, NFC, at most `MAX_NAME_BYTES` of UTF-8 with its suffix kept, without
    invisible characters and those with a meaning to shells, Windows or Markdown links, and never
    empty. Deterministic and idempotent.
    """
    text = re.split(r"[/\\]", name.rstrip("/\\ "))[-1]
    text = "".join(map(_harmless, unicodedata.normalize("NFC", text)))
    text = _trimmed(unicodedata.normalize("NFC", text))
    if _RESERVED.match(text):
        text = f"_{text}"
    suffix = match[0] if (match := _SUFFIX.search(text)) else ""
    stem = text[: len(text) - len(suffix)].encode()[: MAX_NAME_BYTES - len(suffix.encode())]
    return _trimmed(stem.decode(errors="ignore").rstrip(". ") + suffix) or "file"


class PortablePaths:
    """Gives files of one directory tree paths that every system can unpack, each only once."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._directories: set[str] = set()

    def path(self, name: str) -> str:
        """Return the path of a file: as it is named, where that is possible everywhere."""
        *parents, last = [_portable(part) for part in name.split("/") if part] or ["_"]
        path = ""
        for parent in parents:
            # A file under another spelling cannot be a directory, too.
            place = f"{path}{parent}"
            while _folded(place) in self._files:
                place += "_"
            self._directories.add(_folded(place))
            path = f"{place}/"
        suffix = match[0] if (match := _SUFFIX.search(last)) else ""
        stem = last[: len(last) - len(suffix)]
        place, number = f"{path}{last}", 2
        while _folded(place) in self._files or _folded(place) in self._directories:
            place, number = f"{path}{stem} ({number}){suffix}", number + 1
        self._files.add(_folded(place))
        return place


def _portable(part: str) -> str:
    text = "".join("_" if _is_unportable(character) else character for character in part)
    stripped = text.rstrip(". ")
    text = stripped + "_" * (len(text) - len(stripped))
    return f"_{text}" if _RESERVED.match(text) else text


def _is_unportable(character: str) -> bool:
    return character in '\\:*?"<>|' or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _harmless(character: str) -> str:
    if character.isspace():
        return " "
    if character in '<>:"|?*' or (character.isprintable() and not is_plain(character)):
        return "_"
    return character if character.isprintable() else ""


def _trimmed(text: str) -> str:
    return re.sub(" +", " ", text).lstrip(".-~ ").rstrip(". ")
