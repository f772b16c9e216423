"""Claims without ground in a model's answer: files that do not exist, invented figures. Pure.

Careful, for each alarm makes the model answer again: a claim is only what cannot well be meant
otherwise. A file's name counts in words or as a whole piece of code, if it ends as data and
documents do and no other message has mentioned it. A figure counts if nothing was run for the
answer although there is data: if it is in no question, output or earlier answer, and is no number
that people say anyway. Sentences about what might be, may be done or is not there claim nothing;
nor does code in a block, a quotation or an address.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from interpreter_bot.agent import chat_messages, dead_links, number_matching

_DATA: Final = (
    "csv|tsv|xlsx|xls|ods|jsonl|geojson|parquet|feather|pkl|pickle|joblib|npy|npz|h5|hdf5|png|jpg|"
    "jpeg|gif|svg|webp|tif|tiff|bmp|pdf|docx|doc|pptx|rtf|zip|7z|mp4|mp3|wav|webm|mov|avi|mkv|ogg|"
    "flac|srt"
)
# Also the names of programs: these count only where something is said to have been made.
_PROGRAM: Final = "json|xml|yaml|yml|sqlite|db|html|htm|md|txt|tex|tar|gz|py|ipynb|sql|log"
_MADE: Final = re.compile(
    r"\b(?:saved?|wrote|written|created?|generated|exported|stored|attached|made|download\w*|"
    r"gespeichert|erstellt|geschrieben|erzeugt|enregistr\w+|créé\w*|guard\w+|cread\w+)\b",
    re.IGNORECASE,
)
_ENDINGS: Final = f"{_DATA}|{_PROGRAM}"
# Directories where a file that a person sent is said to be.
_FOLDER: Final = "/mnt/data/"
_NAME: Final = rf"\w[\w.+-]{{0,100}}\.(?:{_ENDINGS})"
# A file name as one word of a sentence: no part of an address, a path elsewhere, a pattern or an
# expression.
_WORD: Final = re.compile(
    rf"(?<![\w.+/\\:@~*<>{{$=-])(?:/?mnt/data/)?(?P<name>(?:\w[\w-]{{0,60}}/){{0,3}}{_NAME})"
    r"(?![\w(\[/\\=*>-]|\.\w)",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r"(`{1,3})(?P<inside>[^`\n]{1,300})\1")
_WHOLE: Final = re.compile(
    rf"(?:/?mnt/data/)?(?P<name>(?:\w[\w -]{{0,60}}/){{0,3}}(?:\w[\w+-]{{0,40}} ){{0,4}}{_NAME})",
    re.IGNORECASE,
)
_PLACEHOLDER: Final = re.compile(
    r"(?:your|my|some|example|sample|file_?name|path_?to|foo|bar|name)(?:\W|_|\d|\Z)|file\d*\.",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,15}://\S{1,500}|\bwww\.\S{1,500}", re.IGNORECASE
)
_SENTENCE: Final = re.compile(r"(?<=[.!?:;])\s+|\n+")
# Words for what might be, in the most frequent languages.
_MAYBE: Final = (
    r"if|could|would|should|might|e\.?g|example|such as|suppose|imagine|assum\w+|typical\w*|"
    r"usual\w*|often|general(?:ly)?|convention\w*|rule of thumb|let me know|falls|wenn|könn\w+|"
    r"würd\w+|soll\w*|zum beispiel|z\. ?b|si|pourr\w+|par exemple|podría\w*|por ejemplo"
)
# Words for what is offered, asked for, advised, or not there.
_ABSENT: Final = (
    r"can|may|must|want|need|please|like|not|no|none|never|cannot|\w+n['\u2019]t|without|instead|"
    r"unable|missing|fail\w*|try|rename|upload|send|provide|share|kann\w*|nicht|kein\w*|fehl\w*|"
    r"peu[xt]|pouvez|pas|aucun\w*|puede\w*|ning\w+"
)
_NO_FIGURE: Final = re.compile(rf"\b(?:{_MAYBE})\b", re.IGNORECASE)
_NO_FILE: Final = re.compile(rf"\b(?:{_MAYBE}|{_ABSENT})\b", re.IGNORECASE)
_UNITS: Final = re.compile(
    r"(?:\b(?:python|version|v|numpy|pandas|matplotlib|utf|iso|sha|http|error|step|section|chapter|"
    r"figure|fig|table|line|row|column|col|page|rfc|type|option|method|q|h)[ -]?\d[\d.,]*)"
    r"|\d{1,2}:\d{2}|\d{4}-\d{2}(?:-\d{2})?|\b\d{1,4}[./]\d{1,2}[./]\d{2,4}\b"
    r"|#[0-9a-f]{3,8}\b",
    re.IGNORECASE,
)
_SMALL: Final = 12
_YEARS: Final = (1900, 2100)
# Numbers said of any data: levels of significance and confidence, quantiles, whole hundreds.
_COMMON: Final = frozenset(
    {0.001, 0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99, 1.5, 1.96, 2.5}
    | {15, 16, 20, 24, 25, 30, 31, 32, 40, 50, 52, 60, 64, 68, 70, 75, 80, 90, 95, 97.5, 99, 99.7}
    | {99.9, 100, 128, 180, 200, 256, 300, 360, 365, 500, 512, 1000, 1024, 10_000, 100_000}
    | {1_000_000, 3.14, 3.1416, 3.14159, 2.718, 2.71828}
)
_MOST: Final = 10
# The most characters of an answer that are searched: it happens on the event loop.
_MOST_CHARACTERS: Final = 20_000


@dataclasses.dataclass(frozen=True, slots=True)
class Unfounded:
    """Claims without ground, as they are written, in order.

    Attributes:
        files: names of files that do not exist.
        figures: numbers without a source.
    """

    files: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.figures)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for people about each kind of claim."""
        lines = []
        if self.files:
            lines.append(f"The answer speaks of files that do not exist: {', '.join(self.files)}.")
        if self.figures:
            lines.append(f"No code ran for figures of the answer: {', '.join(self.figures)}.")
        return tuple(lines)

    @property
    def remark(self) -> str:
        """Return the note that asks the model to answer again."""
        parts = []
        if self.files:
            parts.append(
                f"Your answer speaks of files that do not exist: {', '.join(self.files)}. Save "
                "them with code now, or answer without them."
            )
        if self.figures:
            parts.append(
                f"Nothing was run for this answer, and these figures of it are in no output and no "
                f"file that you saw: {', '.join(self.figures)}. Run code that finds them out, or "
                "answer without them."
            )
        return f"[{' '.join(parts)} The person has seen your answer: write a whole new one.]"


