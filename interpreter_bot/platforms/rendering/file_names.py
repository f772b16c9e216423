"""What the files that outputs become are called: short, safe, and the same again. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from interpreter_bot import values

_MOST_CHARACTERS: Final = 48
_OTHER: Final = re.compile(r"[^\w]+")
_FIGURE: Final = re.compile(r"^<?Figure\b")
# Names of devices on Windows, where people save what they download.
_RESERVED: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)", re.I)


def slug(title: str) -> str:
    """Make a title part of a file name; empty where nothing of it can be."""
    text = unicodedata.normalize("NFKC", title[: 8 * _MOST_CHARACTERS])
    text = _OTHER.sub("-", text).strip("-_").lower()[:_MOST_CHARACTERS].rstrip("-_")
    return "" if _RESERVED.fullmatch(text) else text


def of_image(image: values.Image) -> str:
    """Return the word that a picture is numbered by."""
    if image.mime == "image/gif":
        return "animation"
    if image.mime == "image/svg+xml":
        return "drawing"
    # A figure that was drawn at the end of a cell has its plain text; a photograph has another.
    return "figure" if _FIGURE.match(image.plain) else "image"


class FileNames:
    """Gives names within one turn: none twice, and the same output the same one again."""

    def __init__(self) -> None:
        self._given: dict[tuple[int, int], str] = {}
        self._taken: set[str] = set()

    def name(self, where: tuple[int, int], kind: str, suffix: str = "", *, title: str = "") -> str:
        """Name the file that an output becomes.

        Args:
            where: its cell and its number.
            kind: a word, such as "figure"; "figure-1" is the first of them.
            suffix: with its dot; files of one output differ in it alone.
            title: what it is about, which is the better name where it has one.
        """
        given = self._given.get(where)
        if given is None:
            word = slug(title)
            given = word or f"{kind}-1"
            count = 1
            while given in self._taken:
                count += 1
                given = f"{word or kind}-{count}"
            self._taken.add(given)
            self._given[where] = given
        return given + suffix
