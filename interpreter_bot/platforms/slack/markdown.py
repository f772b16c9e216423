"""Slack's Markdown and mrkdwn: foreign text made harmless in it; see `chat.markup.Markup`.

What answers say is made harmless where it becomes blocks.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator
from typing import Final

from interpreter_bot.platforms.chat import markup
from interpreter_bot.text import addresses, fences, quantities, safe_text

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
_SPAN: Final = re.compile(r"(?<!`)(?P<marks>`+)(?!`)[^\n]*?(?<!`)(?P=marks)(?!`)")
_ADDRESS: Final = re.compile(
    rf"(?P<span>{_SPAN.pattern})|(?P<ticks>`+)"
    r"|(?P<label>\]\()?<?(?P<url>https?://[^\s<>`]+)>?",
    re.IGNORECASE,
)
_AT_ALL: Final = re.compile(r"@(?=(?:channel|here|everyone)\b)")
_NOTIFIED_CHARACTERS: Final = 300
_MAX_INLINE: Final = 200
_MAX_LINE: Final = 2_000
_LOOKALIKE: Final = "\u02cb"
_LONGEST_SPAN: Final = 300
_LONGEST_ADDRESS: Final = 2_000
_EMPHASIS: Final = " \t*_~`"
_HOST: Final = re.compile(r"(?:https?://)?((?:[\w-]+\.)+[a-z]{2,24})(?:[/?#:]|\Z)", re.IGNORECASE)


def defused(text: str) -> str:
    """Break mentions and misleading links, in code as well."""
    text = _SHOWN_LINK.sub(_honest, text)
    return _TOKENS.sub(lambda found: found[0] + _INVISIBLE, text)


def has_mention(text: str) -> bool:
    """Return whether a text holds what `defused` would break."""
    return _TOKENS.search(text) is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """The code of a fenced block that holds a mention, byte for byte."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line of words whose code holds a mention: texts, and for each whether it is code."""

    texts: tuple[tuple[str, bool], ...]


def parts(text: str) -> Iterator[str | Code | Line]:
    """Split Markdown into what is harmless as it is and code that is not.

    Words are defused. Code without mentions stays within its words.
    """
    words, opening, code = "", "", ""
    is_open = False
    for before, line, after in fences.scanned(text.splitlines(keepends=True)):
        if before is not None and after is not None:
            code += line
            continue
        if before is None and after is None and _has_mention_in_code(line):
            yield from (words, Line(tuple(_texts(line.strip()))))
            words = ""
        elif before is None and after is None:
            words += defused(line)
        elif before is None:
            opening, code = defused(line), ""
        elif has_mention(code):
            yield from (words, Code(code))
            words = ""
        else:
            words += f"{opening}{code}{line}"
        is_open = after is not None
    if is_open and has_mention(code):
        yield from (words, Code(code))
    else:
        yield f"{words}{opening}{code}" if is_open else words


def _has_mention_in_code(line: str) -> bool:
    return any(has_mention(span[0]) for span in _SPAN.finditer(line))


def _texts(line: str) -> Iterator[tuple[str, bool]]:
    """Split a line into what is code and what is not, byte for byte."""
    end = 0
    for span in _SPAN.finditer(line):
        ticks = len(span["marks"])
        code = span[0][ticks:-ticks]
        is_padded = code.startswith(" ") and code.endswith(" ") and bool(code.strip())
        yield from ((line[end : span.start()], False), (code[1:-1] if is_padded else code, True))
        end = span.end()
    yield line[end:], False


def _honest(found: re.Match[str]) -> str:
    """Show a link's address if its text pretends to lead elsewhere."""
    label, url = found[1], found[2]
    pretended, real = _HOST.match(label.strip(_EMPHASIS)), _HOST.match(url)
    if pretended and real and pretended[1].lower() != real[1].lower():
        return url
    return found[0]


