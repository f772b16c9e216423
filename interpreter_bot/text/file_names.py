"""Names of files that people send, made harmless; and which characters are. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

NAME_BYTES: Final = 200
"""Longest name that `safe_name` gives, so that a number still fits into the system's 255."""

# The escape's own sign, look-alikes of the slash, and invisible letters.
_DECEIVING = frozenset(
    "\\\u2044\u2215\u2216\u29f5\u29f8\u29f9\ufe68\uff0f\uff3c\u115f\u1160\u2800\u3164\uffa0"
)
_SUFFIX = re.compile(r"(?:\.tar)?\.[^. ]{1,16}\Z")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d) *(?:\.|\Z)", re.IGNORECASE)


def is_plain(character: str) -> bool:
    """Return whether a character is visible and unambiguous."""
    return character.isprintable() and character not in _DECEIVING


def safe_name(name: str) -> str:
    """Make one harmless path component of any file name.

    The last part of a path, NFC, at most `NAME_BYTES` of UTF-8 with its suffix kept, without
    invisible characters and those with a meaning to shells, Windows or Markdown links, and never
    empty. Deterministic and idempotent.
    """
    text = re.split(r"[/\\]", name.rstrip("/\\ "))[-1]
    text = "".join(map(_harmless, unicodedata.normalize("NFC", text)))
    text = _trimmed(unicodedata.normalize("NFC", text))
    if _RESERVED.match(text):
        text = f"_{text}"
    suffix = found[0] if (found := _SUFFIX.search(text)) else ""
    stem = text[: len(text) - len(suffix)].encode()[: NAME_BYTES - len(suffix.encode())]
    return _trimmed(stem.decode(errors="ignore").rstrip(". ") + suffix) or "file"


def _harmless(character: str) -> str:
    if character.isspace():
        return " "
    if character in '<>:"|?*' or (character.isprintable() and not is_plain(character)):
        return "_"
    return character if character.isprintable() else ""


def _trimmed(text: str) -> str:
    return re.sub(" +", " ", text).lstrip(".-~ ").rstrip(". ")
