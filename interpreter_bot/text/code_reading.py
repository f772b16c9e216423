"""Read Python in chat messages: find it by its backticks, and undo typographic replacements.

Pure. Strings and comments keep every character; only the code around them is changed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Final

_PYTHON_LANGUAGES: Final = frozenset(
    {"", "py", "py3", "python", "python3", "ipython", "ipython3", "pycon", "python-repl"}
)
_INFO_STRING: Final = re.compile(
    r"\{?\.?(?P<language>[A-Za-z][A-Za-z0-9_+.#-]{0,19})\}?(?:[ \t]*\{[^\n]*\})?"
)
_TAG_BEFORE_CODE: Final = re.compile(r"\s*(?:i?python3?|py3?)[ \t]+(?=\S)", re.IGNORECASE)
_FENCE: Final = re.compile(
    r"(?P<indent>^[ \t]*)?(?P<marks>`{3,}|(?<=\n)~{3,}|\A~{3,})", re.MULTILINE
)
_SPAN: Final = re.compile(r"(?<!`)(?P<marks>`{1,2})(?!`)(?P<code>[^`]+)(?P=marks)(?!`)")

_DOUBLE_QUOTES: Final = "“”„‟«»"
_SINGLE_QUOTES: Final = "‘’‚‛"  # noqa: RUF001
_COMMENT: Final = r"#(?:(?!```)[^\n])*+"
_TRIPLE_STRING: Final = r"\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''"
_STRING: Final = r"\"(?:\\.|[^\"\\\n])*+\"|'(?:\\.|[^'\\\n])*+'"
# An escaped character is skipped, so that each quote is examined once.
_LITERAL: Final = re.compile(rf"(?s:{_TRIPLE_STRING})|{_STRING}|{_COMMENT}|\\.|(?P<ticks>`+)")
_LITERAL_OR_TYPOGRAPHIC: Final = re.compile(
    rf"(?s:{_TRIPLE_STRING})|{_STRING}|#[^\n]*+|\\."
    rf"|(?P<triple>[{_DOUBLE_QUOTES}]{{3}}[^{_DOUBLE_QUOTES}]*+[{_DOUBLE_QUOTES}]{{3}})"
    rf"|[{_DOUBLE_QUOTES}](?P<double>[^{_DOUBLE_QUOTES}\n]*+)[{_DOUBLE_QUOTES}]?"
    rf"|[{_SINGLE_QUOTES}](?P<single>(?:[^{_SINGLE_QUOTES}\n]|(?<=\w)"
    rf"[{_SINGLE_QUOTES}](?=\w))*+)[{_SINGLE_QUOTES}]?"
)
# Invisible: zero-width characters, marks and isolates of direction, soft hyphens.
_INVISIBLE_CODE_POINTS: Final = (
    *(0xAD, 0x180E, 0xFEFF, *range(0x200B, 0x2010), *range(0x202A, 0x202F)),
    *range(0x2060, 0x2070),
)
_SPACE_CODE_POINTS: Final = (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)
_REPLACEMENTS: Final = {
    **dict.fromkeys(_INVISIBLE_CODE_POINTS),
    **dict.fromkeys(_SPACE_CODE_POINTS, " "),
    **dict.fromkeys((0x2028, 0x2029), "\n"),
    **{0x2013: "-", 0x2212: "-", 0x2014: "--", 0x2026: "..."},
}


@dataclasses.dataclass(frozen=True, slots=True)
class _Block:
    language: str
    code: str

    @property
    def is_python(self) -> bool:
        return self.language in _PYTHON_LANGUAGES


def read_as_code(text: str) -> str:
    """Return the code of a text that is meant as code, with or without backticks.

    Words around a block are left out; a text without backticks is code as a whole.
    """
    text = _normalize_newlines(text)
    ticks = [match for match in _LITERAL.finditer(text) if match["ticks"]]
    fence = next((match.start() for match in ticks if len(match["ticks"]) > 2), None)
    if fence is not None and not (indent := text[:fence].rpartition("\n")[2]).strip():
        fence -= len(indent)
    fence = 0 if re.search(r"^[ \t]*~~~", text, re.MULTILINE) else fence
    if fence is not None:
        # Apostrophes among words may look like a string around a fence.
        blocks = _drop_empty(_parse_blocks(text, fence)) or _drop_empty(_parse_blocks(text))
        if blocks:
            return _join_blocks([block for block in blocks if block.is_python] or blocks)
    if ticks and (spans := _join_spans(text)):
        return spans
    return undo_typography(text.strip().strip("`") if ticks else text).strip("\n").rstrip()


def find_python(text: str) -> str:
    """Return the Python in a message: its code blocks, else its code spans, else nothing."""
    text = _normalize_newlines(text)
    blocks = [block for block in _drop_empty(_parse_blocks(text)) if block.is_python]
    return _join_blocks(blocks) or ("" if "```" in text else _join_spans(text))


def find_python_blocks(text: str) -> list[str]:
    """Return the Python of each code block of a text."""
    return [
        block.code
        for block in _drop_empty(_parse_blocks(_normalize_newlines(text)))
        if block.is_python
    ]


def undo_typography(code: str) -> str:
    """Undo what keyboards and clients change: quotes, dashes, spaces, invisible characters."""
    pieces: list[str] = []
    position = 0
    for literal in _LITERAL_OR_TYPOGRAPHIC.finditer(code):
        pieces += (
            code[position : literal.start()].translate(_REPLACEMENTS),
            _straighten_quotes(literal),
        )
        position = literal.end()
    pieces.append(code[position:].translate(_REPLACEMENTS))
    return "".join(pieces)


def _straighten_quotes(literal: re.Match[str]) -> str:
    text = literal[0]
    if literal["triple"] is not None:
        return f'"""{text[3:-3]}"""'
    content, quote = literal["double"], '"'
    if content is None:
        content, quote = literal["single"], "'"
    if content is None:
        return text
    return f"{quote}{content}{quote if len(text) > len(content) + 1 else ''}"


def _normalize_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _join_blocks(blocks: list[_Block]) -> str:
    return "\n\n".join(block.code for block in blocks)


def _join_spans(text: str) -> str:
    return "\n\n".join(undo_typography(span["code"]).strip() for span in _SPAN.finditer(text))


def _drop_empty(blocks: Iterator[_Block]) -> list[_Block]:
    return [block for block in blocks if block.code]


def _parse_blocks(text: str, position: int = 0) -> Iterator[_Block]:
    """Iterate over the blocks after a position; an unclosed block counts only at a line start."""
    while (fence := _FENCE.search(text, position)) is not None:
        end, position = _find_block_end(text, fence)
        if end < len(text) or fence["indent"] is not None:
            yield _parse_block(text[fence.end() : end], fence["indent"] or "")


def _find_block_end(text: str, fence: re.Match[str]) -> tuple[int, int]:
    """Return the end of the content of a block, and the start of the text after it."""
    marks = fence["marks"]
    closing = re.compile(rf"{marks[0]}{{{len(marks)},}}")
    if marks[0] == "~":
        closing = re.compile(rf"(?m:^[ \t]*~{{{len(marks)},}}[ \t]*$)")
    else:
        # Backticks in a string of the code do not end the block.
        for literal in _LITERAL.finditer(text, fence.end()):
            if literal["ticks"] and len(literal["ticks"]) >= len(marks):
                return literal.start(), literal.end()
    end = closing.search(text, fence.end())
    return (end.start(), end.end()) if end is not None else (len(text), len(text))


def _parse_block(body: str, indent: str) -> _Block:
    first_line, _, remainder = body.partition("\n")
    info = _INFO_STRING.fullmatch(first_line.translate(_REPLACEMENTS).strip())
    if info is not None and remainder.strip():
        language, code = info["language"].lower(), remainder
    else:
        language, code = "", _TAG_BEFORE_CODE.sub("", body, count=1)
    lines = undo_typography(code).strip("\n").rstrip().split("\n")
    code = "\n".join(line.removeprefix(indent) for line in lines)
    return _Block(language, code.strip("\n") if code.strip() else "")
