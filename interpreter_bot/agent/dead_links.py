"""Dead links in a model's answer: to workspace files, or to files that do not exist. Pure.

Models write `[result](sandbox:/mnt/data/result.csv)`, which no platform can follow; the file is
delivered beside the answer instead, so its plain name is what helps. Code is left as it is.
"""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Collection, Iterator
from typing import Final

_HOME: Final = r"(?:sandbox:|attachment:|file:)/{0,3}(?:mnt/data/)?|/?mnt/data/"
_LINK: Final = re.compile(
    rf"!?\[(?P<label>[^\[\]\n]{{0,500}})\]\(\s*<?(?P<target>(?:{_HOME})[^()\n<>]{{1,500}}?"
    r"|[^()\s:/#?]{1,200}\.\w{1,8})>?(?:\s+\"[^\"\n]{0,200}\")?\s*\)"
    r"|(?P<bare>\bsandbox:/{0,3}(?:mnt/data/)?[^\s()<>\[\]\"'`]{1,500})"
    # Matched last, so that a link may have code for its label, and passed over.
    r"|(?P<code>`[^`\n]{1,500}`)"
)
_PREFIX: Final = re.compile(rf"\A(?:{_HOME})")
# Not the rule of `text.fences`: marks close code whatever follows them, open it even if they end in
# the same line, and are indented by three at most. What counts as a claim depends on it.
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_TRAILING: Final = ".,;:!?"


@dataclasses.dataclass(frozen=True, slots=True)
class RewrittenText:
    """A text without dead links, and the claimed files that do not exist, in order."""

    text: str
    missing: tuple[str, ...]


def rewrite(text: str, existing: Collection[str]) -> RewrittenText:
    """Replace links to workspace files by the files' names.

    Args:
        text: Markdown.
        existing: names of the files there are.
    """
    missing: dict[str, None] = {}

    def one(match: re.Match[str]) -> str:
        if match["code"]:
            return match[0]
        target = match["target"] or match["bare"]
        rest = ""
        if match["bare"]:
            target, rest = _without_trailing(target)
        name = urllib.parse.unquote(_PREFIX.sub("", target.strip())).strip()
        if name not in existing:
            missing[name] = None
        label = (match["label"] or "").strip("`* ")
        shown = f"`{name}`" if "`" not in name else name
        says_it = not label or label == name or label == name.rpartition("/")[2]
        return (shown if says_it else f"{label} ({shown})") + rest

    lines = [line if is_code else _LINK.sub(one, line) for line, is_code in marked_lines(text)]
    return RewrittenText("\n".join(lines), tuple(missing))


def marked_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Iterate over the lines of an answer, each with whether it is code or its fence."""
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        yield line, bool(fence or found)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence):
            fence = ""


def _without_trailing(target: str) -> tuple[str, str]:
    kept = target.rstrip(_TRAILING)
    return kept, target[len(kept) :]