def streamed(text: str, fence: fences.Fence | None) -> str | None:
    """Make Markdown harmless in a stream; None if its code holds mentions, which no stream can show
    as they are.

    Addresses become code, because Slack could fetch what a link leads to.

    Args:
        text: Markdown with no span of code, no address and no line of code that is cut.
        fence: the one that is open before it.
    """
    shown = ""
    for before, line, after in fences.scanned(text.splitlines(keepends=True), fence):
        is_code = before is not None and after is not None
        if has_mention(line) if is_code else _has_mention_in_code(line):
            return None
        shown += line if before and after else _unlinked(defused(line), before or after)
    return shown


def _unlinked(line: str, fence: fences.Fence | None) -> str:
    return line if fence else _ADDRESS.sub(_as_code, line)


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
    """Return the index from where a line may still become code, an address or a mention."""
    found = _BEGINNINGS.search(line)
    return min(_unfinished_code(line), found.start() if found else len(line))


def _unfinished_code(line: str) -> int:
    ends = [found.end() for found in _SPAN.finditer(line)]
    rest = max(ends, default=0)
    ticks = line.find("`", rest)
    if ticks >= 0 and len(line) - ticks <= _LONGEST_SPAN:
        return ticks
    word = max(line.rfind(" "), line.rfind("\t")) + 1
    is_address = "://" in line[word:] and len(line) - word <= _LONGEST_ADDRESS
    return word if is_address else len(line)


def blocks(text: str, *, is_whole: bool = True) -> Iterator[markup.Block]:
    """Iterate over the lines and code blocks of a model's Markdown."""
    lines = text.split("\n")
    open_after = [after for _, _, after in fences.scanned(lines)]
    place = 0
    while place < len(lines):
        fence = open_after[place]
        if fence is None:
            may_grow = not is_whole and place == len(lines) - 1
            is_unclear = may_grow and lines[place].lstrip()[:1] in ("`", "~")
            yield markup.Block(lines[place], is_line=not is_unclear, may_grow=may_grow)
            place += 1
            continue
        end = place + 1
        while end < len(lines) and open_after[end] is not None:
            end += 1
        is_open = end == len(lines)
        closing = [fence.closing] if is_open else []
        code_block = "\n".join([*lines[place : end + 1], *closing])
        yield markup.Block(code_block, may_grow=is_open and not is_whole)
        place = end + 1


def code(text: str, language: str = "") -> str:
    """Return a code block, in which invisible characters can be seen."""
    text = safe_text.revealed(text).text
    return fences.fenced(text, language=language) if text.strip() else ""


def inline_code(text: str) -> str:
    """Return foreign text as code within a line, cut if it is long."""
    text = quantities.one_line(text, _MAX_INLINE)
    return fences.inline(text) if text else ""


def escape(text: str) -> str:
    """Return foreign words within a line, which reach nobody."""
    return defused(quantities.one_line(text, _MAX_LINE))


def small_print(text: str) -> str:
    """Return a line of the bot in small print."""
    return f"_{text}_"


def local_times(text: str) -> str:
    """Return a sentence as it is: Markdown blocks know no times."""
    return text


def time_since(moment: float) -> str:
    """Return how long ago something began."""
    return quantities.duration(max(0, round(time.time() - moment)))


def mention(_person: str) -> str:
    """Return nothing: who asked hears of each message of the thread."""
    return ""


def escaped(text: str) -> str:
    """Escape a text for `markdown`, Slack's own markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def notification(text: str) -> str:
    """Return the beginning of a message for notifications, which reaches nobody."""
    text = _SHOWN_LINK.sub(_honest, text[:_NOTIFIED_CHARACTERS])
    return escaped(_AT_ALL.sub(lambda found: found[0] + _INVISIBLE, text))


def file_name(name: str) -> str:
    """Make a file name harmless where Slack shows names unescaped."""
    return name.replace("<", "_").replace(">", "_")
