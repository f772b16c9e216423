"""Discord's Markdown: foreign text made harmless in it. Pure.

`allowed_mentions` keeps mentions from notifying; this module keeps text from looking like mentions.
Addresses are put in angle brackets, so that Discord does not fetch them.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from rich import cells

from interpreter_bot.platforms.chat import formulas, markup
from interpreter_bot.text import addresses, fences, safe_text

_INVISIBLE: Final = "\u200b"
_BACKTICK_LOOKALIKE: Final = "\u02cb"
_MENTION: Final = re.compile(r"@(?=everyone|here)|<(?=[@#][!&]?\d|id:)", re.IGNORECASE)
_CODE_SPAN: Final = re.compile(r"(?<!`)(?P<marks>`+)(?!`)(?P<code>[^`]*)(?P=marks)(?!`)")
_LINK: Final = re.compile(
    rf"!?\[(?P<label>[^\[\]\n]{{0,300}})\]\(\s{{0,3}}<?(?P<target>{addresses.URL_PATTERN})>?"
    r"(?:\s{1,3}\"[^\"\n]{0,300}\")?\s{0,3}\)"
    r"|(?P<bare><?(?P<url>https?://[^\s<>\"]+)>?)",
    re.IGNORECASE,
)
# Addresses that clients turn into an invitation to join, with or without a scheme.
_INVITATION: Final = re.compile(
    r"(?<!\w)discord(?=(?:\.gg|\.new|(?:app)?\.com[/\\]+invite)[/\\])", re.IGNORECASE
)
_ADDRESS: Final = re.compile(r"https?://|www\.|[\w-]+\.[a-z]{2,}(?:/|\s|$)", re.IGNORECASE)
_MARKUP_CHARACTER: Final = re.compile(r"[\\*_~`|\[\]<>]")
_TABLE_ROW: Final = re.compile(r"\s*\|.*\|\s*\Z")
_CELL_SEPARATOR: Final = re.compile(r"(?<!\\)\|")
_LINE_BREAK: Final = re.compile(r"<br ?/?>", re.IGNORECASE)
# On Discord alone, the text between two pairs of bars is hidden until somebody clicks on it.
_SPOILER_MARK: Final = re.compile(r"(?P<unchanged>`[^`]*`|<https?://[^\s<>]*>)|\|\|")
# On Discord, all the rest of the message would be a quotation.
_LONG_QUOTE_MARK: Final = re.compile(r"^( *)>>>", re.MULTILINE)
_TABLE_RULE: Final = re.compile(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*\Z")
_HORIZONTAL_RULE: Final = re.compile(
    r"[ ]{0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})"
)
_DEEP_HEADING: Final = re.compile(r"[ ]{0,3}#{4,6}[ \t]+(?P<title>.*)")
_TASK_ITEM: Final = re.compile(r"\A(\s{0,20}(?:[-*+]|\d{1,9}[.)])[ \t]+)\[([ xX])\][ \t]+")
_FILE_LINK: Final = re.compile(
    r"!?\[(?P<label>[^\[\]\n]{0,300})\]"
    r"\(<?(?!https?:)(?P<target>(?:sandbox:|attachment:)?[\w./ -]{1,300})>?\)"
)
_MAX_TABLE_CHARACTERS: Final = 1700
_UNSAFE_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME_CHARACTERS: Final = 80


def code(text: str, language: str = "") -> str:
    """Return a code block that its text cannot leave; empty if there is nothing to show."""
    return fences.wrap_block(safe_text.sanitize(text), language=language, style="broken")


def inline_code(text: str, max_characters: int = 200) -> str:
    """Return foreign text as code within a line, cut if it is long."""
    text = safe_text.sanitize(text)
    if len(text) > max_characters:
        text = text[: max_characters - 1] + "…"
    return fences.wrap_inline(text, style="broken")


def small_print(text: str) -> str:
    """Return a line of the bot in small print."""
    return "\n".join(f"-# {row}" for row in text.splitlines() if row.strip())


NOTICE: Final = "-# 🔹"
"""Begins a message that is no answer."""


def escape(text: str) -> str:
    """Escape text within a line: nothing in it is markup, mention or link."""
    text = " ".join(safe_text.sanitize(text).split())
    text = _MARKUP_CHARACTER.sub(r"\\\g<0>", text)
    text = _INVITATION.sub(f"\\g<0>{_INVISIBLE}", text)
    return text.replace("@", f"@{_INVISIBLE}").replace("://", f":{_INVISIBLE}//")


def time_since(moment: float) -> str:
    """Return how long ago something began, as a timestamp that Discord keeps up to date."""
    return f"began <t:{int(moment)}:R>"


def mention(person: str) -> str:
    """Return a mention of a person."""
    return f"<@{person}>"


def file_name(name: str) -> str:
    """Spell a file name so that Discord leaves it unchanged."""
    stem, dot, suffix = name.strip(". ").rpartition(".")
    if not dot:
        stem, suffix = suffix, ""
    # A name in another script leaves nothing but its extension.
    stem = _to_safe_ascii(stem)[:_MAX_NAME_CHARACTERS].strip("._") or "file"
    suffix = _to_safe_ascii(suffix)[:20]
    return f"{stem}.{suffix}" if suffix else stem


def _to_safe_ascii(text: str) -> str:
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return _UNSAFE_IN_NAMES.sub("_", ascii_text).strip("._")


def blocks(text: str, *, is_whole: bool = True) -> Iterator[markup.Block]:
    """Iterate over the blocks of a model's Markdown; see `chat.markup.Markup`."""
    lines = safe_text.sanitize(text).split("\n")
    index, open_after = 0, [after for _, _, after in fences.track_fences(lines)]
    while index < len(lines):
        fence = open_after[index]
        if fence is not None:
            end = index + 1
            while end < len(lines) and open_after[end] is not None:
                end += 1
            code_text = "\n".join(lines[index + 1 : end])
            code_block = fences.wrap_block(code_text, language=fence.language, style="broken")
            yield markup.Block(code_block, may_grow=not is_whole and end == len(lines))
            index = end + 1
        elif _is_table(lines, index):
            end = index
            while end < len(lines) and _TABLE_ROW.match(lines[end]):
                end += 1
            *full_tables, last_table = _draw_tables(lines[index], lines[index + 2 : end])
            yield from map(markup.Block, full_tables)
            # The last line may still be a row.
            yield markup.Block(last_table, may_grow=not is_whole and end >= len(lines) - 1)
            index = end
        elif end := formulas.find_end(lines, index, is_whole=is_whole):
            formula = formulas.strip_marks(lines[index:end])
            formula_block = fences.wrap_block(formula, language="tex", style="broken")
            yield markup.Block(formula_block, may_grow=not is_whole and end >= len(lines))
            index = end
        else:
            may_grow = not is_whole and index == len(lines) - 1
            # The line may become a table, a fence or a formula.
            is_unclear = may_grow and lines[index].lstrip()[:1] in ("|", "`", "~", "$", "\\")
            is_unclear |= (
                not is_whole and index == len(lines) - 2 and bool(_TABLE_ROW.match(lines[index]))
            )
            yield markup.Block(
                _convert_line(lines[index]), is_line=not is_unclear, may_grow=may_grow or is_unclear
            )
            index += 1


