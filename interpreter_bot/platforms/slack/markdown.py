"""Slack's Markdown and mrkdwn: foreign text made harmless in it; see `chat.markup.Markup`.

Text of answers is made harmless when it becomes blocks.
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
# Slack does not document whether it obeys these in Markdown, so they are broken everywhere.
_TOKENS: Final = re.compile(
    r"<(?=[@#!])|@(?=(?:channel|here|everyone)\b)|<(?=[a-z][a-z+.-]*:[^<>\n]*\|)"
)
# The beginning of such a token, whose end may come with the next piece of a stream.
_TOKEN_BEGINNING: Final = re.compile(
    r"(?:<[@#!]?@?[a-z]{0,8}|<[a-z][a-z+.-]*:?[^<>\n|]{0,500}|@[a-z]{0,8})\Z"
)
# A link, with optional angle brackets and title.
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
# Marks that notifications would show: of bold words, headings, and below the head of a table.
_MARKS: Final = re.compile(
    r"\*\*(\S(?:[^*\n]*\S)?)\*\*|^#{1,6} +(?=\S)|^(?=[|: -]*-)[|: -]*\|[|: -]*\n", re.MULTILINE
)
_MAX_INLINE: Final = 200
_MAX_LINE: Final = 2_000
_LOOKALIKE: Final = "\u02cb"
_MAX_SPAN: Final = 300
_MAX_ADDRESS: Final = 2_000
_EMPHASIS: Final = " \t*_~`"
_HOST: Final = re.compile(r"(?:https?://)?((?:[\w-]+\.)+[a-z]{2,24})(?:[/?#:]|\Z)", re.IGNORECASE)


def defused(text: str) -> str:
    """Break mentions and misleading links, in code as well."""
    text = _SHOWN_LINK.sub(_reveal_target, text)
    return _TOKENS.sub(lambda token: token[0] + _INVISIBLE, text)


def has_mention(text: str) -> bool:
    """Return whether a text has a token that `defused` would break."""
    return _TOKENS.search(text) is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """The code of a fenced block that holds a mention, byte for byte."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line of words whose code holds a mention: texts, and for each whether it is code."""

    texts: tuple[tuple[str, bool], ...]


def split_at_mentions(text: str) -> Iterator[str | Code | Line]:
    """Split Markdown into harmless text and code that holds mentions.

    The text is defused; it includes code without mentions.
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
    """Split a line into texts, each with whether it is code, byte for byte."""
    end = 0
    for span in _SPAN.finditer(line):
        ticks = len(span["marks"])
        code = span[0][ticks:-ticks]
        is_padded = code.startswith(" ") and code.endswith(" ") and bool(code.strip())
        yield from ((line[end : span.start()], False), (code[1:-1] if is_padded else code, True))
        end = span.end()
    yield line[end:], False


def _reveal_target(link: re.Match[str]) -> str:
    """Replace a link by its address if its text names another host."""
    label, url = link[1], link[2]
    pretended, real = _HOST.match(label.strip(_EMPHASIS)), _HOST.match(url)
    if pretended and real and pretended[1].lower() != real[1].lower():
        return url
    return link[0]


def for_stream(text: str, fence: fences.Fence | None) -> str | None:
    """Make Markdown harmless in a stream; None if its code holds mentions, which must stay exact.

    Addresses become code, because Slack could fetch what a link leads to.

    Args:
        text: Markdown in which no span, address or line of code is cut off.
        fence: the one that is open before the text.
    """
    result = ""
    for before, line, after in fences.scanned(text.splitlines(keepends=True), fence):
        is_code = before is not None and after is not None
        if has_mention(line) if is_code else _has_mention_in_code(line):
            return None
        result += line if before and after else _unlinked(defused(line), before or after)
    return result


def _unlinked(line: str, fence: fences.Fence | None) -> str:
    return line if fence else _ADDRESS.sub(_as_code, line)


def _as_code(match: re.Match[str]) -> str:
    if match["span"]:
        return match[0]
    if match["ticks"]:
        # Together with the backtick around an address they would turn the text between into code.
        return _LOOKALIKE * len(match["ticks"])
    url = addresses.without_trailing(match["url"])
    trailing = match["url"][len(url) :]
    return f"{'] (' if match['label'] else ''}`{url}`{trailing}"


def safe_length(line: str) -> int:
    """Return the length up to which a line cannot become code, an address or a mention any more."""
    beginning = _TOKEN_BEGINNING.search(line)
    return min(_unfinished_code_at(line), beginning.start() if beginning else len(line))


def _unfinished_code_at(line: str) -> int:
    ends = [span.end() for span in _SPAN.finditer(line)]
    after_spans = max(ends, default=0)
    tick = line.find("`", after_spans)
    if tick >= 0 and len(line) - tick <= _MAX_SPAN:
        return tick
    word_start = max(line.rfind(" "), line.rfind("\t")) + 1
    is_address = "://" in line[word_start:] and len(line) - word_start <= _MAX_ADDRESS
    return word_start if is_address else len(line)


def blocks(text: str, *, is_whole: bool = True) -> Iterator[markup.Block]:
    """Iterate over the lines and code blocks of a model's Markdown."""
    lines = safe_text.harmless(text).split("\n")
    open_after = [after for _, _, after in fences.scanned(lines)]
    index = 0
    while index < len(lines):
        fence = open_after[index]
        if fence is None:
            may_grow = not is_whole and index == len(lines) - 1
            is_unclear = may_grow and lines[index].lstrip()[:1] in ("`", "~")
            yield markup.Block(lines[index], is_line=not is_unclear, may_grow=may_grow)
            index += 1
            continue
        end = index + 1
        while end < len(lines) and open_after[end] is not None:
            end += 1
        is_open = end == len(lines)
        closing = [fence.closing] if is_open else []
        code_block = "\n".join([*lines[index : end + 1], *closing])
        yield markup.Block(code_block, may_grow=is_open and not is_whole)
        index = end + 1


def code(text: str, language: str = "") -> str:
    """Return a code block, in which invisible characters can be seen."""
    text = safe_text.revealed(text).text
    return fences.fenced(text, language=language) if text.strip() else ""


def inline_code(text: str) -> str:
    """Return foreign text as code within a line, cut if it is long."""
    text = plain_line(text, _MAX_INLINE)
    return fences.inline(text) if text else ""


def escape(text: str) -> str:
    """Return foreign text within a line, which notifies nobody and has no link but plain ones."""
    return defused(plain_line(text, _MAX_LINE).replace("](", f"]{_INVISIBLE}("))


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
    """Return nothing: Slack notifies the person of each message of their thread."""
    return ""


def plain_line(text: str, max_characters: int) -> str:
    """Fit foreign text into one line, without characters that hide or reorder text."""
    return quantities.one_line(safe_text.harmless(text), max_characters)


def escaped(text: str) -> str:
    """Escape a text for `markdown`, Slack's own markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def notification(text: str) -> str:
    """Return the beginning of a message for notifications, without mentions and marks."""
    text = safe_text.harmless(text[:_NOTIFIED_CHARACTERS])
    text = _MARKS.sub(lambda mark: mark[1] or "", text)
    text = _SHOWN_LINK.sub(_reveal_target, text)
    return escaped(_AT_ALL.sub(lambda mention: mention[0] + _INVISIBLE, text))


def file_name(name: str) -> str:
    """Make a file name harmless where Slack shows names unescaped."""
    return name.replace("<", "_").replace(">", "_")
