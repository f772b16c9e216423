"""Discord's Markdown: foreign text made harmless in it. Pure.

`allowed_mentions` keeps mentions from notifying; here they are also kept from looking like ones.
Addresses are put in angle brackets, so that Discord does not fetch what a model wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from interpreter_bot.text import addresses, fences, safe_text

_BREAK: Final = "\u200b"
_LOOKALIKE: Final = "\u02cb"
_MENTION: Final = re.compile(r"@(?=everyone|here)|<(?=[@#][!&]?\d|id:)", re.IGNORECASE)
_SPAN: Final = re.compile(r"(?<!`)(?P<marks>`+)(?!`)(?P<code>[^`]*)(?P=marks)(?!`)")
_LINK: Final = re.compile(
    rf"!?\[(?P<label>[^\[\]\n]{{0,300}})\]\(\s{{0,3}}<?(?P<target>{addresses.PATTERN})>?"
    r"(?:\s{1,3}\"[^\"\n]{0,300}\")?\s{0,3}\)"
    r"|(?P<bare><?(?P<url>https?://[^\s<>\"]+)>?)",
    re.IGNORECASE,
)
# Addresses that clients turn into an invitation to join, with or without a scheme.
_INVITATION: Final = re.compile(
    r"(?<!\w)discord(?=(?:\.gg|\.new|(?:app)?\.com[/\\]+invite)[/\\])", re.IGNORECASE
)
_ADDRESS: Final = re.compile(r"https?://|www\.|[\w-]+\.[a-z]{2,}(?:/|\s|$)", re.IGNORECASE)
_MARKUP: Final = re.compile(r"[\\*_~`|\[\]<>]")
_ROW: Final = re.compile(r"\s*\|.*\|\s*\Z")
_RULE: Final = re.compile(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*\Z")


def code(text: str, language: str = "") -> str:
    """Return a code block that its text cannot leave; empty if there is nothing to show."""
    return fences.fenced(safe_text.harmless(text), language=language, style="broken")


def line(text: str, most_characters: int = 200) -> str:
    """Return foreign text as code within a line, cut if it is long."""
    text = safe_text.harmless(text)
    if len(text) > most_characters:
        text = text[: most_characters - 1] + "…"
    return fences.inline(text, style="broken")


def small(text: str) -> str:
    """Return a line of the bot in small print."""
    return "\n".join(f"-# {row}" for row in text.splitlines() if row.strip())


def plain(text: str) -> str:
    """Escape text within a line: nothing in it is markup, mention or link."""
    text = " ".join(safe_text.harmless(text).split())
    text = _MARKUP.sub(r"\\\g<0>", text)
    text = _INVITATION.sub(f"\\g<0>{_BREAK}", text)
    return text.replace("@", f"@{_BREAK}").replace("://", f":{_BREAK}//")


def prose(text: str) -> str:
    """Convert a model's Markdown to harmless Discord Markdown.

    Code blocks get fences that Discord knows and their text cannot leave; tables, which it does
    not know, become aligned code blocks.
    """
    return "\n".join(_blocks(safe_text.harmless(text).split("\n"))).strip("\n")


def _blocks(lines: list[str]) -> Iterator[str]:
    place, open_after = 0, [after for _, _, after in fences.scanned(lines)]
    while place < len(lines):
        fence = open_after[place]
        if fence is not None:
            end = place + 1
            while end < len(lines) and open_after[end] is not None:
                end += 1
            inside = "\n".join(lines[place + 1 : end])
            yield fences.fenced(inside, language=fence.language, style="broken")
            place = end + 1
        elif _is_table(lines, place):
            end = place
            while end < len(lines) and _ROW.match(lines[end]):
                end += 1
            yield _table(lines[place:end])
            place = end
        else:
            yield _row(lines[place])
            place += 1


def _is_table(lines: list[str], place: int) -> bool:
    return (
        place + 1 < len(lines)
        and bool(_ROW.match(lines[place]))
        and bool(_RULE.match(lines[place + 1]))
    )


def _table(lines: list[str]) -> str:
    rows = [
        [cell.strip().replace("**", "").strip("`") for cell in row.strip().strip("|").split("|")]
        for row in (lines[0], *lines[2:])
    ]
    count = max(map(len, rows))
    filled = [row + [""] * (count - len(row)) for row in rows]
    widths = [max(len(row[index]) for row in filled) for index in range(count)]
    drawn = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in filled]
    drawn.insert(1, "  ".join("─" * width for width in widths))
    return fences.fenced("\n".join(drawn), style="broken")


def _row(row: str) -> str:
    """Make a line harmless outside of its spans of code."""
    parts = []
    place = 0
    for span in _SPAN.finditer(row):
        parts.append(_outside(row[place : span.start()]))
        parts.append(fences.inline(span["code"], style="broken") or span[0])
        place = span.end()
    parts.append(_outside(row[place:]))
    return "".join(parts)


def _outside(text: str) -> str:
    # Backticks that close nothing could open code together with others, or close it.
    text = _LINK.sub(_link, text.replace("`", _LOOKALIKE))
    text = _INVITATION.sub(f"\\g<0>{_BREAK}", text)
    return _MENTION.sub(lambda found: f"{found[0]}{_BREAK}", text)


def _link(found: re.Match[str]) -> str:
    if found["bare"]:
        url = found["url"]
        address = addresses.without_trailing(url)
        return f"<{address}>{url[len(address) :]}"
    label, target = found["label"].strip(), found["target"]
    # A label that is itself an address could say another one than it leads to.
    if not label or _ADDRESS.search(label):
        return f"<{target}>"
    return f"[{label}](<{target}>)"