def _is_table(lines: list[str], index: int) -> bool:
    return (
        index + 1 < len(lines)
        and bool(_TABLE_ROW.match(lines[index]))
        and bool(_TABLE_RULE.match(lines[index + 1]))
    )


def _draw_tables(head: str, rows: list[str]) -> list[str]:
    """Draw a table in parts that each fit into a message and have the head."""
    tables: list[str] = []
    table_rows: list[list[str]] = []
    widths = [cells.cell_len(text) for text in _split_cells(head)]
    for row in rows:
        cell_texts = _split_cells(row)
        row_widths = [cells.cell_len(text) for text in cell_texts]
        new_widths = [
            max(column) for column in itertools.zip_longest(widths, row_widths, fillvalue=0)
        ]
        if (
            table_rows
            and (sum(new_widths) + 2 * len(new_widths)) * (len(table_rows) + 3)
            > _MAX_TABLE_CHARACTERS
        ):
            tables.append(_draw_table([_split_cells(head), *table_rows]))
            table_rows, new_widths = [], row_widths
        table_rows.append(cell_texts)
        widths = new_widths
    return [*tables, _draw_table([_split_cells(head), *table_rows])]


def _split_cells(row: str) -> list[str]:
    _, *cell_texts, rest = _CELL_SEPARATOR.split(row.strip())
    return [
        _LINE_BREAK.sub(" ", text.strip().replace("**", "").strip("`")).replace("\\|", "|")
        for text in (*cell_texts, *([rest] if rest else []))
    ]


