"""Slack's Markdown and mrkdwn: foreign text made harmless in it; see `chat.markup.Markup`.

Text of answers is made harmless when it becomes blocks.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator
from typing import Final

from interpreter_bot.platforms.chat import formulas, markup
from interpreter_bot.text import addresses, fences, quantities, safe_text

_INVISIBLE: Final = "\u200b"
# Slack does not document whether it obeys these in Markdown, so they are broken everywhere.
_MENTION_OR_LINK: Final = re.compile(
    r"<(?=[@#!])|@(?=(?:channel|here|everyone)\b)|<(?=[a-z][a-z+.-]*:[^<>\n]*\|)"
)
# The beginning of such a token, whose end may come with the next piece of a stream.
_MENTION_OR_LINK_START: Final = re.compile(
    r"(?:<[@#!]?@?[a-z]{0,8}|<[a-z][a-z+.-]*:?[^<>\n|]{0,500}|@[a-z]{0,8})\Z"
)
# A link, with optional angle brackets and title.
_LABELLED_LINK: Final = re.compile(
    rf"\[([^\]\n]{{1,300}})\]\([ \t]*<?({addresses.URL_PATTERN})>?"
    r"(?:[ \t]+[\"'(][^\n]{0,300}?[\"')])?[ \t]*\)"
)
_CODE_SPAN: Final = re.compile(r"(?<!`)(?P<marks>`+)(?!`)[^\n]*?(?<!`)(?P=marks)(?!`)")
_ADDRESS_OR_CODE: Final = re.compile(
    rf"(?P<span>{_CODE_SPAN.pattern})|(?P<ticks>`+)"
    r"|(?P<label>\]\()?<?(?P<url>https?://[^\s<>`]+)>?",
    re.IGNORECASE,
)
_GROUP_MENTION: Final = re.compile(r"@(?=(?:channel|here|everyone)\b)")
_MAX_NOTIFICATION_CHARACTERS: Final = 300
# Marks that notifications would show: of bold words, headings, and below the head of a table.
_MARKUP: Final = re.compile(
    r"\*\*(\S(?:[^*\n]*\S)?)\*\*|^#{1,6} +(?=\S)|^(?=[|: -]*-)[|: -]*\|[|: -]*\n", re.MULTILINE
)
_MAX_INLINE_CHARACTERS: Final = 200
_MAX_LINE_CHARACTERS: Final = 2_000
_BACKTICK_LOOKALIKE: Final = "\u02cb"
_MAX_SPAN_CHARACTERS: Final = 300
_MAX_ADDRESS_CHARACTERS: Final = 2_000
_EMPHASIS_CHARACTERS: Final = " \t*_~`"
_HOST: Final = re.compile(r"(?:https?://)?((?:[\w-]+\.)+[a-z]{2,24})(?:[/?#:]|\Z)", re.IGNORECASE)


def break_mentions(text: str) -> str:
    """Break mentions and misleading links, in code as well."""
    text = _LABELLED_LINK.sub(_reveal_target, text)
    return _MENTION_OR_LINK.sub(lambda token: token[0] + _INVISIBLE, text)


def has_mention(text: str) -> bool:
    """Return whether a text has a token that `break_mentions` would break."""
    return _MENTION_OR_LINK.search(text) is not None


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

    Mentions in the text are broken; it includes code without mentions.
    """
    words, fence_line, code = "", "", ""
    is_open = False
    for before, line, after in fences.track_fences(text.splitlines(keepends=True)):
        if before is not None and after is not None:
            code += line
            continue
        if before is None and after is None and _has_mention_in_code(line):
            yield from (words, Line(tuple(_split_at_code(line.strip()))))
            words = ""
        elif before is None and after is None:
            words += break_mentions(line)
        elif before is None:
            fence_line, code = break_mentions(line), ""
        elif has_mention(code):
            yield from (words, Code(code))
            words = ""
        else:
            words += f"{fence_line}{code}{line}"
        is_open = after is not None
    if is_open and has_mention(code):
        yield from (words, Code(code))
    else:
        yield f"{words}{fence_line}{code}" if is_open else words


def _has_mention_in_code(line: str) -> bool:
    return any(has_mention(span[0]) for span in _CODE_SPAN.finditer(line))


def _split_at_code(line: str) -> Iterator[tuple[str, bool]]:
    """Split a line into texts, each with whether it is code, byte for byte."""
    end = 0
    for span in _CODE_SPAN.finditer(line):
        ticks = len(span["marks"])
        code = span[0][ticks:-ticks]
        is_padded = code.startswith(" ") and code.endswith(" ") and bool(code.strip())
        yield from ((line[end : span.start()], False), (code[1:-1] if is_padded else code, True))
        end = span.end()
    yield line[end:], False


def _reveal_target(link: re.Match[str]) -> str:
    """Replace a link by its address if its text names another host."""
    label, url = link[1], link[2]
    label_host, real_host = _HOST.match(label.strip(_EMPHASIS_CHARACTERS)), _HOST.match(url)
    if label_host and real_host and label_host[1].lower() != real_host[1].lower():
        return url
    return link[0]


