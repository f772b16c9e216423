"""Slack's Markdown and mrkdwn: foreign text made harmless in it, lists of files and facts.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from interpreter_bot import values
from interpreter_bot.platforms.rendering import session_facts
from interpreter_bot.text import addresses, fences, quantities

_INVISIBLE: Final = "\u200b"
# Whether Slack obeys these within Markdown is not documented: they are broken everywhere.
_TOKENS: Final = re.compile(
    r"<(?=[@#!])|@(?=(?:channel|here|everyone)\b)|<(?=[a-z][a-z+.-]*:[^<>\n]*\|)"
)
# The beginning of one of those, whose end may come with the next piece of a stream.
_BEGINNINGS: Final = re.compile(
    r"(?:<[@#!]?@?[a-z]{0,8}|<[a-z][a-z+.-]*:?[^<>\n|]{0,500}|@[a-z]{0,8})\Z"
)
# With what else may stand in it: angle brackets and a title.
_SHOWN_LINK: Final = re.compile(
    rf"\[([^\]\n]{{1,300}})\]\([ \t]*<?({addresses.PATTERN})>?"
    r"(?:[ \t]+[\"'(][^\n]{0,300}?[\"')])?[ \t]*\)"
)
# One whose end may still come; its title may stand in parentheses.
_OPEN_LINK: Final = re.compile(r"\](?:\((?:[^()\n]|\([^()\n]*\))*(?:\([^()\n]*)?)?\Z")
_SPAN: Final = re.compile(r"(?<!`)(?P<marks>`+)(?!`)[^\n]*?(?<!`)(?P=marks)(?!`)")
_ADDRESS: Final = re.compile(
    rf"(?P<span>{_SPAN.pattern})|(?P<ticks>`+)"
    r"|(?P<label>\]\()?<?(?P<url>https?://[^\s<>`]+)>?",
    re.IGNORECASE,
)
_LOOKALIKE: Final = "\u02cb"
_MOST_FILES: Final = 100
_LONGEST_SPAN: Final = 300
_LONGEST_ADDRESS: Final = 2_000
_EMPHASIS: Final = " \t*_~`"
_HOST: Final = re.compile(r"(?:https?://)?((?:[\w-]+\.)+[a-z]{2,24})(?:[/?#:]|\Z)", re.IGNORECASE)


def defused(text: str) -> str:
    """Break mentions and misleading links in Markdown."""
    text = _SHOWN_LINK.sub(_honest, text)
    return _TOKENS.sub(lambda found: found[0] + _INVISIBLE, text)


def _honest(found: re.Match[str]) -> str:
    """Show a link's address if its text pretends to lead elsewhere."""
    label, url = found[1], found[2]
    pretended, real = _HOST.match(label.strip(_EMPHASIS)), _HOST.match(url)
    if pretended and real and pretended[1].lower() != real[1].lower():
        return url
    return found[0]


def unlinked(text: str, fence: fences.Fence | None) -> str:
    """Write addresses as code, because Slack could fetch what a link leads to.

    Args:
        text: Markdown, harmless; with no span of code and no address that is cut.
        fence: the one that is open before it.
    """
    return "".join(
        line if before or after else _ADDRESS.sub(_as_code, line)
        for before, line, after in fences.scanned(text.splitlines(keepends=True), fence)
    )


def _as_code(found: re.Match[str]) -> str:
    if found["span"]:
        return found[0]
    if found["ticks"]:
        # With the mark of an address it would make code of what lies between them.
        return _LOOKALIKE * len(found["ticks"])
    url = addresses.without_trailing(found["url"])
    rest = found["url"][len(url) :]
    return f"{'] (' if found['label'] else ''}`{url}`{rest}"


def unfinished(line: str) -> int:
    """Return the index from where a line may still become a span of code or an address."""
    ends = [found.end() for found in _SPAN.finditer(line)]
    rest = max(ends, default=0)
    ticks = line.find("`", rest)
    if ticks >= 0 and len(line) - ticks <= _LONGEST_SPAN:
        return ticks
    word = max(line.rfind(" "), line.rfind("\t")) + 1
    is_address = "://" in line[word:] and len(line) - word <= _LONGEST_ADDRESS
    return word if is_address else len(line)


def python(code: str, warning: str = "") -> str:
    """Write code as a block with a sentence under it, both as `safe_text` reveals them."""
    shown = defused(fences.fenced(code, language="python"))
    return f"{shown}\n⚠️ {warning}" if warning else shown


def escaped(text: str) -> str:
    """Escape a text for `markdown`, Slack's own markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain_name(name: str) -> str:
    """Make a file name harmless where Slack shows names unescaped."""
    return name.replace("<", "_").replace(">", "_")


class Defuser:
    """Makes harmless a text that comes in pieces."""

    def __init__(self) -> None:
        self._service = ""

    def feed(self, piece: str) -> str:
        """Add a piece; return the part of the text that is certain."""
        text = self._service + piece
        cut = _undecided(text)
        self._service = text[cut:]
        return defused(text[:cut])

    def rest(self) -> str:
        """Return what was held back, as nothing more comes."""
        rest, self._service = defused(self._service), ""
        return rest


def _undecided(text: str) -> int:
    """Return the index from where the meaning of a text is not certain yet."""
    found = _BEGINNINGS.search(text)
    cut = found.start() if found else len(text)
    link = text.rfind("[", max(0, len(text) - 2400))
    if link >= 0 and "\n" not in text[link:] and not _SHOWN_LINK.match(text, link):
        is_open = "]" not in text[link:] or _OPEN_LINK.search(text, link)
        cut = min(cut, link) if is_open else cut
    return cut


def files(found: tuple[values.FileInfo, ...]) -> str:
    """List files."""
    return defused(session_facts.files(found, _MOST_FILES, _file))


def _file(info: values.FileInfo) -> str:
    return f"- `{info.name.replace('`', '')}` ({quantities.size(info.size_bytes)})"


def listed(found: Iterable[session_facts.Fact]) -> str:
    """Format facts as a list."""
    return defused("\n".join(f"- {': '.join(filter(None, fact[:2]))}" for fact in found))
