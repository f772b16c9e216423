"""Links to files in a model's text: no terminal can follow them, so it shows the files' names."""

from __future__ import annotations

import re
import urllib.parse
from typing import Final

# Names such as "result (1).csv" are common.
_IN_NAME: Final = r"(?:[^()\n]|\([^()\n]{0,100}\))"
_LINK: Final = re.compile(
    r"!?\[(?P<label>[^\[\]\n]{0,200})\]"
    rf"\((?:sandbox|attachment):/{{0,3}}(?:mnt/data/)?(?P<name>{_IN_NAME}{{1,500}})\)"
)
_BEGINNING: Final = re.compile(
    r"!?(?:\[[^\[\]\n]{0,200}"
    r"(?:\](?:\((?:[a-z]{0,10}|(?:sandbox|attachment):"
    rf"{_IN_NAME}{{0,510}}(?:\([^()\n]{{0,100}})?))?)?)?\Z"
)


def replace(text: str) -> tuple[str, str]:
    """Replace links by names; return the text, and an end of it that may begin another link."""
    replaced = _LINK.sub(_draw, text)
    start = next(_BEGINNING.finditer(replaced)).start()
    return replaced[:start], replaced[start:]


def _draw(link: re.Match[str]) -> str:
    label, name = link["label"].strip("`* "), urllib.parse.unquote(link["name"])
    return name if label in ("", name, name.rpartition("/")[2]) else f"{label} ({name})"