def prepare_for_stream(text: str, fence: fences.Fence | None) -> str | None:
    """Make Markdown harmless in a stream; None if its code holds mentions, which must stay exact.

    Addresses become code, because Slack could fetch what a link leads to.

    Args:
        text: Markdown in which no span, address or line of code is cut off.
        fence: the one that is open before the text.
    """
    result = ""
    for before, line, after in fences.track_fences(text.splitlines(keepends=True), fence):
        is_code = before is not None and after is not None
        if has_mention(line) if is_code else _has_mention_in_code(line):
            return None
        result += line if before and after else _unlinked(break_mentions(line), before or after)
    return result


def _unlinked(line: str, fence: fences.Fence | None) -> str:
    return line if fence else _ADDRESS_OR_CODE.sub(_as_code, line)


def _as_code(match: re.Match[str]) -> str:
    if match["span"]:
        return match[0]
    if match["ticks"]:
        # Together with the backtick around an address they would turn the text between into code.
        return _BACKTICK_LOOKALIKE * len(match["ticks"])
    url = addresses.strip_trailing_punctuation(match["url"])
    trailing = match["url"][len(url) :]
    return f"{'] (' if match['label'] else ''}`{url}`{trailing}"


def safe_length(line: str) -> int:
    """Return the length of the part of a line that cannot become code, an address or a mention."""
    open_token = _MENTION_OR_LINK_START.search(line)
    token_start = open_token.start() if open_token else len(line)
    return min(_find_unfinished_code(line), token_start)


def _find_unfinished_code(line: str) -> int:
    ends = [span.end() for span in _CODE_SPAN.finditer(line)]
    after_spans = max(ends, default=0)
    tick = line.find("`", after_spans)
    if tick >= 0 and len(line) - tick <= _MAX_SPAN_CHARACTERS:
        return tick
    word_start = max(line.rfind(" "), line.rfind("\t")) + 1
    is_address = "://" in line[word_start:] and len(line) - word_start <= _MAX_ADDRESS_CHARACTERS
    return word_start if is_address else len(line)


def blocks(text: str, *, is_whole: bool = True) -> Iterator[markup.Block]:
    """Iterate over the lines and code blocks of a model's Markdown."""
    lines = safe_text.sanitize(text).split("\n")
    open_after = [after for _, _, after in fences.track_fences(lines)]
    index = 0
    while index < len(lines):
        fence = open_after[index]
        if fence is None and (end := formulas.find_end(lines, index, is_whole=is_whole)):
            formula_block = code(formulas.strip_marks(lines[index:end]), "tex")
            yield markup.Block(formula_block, may_grow=not is_whole and end >= len(lines))
            index = end
            continue
        if fence is None:
            line = lines[index]
            may_grow = not is_whole and index == len(lines) - 1
            is_unclear = may_grow and line.lstrip()[:1] in ("`", "~")
            if may_grow:
                line = line[: formulas.safe_length(line)]
            text_line = formulas.mark_as_code(line)
            yield markup.Block(text_line, is_line=not is_unclear, may_grow=may_grow)
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
    text = safe_text.reveal_hidden(text).text
    return fences.wrap_block(text, language=language) if text.strip() else ""


def inline_code(text: str) -> str:
    """Return foreign text as code within a line, cut if it is long."""
    text = plain_line(text, _MAX_INLINE_CHARACTERS)
    return fences.wrap_inline(text) if text else ""


def escape(text: str) -> str:
    """Return foreign text within a line, which notifies nobody and has no link but plain ones."""
    return break_mentions(plain_line(text, _MAX_LINE_CHARACTERS).replace("](", f"]{_INVISIBLE}("))


def small_print(text: str) -> str:
    """Return a line of the bot in small print."""
    return f"_{text}_"


def time_since(moment: float) -> str:
    """Return how long ago something began."""
    return quantities.duration(max(0, round(time.time() - moment)))


def mention(_person: str) -> str:
    """Return nothing: Slack notifies the person of each message of their thread."""
    return ""


def plain_line(text: str, max_characters: int) -> str:
    """Fit foreign text into one line, without characters that hide or reorder text."""
    return quantities.one_line(safe_text.sanitize(text), max_characters)


def escape_mrkdwn(text: str) -> str:
    """Escape a text for `markdown`, Slack's own markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def notification(text: str) -> str:
    """Return the beginning of a message for notifications, without mentions and marks."""
    text = safe_text.sanitize(text[:_MAX_NOTIFICATION_CHARACTERS])
    text = _MARKUP.sub(lambda mark: mark[1] or "", text)
    text = _LABELLED_LINK.sub(_reveal_target, text)
    return escape_mrkdwn(_GROUP_MENTION.sub(lambda mention: mention[0] + _INVISIBLE, text))


def file_name(name: str) -> str:
    """Make a file name harmless where Slack shows names unescaped."""
    return name.replace("<", "_").replace(">", "_")
