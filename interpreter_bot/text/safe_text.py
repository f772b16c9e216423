"""Make foreign text safe to display: controls, escapes, bidi, surrogates. Pure.

`clean` removes terminal escapes and controls from text of a kernel. `harmless` also removes
invisible characters, for text that is shown unchanged. `revealed` spells out everything hidden, for
code that a person should approve; it removes nothing, as hidden code would run as well.

No pattern backtracks, so the time is proportional to the length of any text, hostile or not.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Iterator
from typing import Final

# Content of a string escape. A line end closes it, unlike in real terminals, where a missing byte
# would swallow everything that is printed later.
_STRING: Final = r"[^\x07\x18\x1a\x1b\x9c\r\n]*+"
_ESCAPE: Final = (
    rf"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?|[\]PX^_]{_STRING}[\x07\x18\x1a\x9c]?|[ -/]*+[0-~]?)"
)
# C1 controls are removed, but begin no escape: mostly they are the second half of a wrongly decoded
# character, followed by ordinary text. Only if parameters follow, and only in printed text, such a
# control begins an escape.
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
_SEPARATOR: Final = "[;:]"
_CODE: Final = (
    rf"(?:0?[0-479]|2[1-479]|[34][0-79]|9[0-7]|10[0-7]|[34]8{_SEPARATOR}5{_SEPARATOR}\d{{1,3}}"
    rf"|[34]8{_SEPARATOR}2(?:{_SEPARATOR}\d{{1,3}}){{3}})"
)
_COLOUR: Final = rf"\x1b\[(?:{_CODE}(?:{_SEPARATOR}{_CODE}){{0,8}})?m"
_UNCOLOURED: Final = re.compile(rf"(?!{_COLOUR})(?:{_ESCAPE}|{_CONTROLS}|\x08)")
# Backspaces are moves, which `output_screens` follows.
_UNPRINTED: Final = re.compile(f"{_ESCAPE}|{_C1_ESCAPE}|{_CONTROLS}|{_INVISIBLE}|{_TAGS}")
_UNFINISHED: Final = re.compile(
    rf"(?:\x1b(?:\[[0-?]*+[ -/]*+|[\]PX^_]{_STRING}|[ -/]*+)|\x9b[0-?]*+[ -/]*+)\Z"
)
_MAX_ESCAPE_CHARACTERS: Final = 256
# At a time, as a search with many matches keeps other threads waiting.
_STEP_CHARACTERS: Final = 32_000
# They make code look different from what runs (CVE-2021-42574).
_REORDERING: Final = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
# Python and every screen take them for line ends.
_CARRIAGE_RETURNS: Final = re.compile(r"\r\n?")
_SEPARATORS: Final = str.maketrans("\u2028\u2029", "\n\n")
# Beyond this many times the wanted length, escapes are not removed before text is shortened.
_MAX_ESCAPE_RATIO: Final = 16
# Letters, symbols and marks that are drawn as nothing or as an empty cell: fillers of Hangul, an
# empty Braille cell, variation selectors, and others.
_BLANK: Final = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_SEEN: Final = frozenset(" \t\n")
_SYMBOLS: Final = frozenset({"So", "Sk"})
_EMOJI_SELECTOR, _JOINER = "\ufe0f", "\u200d"


def clean(text: str) -> str:
    """Remove escapes and controls except newline, tab and carriage return."""
    if text.isprintable():
        return text
    if len(text) > _STEP_CHARACTERS:
        return Cleaner().feed(text)
    return encodable(_ESCAPES_AND_CONTROLS.sub("", text))


def encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by `?`.

    Encoding with replacement is fifty times faster than a search for them.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _steps(text: str) -> Iterator[str]:
    return (
        text[start : start + _STEP_CHARACTERS] for start in range(0, len(text), _STEP_CHARACTERS)
    )


def harmless(text: str) -> str:
    r"""Remove escapes, controls and invisible characters except newline and tab.

    Characters that reorder text are spelled out as in Python, such as `\u202e`.
    """
    if text.isascii() and text.isprintable():
        return text
    return printed(_CARRIAGE_RETURNS.sub("\n", text)).replace("\x08", "")


def printed(text: str) -> str:
    """Sanitize printed text as `harmless` does, but keep carriage returns and backspaces."""
    text = _UNPRINTED.sub("", text)
    if text.isascii():
        return text
    text = encodable(text).translate(_SEPARATORS)
    return _REORDERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def without_open_escape(text: str) -> tuple[str, str]:
    """Split off an unfinished escape at the end of printed text; the next piece may end it."""
    start = max(text.rfind("\x1b"), text.rfind("\x9b"))
    if 0 <= len(text) - start <= _MAX_ESCAPE_CHARACTERS and _UNFINISHED.match(text, max(start, 0)):
        return text[:start], text[start:]
    return text, ""


class Cleaner:
    """`clean` for a stream in pieces, which may cut an escape in two."""

    def __init__(self, *, keeps_colours: bool = False) -> None:
        """Make it; with `keeps_colours`, readers that show no colours must remove them."""
        self._pending = ""
        self._removed = _UNCOLOURED if keeps_colours else _ESCAPES_AND_CONTROLS

    def feed(self, text: str) -> str:
        """Clean the next piece; an unfinished escape waits for the piece after it."""
        return "".join(map(self._feed, _steps(text)))

    def _feed(self, text: str) -> str:
        text = self._pending + text
        start = text.rfind("\x1b")
        is_open = start >= 0 and _UNFINISHED.match(text, start) is not None
        self._pending = ""
        if is_open:
            is_whole = self._removed is _UNCOLOURED and len(text) - start <= _MAX_ESCAPE_CHARACTERS
            self._pending = text[start:] if is_whole else _shortest(text, start)
            text = text[:start]
        return text if text.isprintable() else encodable(self._removed.sub("", text))


def _shortest(text: str, start: int) -> str:
    """Shorten the unfinished escape at `start` so that it is still continued alike."""
    kind = text[start + 1 : start + 2]
    if kind and kind in "]PX^_":
        return "\x1b]"
    opening = "\x1b[" if kind == "[" else "\x1b"
    has_intermediate = len(text) > start + len(opening) and " " <= text[-1] <= "/"
    return f"{opening} " if has_intermediate else opening


def head(text: str, max_bytes: int) -> str:
    """Cut a text to so many bytes of UTF-8, between characters; replace lone surrogates."""
    start = encodable(text[:max_bytes])
    if start.isascii():
        return start
    encoded = start.encode()
    return start if len(encoded) <= max_bytes else encoded[:max_bytes].decode("utf-8", "ignore")


def bounded(text: str, max_characters: int) -> str:
    """Clean a text; in a long one, replace the middle by a note on its length."""
    if len(text) <= max_characters * _MAX_ESCAPE_RATIO:
        text = clean(text)
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    tail = len(text) - half
    mark = f"\n… {tail - half:,} characters left out …\n"
    return f"{clean(text[:half])}{mark}{clean(text[tail:])}"


def clipped(text: str, max_characters: int) -> str:
    """Clean a text, and cut the end of a long one."""
    start = clean(text[: max_characters * _MAX_ESCAPE_RATIO])
    return start if len(start) <= max_characters else start[: max_characters - 1] + "…"


@dataclasses.dataclass(frozen=True, slots=True)
class Revealed:
    """Code spelled out for display.

    Attributes:
        text: characters that are invisible or reorder others are replaced, such as by `⟨U+202E⟩`.
        warning: a sentence about these; empty if there are none.
    """

    text: str
    warning: str = ""


def revealed(code: str) -> Revealed:
    """Spell out characters of code that are invisible or reorder others.

    Parts of a visible emoji are kept.
    """
    code = _CARRIAGE_RETURNS.sub("\n", code)
    if code.isascii() and all(line.isprintable() for line in re.split(r"[\n\t]", code)):
        return Revealed(code)
    pieces: list[str] = []
    count = 0
    for index, letter in enumerate(code):
        if letter in _SEEN or not _is_hidden(code, index):
            pieces.append(letter)
        else:
            pieces.append(f"⟨U+{ord(letter):04X}⟩")
            count += 1
    return Revealed("".join(pieces), _warning(count))


def _is_hidden(code: str, index: int) -> bool:
    letter = code[index]
    if unicodedata.category(letter) not in _UNSEEN and not _BLANK.match(letter):
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
    return bool(letter) and unicodedata.category(letter) in _SYMBOLS and not _BLANK.match(letter)


def _warning(count: int) -> str:
    if not count:
        return ""
    subject = "a character" if count == 1 else f"{count:,} characters"
    return f"This code holds {subject} that nobody can see or that reorder text, shown as ⟨U+…⟩."
