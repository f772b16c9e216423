"""Make foreign text safe to display: controls, escapes, bidi, surrogates. Pure.

`clean` removes terminal escapes and controls from text of a kernel. `sanitize` also removes
invisible characters, for text that is shown unchanged. `reveal_hidden` spells out invisible
characters of code that a person should approve; it removes none, as they would run as well.

No pattern backtracks, so the time is proportional to the length of any text, hostile or not.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Iterator
from typing import Final

# The content of an escape that carries a string, such as a window title. A line end closes it.
# In real terminals it does not, so that a missing byte swallows everything that is printed later.
_STRING_CONTENT: Final = r"[^\x07\x18\x1a\x1b\x9c\r\n]*+"
_ESCAPE: Final = (
    rf"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?|[\]PX^_]{_STRING_CONTENT}[\x07\x18\x1a\x9c]?|[ -/]*+[0-~]?)"
)
# A C1 control is mostly the second half of a wrongly decoded character, so it is removed without
# the text after it. It begins an escape only in printed text, and only if parameters follow.
_C1_ESCAPE: Final = r"\x9b[0-?]++[ -/]*+[@-~]?"
_CONTROLS: Final = r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]"
# Invisible characters that can hide words, without those that scripts and emoji need: joiners,
# single marks of direction, variation selectors.
_INVISIBLE: Final = (
    r"[\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff0-\ufffb\U000e0000\U000e0001]"
)
# Flags of England, Scotland and Wales are a black flag and tags; elsewhere tags hide text.
_TAGS: Final = r"(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0020-\U000e007f]++"
_ESCAPES_AND_CONTROLS: Final = re.compile(f"{_ESCAPE}|{_CONTROLS}|\x08")
# Colours, bold and the like, but nothing that hides text or makes it blink.
_DELIMITER: Final = "[;:]"
_STYLE_CODE: Final = (
    rf"(?:0?[0-479]|2[1-479]|[34][0-79]|9[0-7]|10[0-7]|[34]8{_DELIMITER}5{_DELIMITER}\d{{1,3}}"
    rf"|[34]8{_DELIMITER}2(?:{_DELIMITER}\d{{1,3}}){{3}})"
)
_COLOUR: Final = rf"\x1b\[(?:{_STYLE_CODE}(?:{_DELIMITER}{_STYLE_CODE}){{0,8}})?m"
_ESCAPES_EXCEPT_COLOURS: Final = re.compile(rf"(?!{_COLOUR})(?:{_ESCAPE}|{_CONTROLS}|\x08)")
# Backspaces are moves, which `output_screens` follows.
_UNPRINTABLE: Final = re.compile(f"{_ESCAPE}|{_C1_ESCAPE}|{_CONTROLS}|{_INVISIBLE}|{_TAGS}")
_UNFINISHED_ESCAPE: Final = re.compile(
    rf"(?:\x1b(?:\[[0-?]*+[ -/]*+|[\]PX^_]{_STRING_CONTENT}|[ -/]*+)|\x9b[0-?]*+[ -/]*+)\Z"
)
_MAX_ESCAPE_CHARACTERS: Final = 256
# Text is cleaned in chunks, as a search with many matches keeps other threads waiting.
_CHUNK_CHARACTERS: Final = 32_000
# They make code look different from what runs (CVE-2021-42574).
_BIDI_CONTROLS: Final = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
# Python and every screen take them for line ends.
_CARRIAGE_RETURNS: Final = re.compile(r"\r\n?")
_LINE_SEPARATORS: Final = str.maketrans("\u2028\u2029", "\n\n")
# If a text is longer than this many times the limit, it is shortened before escapes are removed.
_MAX_ESCAPE_RATIO: Final = 16
# Letters, symbols and marks that are drawn as nothing or as an empty cell: fillers of Hangul, an
# empty Braille cell, variation selectors, and others.
_BLANK: Final = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_INVISIBLE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_PLAIN_WHITESPACE: Final = frozenset(" \t\n")
_SYMBOL_CATEGORIES: Final = frozenset({"So", "Sk"})
_EMOJI_SELECTOR, _JOINER = "\ufe0f", "\u200d"


def clean(text: str) -> str:
    """Remove escapes and controls except newline, tab and carriage return."""
    if text.isprintable():
        return text
    if len(text) > _CHUNK_CHARACTERS:
        return Cleaner().feed(text)
    return replace_surrogates(_ESCAPES_AND_CONTROLS.sub("", text))


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by `?`.

    Encoding with replacement is fifty times faster than searching for surrogates.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _chunks(text: str) -> Iterator[str]:
    return (
        text[start : start + _CHUNK_CHARACTERS] for start in range(0, len(text), _CHUNK_CHARACTERS)
    )


def sanitize(text: str) -> str:
    r"""Remove escapes, controls and invisible characters except newline and tab.

    Characters that reorder text are spelled out as in Python, such as `\u202e`.
    """
    if text.isascii() and text.isprintable():
        return text
    return sanitize_printed(_CARRIAGE_RETURNS.sub("\n", text)).replace("\x08", "")


def sanitize_printed(text: str) -> str:
    """Sanitize printed text as `sanitize` does, but keep carriage returns and backspaces."""
    text = _UNPRINTABLE.sub("", text)
    if text.isascii():
        return text
    text = replace_surrogates(text).translate(_LINE_SEPARATORS)
    return _BIDI_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def split_open_escape(text: str) -> tuple[str, str]:
    """Split off an unfinished escape at the end of printed text, which later text may finish."""
    start = max(text.rfind("\x1b"), text.rfind("\x9b"))
    if 0 <= len(text) - start <= _MAX_ESCAPE_CHARACTERS and _UNFINISHED_ESCAPE.match(
        text, max(start, 0)
    ):
        return text[:start], text[start:]
    return text, ""


class Cleaner:
    """Cleans a stream that arrives in pieces; an escape may be spread over two of them."""

    def __init__(self, *, keeps_colours: bool = False) -> None:
        """With `keeps_colours`, escapes for colours and styles stay in the text."""
        self._pending = ""
        self._removed_pattern = _ESCAPES_EXCEPT_COLOURS if keeps_colours else _ESCAPES_AND_CONTROLS

    def feed(self, text: str) -> str:
        """Clean the next piece; an unfinished escape at its end waits for the following piece."""
        return "".join(map(self._feed, _chunks(text)))

    def _feed(self, text: str) -> str:
        text = self._pending + text
        start = text.rfind("\x1b")
        is_open = start >= 0 and _UNFINISHED_ESCAPE.match(text, start) is not None
        self._pending = ""
        if is_open:
            is_whole = (
                self._removed_pattern is _ESCAPES_EXCEPT_COLOURS
                and len(text) - start <= _MAX_ESCAPE_CHARACTERS
            )
            self._pending = text[start:] if is_whole else _shorten_escape(text, start)
            text = text[:start]
        return (
            text if text.isprintable() else replace_surrogates(self._removed_pattern.sub("", text))
        )


def _shorten_escape(text: str, start: int) -> str:
    """Return the shortest escape that later text would continue like the one at `start`."""
    kind = text[start + 1 : start + 2]
    if kind and kind in "]PX^_":
        return "\x1b]"
    opening = "\x1b[" if kind == "[" else "\x1b"
    has_intermediate = len(text) > start + len(opening) and " " <= text[-1] <= "/"
    return f"{opening} " if has_intermediate else opening


def truncate_bytes(text: str, max_bytes: int) -> str:
    """Cut a text to `max_bytes` of UTF-8, between characters; replace lone surrogates."""
    start = replace_surrogates(text[:max_bytes])
    if start.isascii():
        return start
    encoded = start.encode()
    return start if len(encoded) <= max_bytes else encoded[:max_bytes].decode("utf-8", "ignore")


def elide_middle(text: str, max_characters: int) -> str:
    """Clean a text; if it is too long, replace its middle by a note on how much is missing."""
    if len(text) <= max_characters * _MAX_ESCAPE_RATIO:
        text = clean(text)
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    tail = len(text) - half
    note = f"\n… {tail - half:,} characters left out …\n"
    return f"{clean(text[:half])}{note}{clean(text[tail:])}"


def truncate(text: str, max_characters: int) -> str:
    """Clean a text, and cut it if it is too long."""
    start = clean(text[: max_characters * _MAX_ESCAPE_RATIO])
    return start if len(start) <= max_characters else start[: max_characters - 1] + "…"


@dataclasses.dataclass(frozen=True, slots=True)
class RevealedCode:
    """Code for display.

    Attributes:
        text: the code; characters that are invisible or reorder others are spelled out, such as
            `⟨U+202E⟩`.
        warning: a sentence about such characters; empty if there are none.
    """

    text: str
    warning: str = ""


def reveal_hidden(code: str) -> RevealedCode:
    """Spell out characters of code that are invisible or reorder others.

    Parts of a visible emoji are kept.
    """
    code = _CARRIAGE_RETURNS.sub("\n", code)
    if code.isascii() and all(line.isprintable() for line in re.split(r"[\n\t]", code)):
        return RevealedCode(code)
    pieces: list[str] = []
    count = 0
    for index, letter in enumerate(code):
        if letter in _PLAIN_WHITESPACE or not _is_hidden(code, index):
            pieces.append(letter)
        else:
            pieces.append(f"⟨U+{ord(letter):04X}⟩")
            count += 1
    return RevealedCode("".join(pieces), _warning(count))


def _is_hidden(code: str, index: int) -> bool:
    letter = code[index]
    if unicodedata.category(letter) not in _INVISIBLE_CATEGORIES and not _BLANK.match(letter):
        return False
    previous, following = code[index - 1 : index], code[index + 1 : index + 2]
    if letter == _EMOJI_SELECTOR:
        return not _is_symbol(previous) and following != "\u20e3"
    if letter == _JOINER:
        return not (_is_symbol(previous) or previous == _EMOJI_SELECTOR) or not _is_symbol(
            following
        )
    return True


def _is_symbol(letter: str) -> bool:
    return (
        bool(letter)
        and unicodedata.category(letter) in _SYMBOL_CATEGORIES
        and not _BLANK.match(letter)
    )


def _warning(count: int) -> str:
    if not count:
        return ""
    subject, reorder = "a character", "reorders"
    if count > 1:
        subject, reorder = f"{count:,} characters", "reorder"
    return f"This code holds {subject} that nobody can see or that {reorder} text, shown as ⟨U+…⟩."