NOTHING: Final = Unfounded()
"""No claim without ground."""


def message_text(message: chat_messages.Message) -> str:
    """Return all text of a message, including its calls."""
    calls = message.calls if isinstance(message, chat_messages.AssistantMessage) else ()
    return "\n".join([message.text, *(call.arguments for call in calls)])


def file_names(text: str) -> tuple[str, ...]:
    """Return the file names that an answer claims, whether or not the files exist."""
    found: dict[str, None] = {}
    for sentence in _sentences(_beginning(text)):
        if _NO_FILE.search(_WORD.sub(" ", _CODE.sub(" ", sentence))):
            continue
        codes = (_WHOLE.fullmatch(one["inside"].strip()) for one in _CODE.finditer(sentence))
        for match in (*codes, *_WORD.finditer(_CODE.sub(" ", sentence))):
            if match is not None and _is_claimed(match["name"], sentence):
                found[match["name"]] = None
    return tuple(found)


def _is_claimed(name: str, sentence: str) -> bool:
    if _PLACEHOLDER.match(name.rpartition("/")[2]):
        return False
    is_data = name.rpartition(".")[2].lower() in _DATA.split("|")
    return is_data or _MADE.search(sentence) is not None


def missing_files(
    text: str, existing: Collection[str], transcript: Sequence[chat_messages.Message]
) -> tuple[str, ...]:
    """Return the files that an answer claims and that do not exist.

    Args:
        text: Markdown.
        existing: names of the files there are.
        transcript: a file it mentions, other than in the model's own words, is no claim.
    """
    present = {name.casefold() for name in existing}
    present |= {name.rpartition("/")[2] for name in present}
    claimed = [name for name in file_names(text) if not _is_present(name.casefold(), present)]
    others = "\n".join(
        one.text
        for one in transcript
        if isinstance(one, chat_messages.ToolResult)
        or (isinstance(one, chat_messages.UserMessage) and not one.is_ours)
    ).casefold()
    claimed = [name for name in claimed if name.casefold() not in others]
    return tuple(dict.fromkeys([*dead_links.rewrite(text, existing).missing, *claimed]))[:_MOST]


def has_data(transcript: Sequence[chat_messages.Message]) -> bool:
    """Say whether the transcript has data from which figures could be computed."""
    return any(
        isinstance(one, chat_messages.ToolResult)
        or (isinstance(one, chat_messages.UserMessage) and not one.is_ours and _FOLDER in one.text)
        for one in transcript
    )


def _is_present(name: str, present: Collection[str]) -> bool:
    return name in present or name.rpartition("/")[2] in present


def figures_of_nothing(text: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the numbers of an answer that are in none of the texts known to the model.

    Args:
        text: the answer, for which nothing was run.
        known: everything that was said and shown before.
    """
    numbers = number_matching.known_in_any_reading(known)
    numbers = sorted({*numbers, *(100 * value for value in numbers if value <= 1)})
    found: dict[str, None] = {}
    for sentence in _sentences(number_matching.without_list_marks(_beginning(text))):
        if _NO_FIGURE.search(sentence):
            continue
        told = _UNITS.sub(" ", _CODE.sub(" ", sentence))
        found |= {
            one: None for one in number_matching.written(told) if not _has_ground(one, numbers)
        }
    return tuple(found)[:_MOST]


def _has_ground(written: str, known: list[float]) -> bool:
    """Say whether a number is known or common, however its commas and gaps are read."""
    readings = list(number_matching.readings(written))
    if not readings or any(_is_common(*one) or _is_rounded(*one, known) for one in readings):
        return True
    parts = number_matching.parts(written)
    return len(parts) > 1 and all(_has_ground(part, known) for part in parts)


def _is_rounded(value: float, places: int, known: list[float]) -> bool:
    """Say whether a number is a known one, however rounded; also in millions."""
    half = 0.5 * 10.0**-places + 1e-9 * value
    return any(
        number_matching.is_near(value * unit, half * unit, known) for unit in (1, 1e3, 1e6, 1e9)
    )


def _is_common(value: float, places: int) -> bool:
    is_small = not places and value <= _SMALL
    is_year = not places and _YEARS[0] <= value <= _YEARS[1]
    return is_small or is_year or value in _COMMON


def _beginning(text: str) -> str:
    """Return as much of a text as is searched, without a word that would be cut in two."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    whole, *cut = text[:_MOST_CHARACTERS].rsplit(maxsplit=1)
    return whole if cut else ""


def _sentences(text: str) -> Iterator[str]:
    """Iterate over the sentences of a text, without code blocks, quotations and addresses."""
    lines = (
        _ADDRESS.sub(" ", line).replace("**", " ")
        for line, is_code in dead_links.marked_lines(text)
        if not (is_code or line.startswith(("    ", "\t", ">")))
    )
    return filter(None, _SENTENCE.split("\n".join(lines)))
