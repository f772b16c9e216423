"""Read Python that people write into chats: its marks, and what keyboards and clients change. Pure.

Strings and comments keep every character: only what is around them is mended.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Final

_PYTHON: Final = frozenset(
    {"", "py", "py3", "python", "python3", "ipython", "ipython3", "pycon", "python-repl"}
)
_INFO: Final = re.compile(
    r"\{?\.?(?P<language>[A-Za-z][A-Za-z0-9_+.#-]{0,19})\}?(?:[ \t]*\{[^\n]*\})?"
)
_TAG_BEFORE_CODE: Final = re.compile(r"\s*(?:i?python3?|py3?)[ \t]+(?=\S)", re.IGNORECASE)
_FENCE: Final = re.compile(
    r"(?P<indent>^[ \t]*)?(?P<marks>`{3,}|(?<=\n)~{3,}|\A~{3,})", re.MULTILINE
)
_SPAN: Final = re.compile(r"(?<!`)(?P<marks>`{1,2})(?!`)(?P<code>[^`]+)(?P=marks)(?!`)")

_DOUBLE: Final = "“”„‟«»"
_SINGLE: Final = "‘’‚‛"  # noqa: RUF001
_COMMENT: Final = r"#(?:(?!```)[^\n])*+"
_TRIPLE: Final = r"\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''"
_STRING: Final = r"\"(?:\\.|[^\"\\\n])*+\"|'(?:\\.|[^'\\\n])*+'"
# An escaped character is passed over, so that each quote is looked at once.
_LITERAL: Final = re.compile(rf"(?s:{_TRIPLE})|{_STRING}|{_COMMENT}|\\.|(?P<ticks>`+)")
_TYPED: Final = re.compile(
    rf"(?s:{_TRIPLE})|{_STRING}|#[^\n]*+|\\."
    rf"|(?P<triple>[{_DOUBLE}]{{3}}[^{_DOUBLE}]*+[{_DOUBLE}]{{3}})"
    rf"|[{_DOUBLE}](?P<double>[^{_DOUBLE}\n]*+)[{_DOUBLE}]?"
    rf"|[{_SINGLE}](?P<single>(?:[^{_SINGLE}\n]|(?<=\w)[{_SINGLE}](?=\w))*+)[{_SINGLE}]?"
)
# Invisible: zero-width characters, marks and isolates of direction, soft hyphens.
_INVISIBLE: Final = (
    *(0xAD, 0x180E, 0xFEFF, *range(0x200B, 0x2010), *range(0x202A, 0x202F)),
    *range(0x2060, 0x2070),
)
_SPACES: Final = (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)
_MENDED: Final = {
    **dict.fromkeys(_INVISIBLE),
    **dict.fromkeys(_SPACES, " "),
    **dict.fromkeys((0x2028, 0x2029), "\n"),
    **{0x2013: "-", 0x2212: "-", 0x2014: "--", 0x2026: "..."},
}


@dataclasses.dataclass(frozen=True, slots=True)
class _Block:
    language: str
    code: str
    is_closed: bool

    @property
    def is_python(self) -> bool:
        return self.language in _PYTHON


def code_of(text: str) -> str:
    """Return the code of a text that is meant as code, with or without marks around it.

    Words beside a block are left out; a text without marks is code as a whole.
    """
    text = _lines(text)
    ticks = [match for match in _LITERAL.finditer(text) if match["ticks"]]
    fence = next((match.start() for match in ticks if len(match["ticks"]) > 2), None)
    if fence is not None and not (indent := text[:fence].rpartition("\n")[2]).strip():
        fence -= len(indent)
    fence = 0 if re.search(r"^[ \t]*~~~", text, re.MULTILINE) else fence
    if fence is not None:
        # Apostrophes among words may look like a string around a fence.
        blocks = _non_empty(_blocks(text, fence)) or _non_empty(_blocks(text))
        if blocks:
            return _joined([block for block in blocks if block.is_python] or blocks)
    if ticks and (spans := _spans(text)):
        return spans
    return mended(text.strip().strip("`") if ticks else text).strip("\n").rstrip()


def code_in(text: str) -> str:
    """Return the Python among the words of a message: its blocks, else its spans; or nothing."""
    text = _lines(text)
    blocks = [block for block in _non_empty(_blocks(text)) if block.is_python]
    return _joined(blocks) or ("" if "```" in text else _spans(text))


def blocks(text: str) -> list[str]:
    """Return the Python of each code block of a text."""
    return [block.code for block in _non_empty(_blocks(_lines(text))) if block.is_python]


def mended(code: str) -> str:
    """Undo what keyboards and clients make of code: quotes, dashes, spaces, invisible letters."""
    pieces: list[str] = []
    place = 0
    for literal in _TYPED.finditer(code):
        pieces += (code[place : literal.start()].translate(_MENDED), _straight(literal))
        place = literal.end()
    pieces.append(code[place:].translate(_MENDED))
    return "".join(pieces)


def _straight(literal: re.Match[str]) -> str:
    text = literal[0]
    if literal["triple"] is not None:
        return f'"""{text[3:-3]}"""'
    inside, quote = literal["double"], '"'
    if inside is None:
        inside, quote = literal["single"], "'"
    if inside is None:
        return text
    return f"{quote}{inside}{quote if len(text) > len(inside) + 1 else ''}"


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _joined(blocks: list[_Block]) -> str:
    return "\n\n".join(block.code for block in blocks)


def _spans(text: str) -> str:
    return "\n\n".join(mended(span["code"]).strip() for span in _SPAN.finditer(text))


def _non_empty(blocks: Iterator[_Block]) -> list[_Block]:
    return [block for block in blocks if block.code]


def _blocks(text: str, place: int = 0) -> Iterator[_Block]:
    """Iterate over the blocks from a place on; one without an end begins a line."""
    while (fence := _FENCE.search(text, place)) is not None:
        end, place = _end_of(text, fence)
        is_closed = end < len(text)
        if is_closed or fence["indent"] is not None:
            yield _block(text[fence.end() : end], fence["indent"] or "", is_closed=is_closed)


def _end_of(text: str, fence: re.Match[str]) -> tuple[int, int]:
    """Return where the content of a block ends, and where the text after it begins."""
    marks = fence["marks"]
    closing = re.compile(rf"{marks[0]}{{{len(marks)},}}")
    if marks[0] == "~":
        closing = re.compile(rf"(?m:^[ \t]*~{{{len(marks)},}}[ \t]*$)")
    else:
        # Backticks within a string of the code end nothing.
        for literal in _LITERAL.finditer(text, fence.end()):
            if literal["ticks"] and len(literal["ticks"]) >= len(marks):
                return literal.start(), literal.end()
    end = closing.search(text, fence.end())
    return (end.start(), end.end()) if end is not None else (len(text), len(text))


def _block(body: str, indent: str, *, is_closed: bool) -> _Block:
    first, _, remainder = body.partition("\n")
    info = _INFO.fullmatch(first.translate(_MENDED).strip())
    if info is not None and remainder.strip():
        language, code = info["language"].lower(), remainder
    else:
        language, code = "", _TAG_BEFORE_CODE.sub("", body, count=1)
    lines = mended(code).strip("\n").rstrip().split("\n")
    code = "\n".join(line.removeprefix(indent) for line in lines)
    return _Block(language, code.strip("\n") if code.strip() else "", is_closed)