def _draw_table(rows: list[list[str]]) -> str:
    column_count = max(map(len, rows))
    full_rows = [row + [""] * (column_count - len(row)) for row in rows]
    widths = [max(cells.cell_len(row[index]) for row in full_rows) for index in range(column_count)]
    lines = ["  ".join(map(_pad, row, widths)).rstrip() for row in full_rows]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return fences.wrap_block("\n".join(lines), style="broken")


def _pad(text: str, width: int) -> str:
    """Pad a text to a width, of which some letters take two."""
    return text + " " * (width - cells.cell_len(text))


def _convert_line(line: str) -> str:
    """Make a line harmless outside of its spans of code, in Markdown that Discord knows."""
    if _HORIZONTAL_RULE.fullmatch(line):
        return "─" * 20
    if heading := _DEEP_HEADING.fullmatch(line):
        # A regular expression that also strips the end would take cubic time.
        title = heading["title"].rstrip(" \t").rstrip("#").rstrip(" \t")
        line = f"**{title.replace('**', '')}**"
    line = _TASK_ITEM.sub(lambda task: f"{task[1]}{'☐' if task[2] == ' ' else '☑'} ", line, count=1)
    parts = []
    end = 0
    for span in _CODE_SPAN.finditer(line):
        parts.append(_defuse(line[end : span.start()]))
        parts.append(fences.wrap_inline(span["code"], style="broken") or span[0])
        end = span.end()
    parts.append(_defuse(line[end:]))
    return "".join(parts)


def _defuse(text: str) -> str:
    # Single backticks could pair up with others and open or close code.
    text = _FILE_LINK.sub(_convert_file_link, text.replace("`", _BACKTICK_LOOKALIKE))
    text = _LINK.sub(_convert_link, text)
    text = formulas.mark_as_code(text)
    text = _LINE_BREAK.sub("\n", text)
    text = _LONG_QUOTE_MARK.sub(r"\1\\>>>", text)
    text = _SPOILER_MARK.sub(lambda mark: mark["unchanged"] or "\\|\\|", text)
    text = _INVITATION.sub(f"\\g<0>{_INVISIBLE}", text)
    return _MENTION.sub(lambda mention: f"{mention[0]}{_INVISIBLE}", text)


def _convert_file_link(link: re.Match[str]) -> str:
    """Return the label of a link to a file, as files come with the answer."""
    return link["label"].strip() or link["target"].rpartition("/")[2]


def _convert_link(match: re.Match[str]) -> str:
    if match["bare"]:
        url = match["url"]
        address = addresses.strip_trailing_punctuation(url)
        return f"<{address}>{url[len(address) :]}"
    label, target = match["label"].strip(), match["target"]
    # A label that is an address could name another one than the target.
    if not label or _ADDRESS.search(label):
        return f"<{target}>"
    return f"[{label}](<{target}>)"
