"""Links to files in a model's text: a terminal cannot follow them, so it shows the files' names."""

from __future__ import annotations

import re
import urllib.parse
from typing import Final

# Names may contain parentheses, such as "result (1).csv".
_NAME_PART: Final = r"(?:[^()\n]|\([^()\n]{0,100}\))"
_LINK: Final = re.compile(
    r"!?\[(?P<label>[^\[\]\n]{0,200})\]"
    rf"\((?:sandbox|attachment):/{{0,3}}(?:mnt/data/)?(?P<name>{_NAME_PART}{{1,500}})\)"
)
_UNFINISHED_LINK: Final = re.compile(
    r"!?(?:\[[^\[\]\n]{0,200}"
    r"(?:\](?:\((?:[a-z]{0,10}|(?:sandbox|attachment):"
    rf"{_NAME_PART}{{0,510}}(?:\([^()\n]{{0,100}})?))?)?)?\Z"
)


def replace_links(text: str) -> tuple[str, str]:
    """Replace links by names; split off the end of the text if it may be an unfinished link."""
    new_text = _LINK.sub(_format_link, text)
    start = next(_UNFINISHED_LINK.finditer(new_text)).start()
    return new_text[:start], new_text[start:]


def _format_link(link: re.Match[str]) -> str:
    label, name = link["label"].strip("`* "), urllib.parse.unquote(link["name"])
    return name if label in ("", name, name.rpartition("/")[2]) else f"{label} ({name})"
