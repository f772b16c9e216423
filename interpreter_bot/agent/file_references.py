"""Files that a model's answer refers to: links become file names, and false claims are found.

Models write `[result](sandbox:/mnt/data/result (1).csv)`, which is no valid Markdown, and which no
platform can follow. The file is delivered beside the answer, so the link is replaced by its name.

A false accusation is worse than a miss: only a link to a workspace file, or a file name in a
sentence that says it was made, is a claim. Possibilities, negations, code blocks, quotations,
addresses and names that others mentioned are no claims.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import unicodedata
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import markdown_it
from markdown_it import common, rules_inline, token

from interpreter_bot.agent import chat_messages
from interpreter_bot.text import markdown_cost

MAX_CHARACTERS: Final = 20_000
"""Only this much of an answer is searched; the rest stays as it is."""
_MAX_MISSING: Final = 10
_MAX_TARGET: Final = 500
_MAX_PARENTHESES: Final = 20
_MAX_WORDS: Final = 30
_MAX_LOOKUPS: Final = 1000
_HOME: Final = re.compile(r"(?:(?:sandbox|attachment|file):/{0,3}(?:mnt/data/)?|/?mnt/data/)")
_SCHEME: Final = "sandbox"
_BARE: Final = re.compile(r"sandbox:/{0,3}(?:mnt/data/)?")
_BARE_NAME: Final = re.compile(r"[^\s()<>\[\]\"'`]{1,500}")
_TRAILING: Final = ".,;:!?*_"
_TITLE: Final = re.compile(r"\s+(?:\"[^\"]*\"|'[^']*')\Z")
_QUOTES: Final = str.maketrans("\u2018\u2019\u201c\u201d\u2010\u2011", "''\"\"--")

_DATA: Final = (
    "csv|tsv|xlsx|xlsm|xlsb|xls|ods|jsonl|geojson|parquet|feather|pkl|pickle|joblib|npy|npz|h5|"
    "hdf5|png|jpg|jpeg|gif|svg|webp|tif|tiff|bmp|pdf|docx|doc|pptx|rtf|zip|7z|mp4|mp3|wav|webm|"
    "mov|avi|mkv|ogg|flac|srt"
)
_ENDINGS: Final = f"{_DATA}|json|xml|yaml|yml|sqlite|db|html|htm|md|txt|tex|tar|gz|py|ipynb|sql|log"
_IS_DATA: Final = re.compile(rf"[^\0]*\.(?:{_DATA})\Z", re.IGNORECASE)
# Whether an answer is worth a look at all: most name no file.
_MAY_REFER: Final = re.compile(rf"\]\(|\]:|mnt/data|sandbox:|\.(?:{_ENDINGS})\b", re.IGNORECASE)
# A file name as one word of a sentence: no part of an address, a path elsewhere, a pattern or an
# expression.
_WORD: Final = re.compile(
    r"(?<![\w.+/\\:@~*<>{$=-])(?P<home>/?mnt/data/)?"
    rf"(?P<name>(?:\w[\w-]{{0,60}}/){{0,3}}\w[\w.+-]{{0,100}}\.(?:{_ENDINGS}))"
    r"(?![\w(\[/\\=*>-]|\.\w)",
    re.IGNORECASE,
)
_WHOLE: Final = re.compile(
    r"(?P<home>/?mnt/data/)?(?P<name>(?:\w[\w -]{0,60}/){0,3}"
    rf"\w(?:[\w.+\-, ]|(?<= )[(\[]\w{{1,40}}[)\]]){{0,100}}\.(?:{_ENDINGS}))",
    re.IGNORECASE,
)
_PLACEHOLDER: Final = re.compile(
    r"(?:your|my|some|example|sample|file_?name|path_?to|foo|bar|name)(?:\W|_|\d|\Z)|file\d*\.",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,15}://\S{1,500}|\bwww\.\S{1,500}", re.IGNORECASE
)
_SENTENCE: Final = re.compile(r"(?<=[.!?;])\s+|\n+")
_MADE: Final = re.compile(
    r"\b(?:saved?|wrote|written|created?|generated|exported|stored|attached|made|download\w*|"
    r"gespeichert|erstellt|geschrieben|erzeugt|enregistr\w+|créé\w*|guard\w+|cread\w+)\b",
    re.IGNORECASE,
)
# Words, in the most frequent languages, for what might be, is offered, asked for, advised, or not
# there, and for what lies within another file.
_NO_CLAIM: Final = re.compile(
    r"\b(?:if|could|would|should|might|e\.?g|example|such as|suppose|imagine|assum\w+|typical\w*|"
    r"usual\w*|often|general(?:ly)?|convention\w*|let me know|wenn|könn\w+|würd\w+|soll\w*|"
    r"zum beispiel|z\. ?b|si|pourr\w+|par exemple|podría\w*|por ejemplo|"
    r"can|may|must|want|need|please|like|not|no|none|never|cannot|\w+n['\u2019]t|without|instead|"
    r"unable|missing|fail\w*|try|rename|upload|send|provide|share|kann\w*|nicht|kein\w*|fehl\w*|"
    r"peu[xt]|pouvez|pas|aucun\w*|puede\w*|ning\w+|zipp\w*|archiv\w*|contain\w*|inside)\b",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Reference:
    """A link to a file, or the bare address of one.

    Attributes:
        start: where it begins in the text of its block.
        end: where it ends there.
        label: of the link, as Markdown.
        name: the real one of a file that exists, else as it is written.
        exists: the file does.
    """

    start: int
    end: int
    label: str
    name: str
    exists: bool

    @property
    def shown(self) -> str:
        name = f"`{self.name}`" if "`" not in self.name else self.name
        label = self.label.strip("`* ")
        if not label or label in (self.name, self.name.rpartition("/")[2]):
            return name
        return label if name in label else f"{label} ({name})"


class _Files:
    """The files that exist, found by any spelling of their names."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self._by_spelling: dict[str, str] = {}
        for name in sorted(self.names):
            self._by_spelling.setdefault(_spelling(name), name)
        for name in sorted(self.names):
            self._by_spelling.setdefault(_spelling(name.rpartition("/")[2]), name)
        self.spellings = sorted(self._by_spelling, key=len, reverse=True)

    def find(self, target: str) -> str | None:
        """Return the real name of a file, by its name or the target of a link to it."""
        plain = target.removeprefix("./")
        for name in dict.fromkeys((plain, urllib.parse.unquote(plain), _without_markup(plain))):
            if name in self.names:
                return name
            real = self._by_spelling.get(_spelling(name)) or self._by_spelling.get(
                _spelling(name.rpartition("/")[2])
            )
            if real is not None:
                return real
        return None

    def find_at_start(self, text: str) -> tuple[str, int] | None:
        """Return the longest real name with which a text begins, and its length there."""
        ends = (place for place in range(1, len(text) + 1) if _ends_word(text, place))
        for end in reversed([*itertools.islice(ends, _MAX_WORDS)]):
            if (name := self.find(text[:end])) is not None:
                return name, end
        return None

    def has_ending_in(self, name: str) -> bool:
        """Return whether a file's name equals or ends in a name, which the answer may have cut."""
        spelling = _spelling(name)
        return any(other.endswith(spelling) for other in self.spellings)


def may_refer(text: str) -> bool:
    """Return whether an answer may refer to files at all."""
    return _MAY_REFER.search(text) is not None


def rewritten(text: str, existing: Iterable[str]) -> str:
    """Replace links to workspace files by the files' real names.

    Args:
        text: Markdown.
        existing: names of the files there are.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    cursors: dict[int, int] = {}
    replacements: list[tuple[int, int, int, str]] = []
    for block in _inline_blocks(text, _Files(existing)):
        if block.map is None:
            continue
        offset = 0
        for number, content in enumerate(block.content.split("\n"), block.map[0]):
            # The content of a block begins in its line after the marks of lists and quotes.
            place = lines[number].find(content, cursors.get(number, 0))
            for reference in block.meta["references"]:
                start, end = reference.start - offset, reference.end - offset
                if place >= 0 and start >= 0 and end <= len(content):
                    replacements.append((number, place + start, place + end, reference.shown))
            if place >= 0:
                cursors[number] = place + len(content)
            offset += len(content) + 1
    for number, start, end, label in sorted(replacements, reverse=True):
        lines[number] = lines[number][:start] + label + lines[number][end:]
    return "\n".join(lines)


def missing(
    text: str,
    existing: Iterable[str],
    transcript: Sequence[chat_messages.Message] = (),
) -> tuple[str, ...]:
    """Return the files that an answer claims and that do not exist, as it names them.

    Args:
        text: Markdown.
        existing: names of the files there are.
        transcript: a file it mentions, other than in the model's own words, is no claim.
    """
    files = _Files(existing)
    names: dict[str, None] = {}
    intro = ""
    for block in _inline_blocks(text, files):
        prose = _prose(block)
        for sentence in _SENTENCE.split(prose):
            # The sentence before a list says what its items are.
            context = f"{intro} {sentence}" if block.meta["is_item"] else sentence
            for name in _claims(sentence, context, block.meta["claims"]):
                names[name] = None
        if not block.meta["is_item"]:
            intro = prose if prose.rstrip().endswith(":") else ""
    mentioned = _spelling(
        "\n".join(
            message.text
            for message in transcript
            if isinstance(message, chat_messages.ToolResult)
            or (isinstance(message, chat_messages.UserMessage) and not message.is_ours)
        )
    )
    return tuple(
        name
        for name in names
        if files.find(name) is None
        and not files.has_ending_in(name)
        and _spelling(name) not in mentioned
    )[:_MAX_MISSING]


def _claims(sentence: str, context: str, claims: Sequence[tuple[str, bool]]) -> Iterator[str]:
    """Iterate over the names that a sentence claims; marks in it stand for links and code."""
    words = _WORD.sub(" ", context)
    if _NO_CLAIM.search(words):
        return
    says_made = _MADE.search(words) is not None
    marked = [
        claims[ord(mark) - _MARK] for mark in sentence if 0 <= ord(mark) - _MARK < len(claims)
    ]
    mentions = [(match["name"], bool(match["home"])) for match in _WORD.finditer(sentence)]
    for name, is_certain in (*marked, *mentions):
        if (is_certain or says_made) and not _PLACEHOLDER.match(name.rpartition("/")[2]):
            yield name


# Private characters of Unicode, which the text of an answer has none of after `_prose`.
_MARK: Final = 0xF0000
_MAX_MARKS: Final = 1000
_PRIVATE: Final = re.compile("[\U000f0000-\U000fffff]")


def _prose(block: token.Token) -> str:
    """Return the text of a block with a mark in the place of each link to a file or name as code.

    The claims that the marks stand for are noted with the block.
    """
    parts: list[str] = []
    claims: list[tuple[str, bool]] = []
    for child in block.children or ():
        claim = None
        if child.type == "file_reference":
            reference: _Reference = child.meta["reference"]
            claim = reference.name, True
        elif child.type == "code_inline" and (match := _WHOLE.fullmatch(child.content.strip())):
            claim = match["name"], bool(match["home"])
        if claim is not None and len(claims) < _MAX_MARKS:
            parts.append(f" {chr(_MARK + len(claims))} ")
            claims.append(claim)
        elif child.type == "text":
            parts.append(_PRIVATE.sub(" ", child.content))
        elif child.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif child.type == "code_inline":
            parts.append(" ")
    block.meta["claims"] = claims
    return _ADDRESS.sub(" ", "".join(parts))


def _inline_blocks(text: str, files: _Files) -> Iterator[token.Token]:
    """Iterate over the blocks of an answer that hold words: no code, no quotations' claims."""
    beginning = _beginning(text)
    if markdown_cost.is_slow_to_parse(beginning):
        return
    parser = markdown_it.MarkdownIt("commonmark").enable("table")
    parser.inline.ruler.before("link", "file_reference", _read_reference)
    depth = {"blockquote": 0, "list_item": 0}
    for block in parser.parse(beginning, {"files": files, "lookups": 0}):
        kind = block.type.rpartition("_")[0]
        if kind in depth:
            depth[kind] += block.nesting
        if block.type == "inline":
            children = block.children or ()
            block.meta["is_item"] = depth["list_item"] > 0
            block.meta["references"] = [
                child.meta["reference"] for child in children if child.type == "file_reference"
            ]
            if depth["blockquote"]:
                # A quotation claims nothing.
                block.children = []
            yield block


def _read_reference(state: rules_inline.StateInline, silent: bool) -> bool:
    """Read a link to a file, or its bare address, where the parser stands."""
    files: _Files = state.env["files"]
    if state.src[state.pos] not in ":![" or state.env["lookups"] >= _MAX_LOOKUPS:
        return False
    state.env["lookups"] += 1
    if state.src[state.pos] == ":":
        return _read_bare(state, files, silent=silent)
    is_picture = state.src.startswith("![", state.pos)
    start = state.pos + is_picture
    if state.src[start : start + 1] != "[":
        return False
    label_end = state.md.helpers.parseLinkLabel(state, start, not is_picture)
    if label_end < 0:
        return False
    label = state.src[start + 1 : label_end]
    match = _target(state, label, label_end, files)
    if match is None:
        return False
    name, exists, end = match
    if "](" in label:
        label = rewritten(label, files.names)
    _push(state, _Reference(state.pos, end, label, name, exists), silent=silent)
    return True


def _read_bare(state: rules_inline.StateInline, files: _Files, *, silent: bool) -> bool:
    start = state.pos - len(_SCHEME)
    opening = _BARE.match(state.src, max(start, 0))
    if opening is None or not state.pending.endswith(_SCHEME):
        return False
    rest = state.src[opening.end() : opening.end() + _MAX_TARGET].partition("\n")[0]
    if (match := files.find_at_start(rest)) is not None:
        name, length = match
    elif (word := _BARE_NAME.match(rest)) is not None and word[0].rstrip(_TRAILING):
        target = word[0].rstrip(_TRAILING)
        name, length = urllib.parse.unquote(target), len(target)
    else:
        return False
    if not silent:
        state.pending = state.pending[: -len(_SCHEME)]
    reference = _Reference(start, opening.end() + length, "", name, match is not None)
    _push(state, reference, silent=silent)
    return True


def _push(state: rules_inline.StateInline, reference: _Reference, *, silent: bool) -> None:
    if not silent:
        state.push("file_reference", "", 0).meta["reference"] = reference
    state.pos = reference.end


def _target(
    state: rules_inline.StateInline, label: str, label_end: int, files: _Files
) -> tuple[str, bool, int] | None:
    """Return the file to which a link leads, whether it exists, and where the link ends."""
    following = state.src[label_end + 1 : label_end + 2]
    if following != "(":
        return _defined_target(state, label, label_end, files)
    begin = label_end + 2
    rest = state.src[begin : begin + _MAX_TARGET].partition("\n")[0]
    ends = [place for place, character in enumerate(rest) if character == ")"][:_MAX_PARENTHESES]
    for end in reversed(ends):
        name, is_ours = _bare_name(rest[:end])
        # A longer text that holds a whole link is not the link's target.
        may_be_file = "](" not in name and (is_ours or "://" not in name)
        if may_be_file and (real := files.find(name)) is not None:
            return real, True, begin + end + 1
    for end in ends:
        inside = rest[:end]
        if inside.count("(") > inside.count(")") and end != ends[-1]:
            continue
        name, is_ours = _bare_name(inside)
        if is_ours or (_IS_DATA.match(name) and not re.search(r"[:#?]", name)):
            return urllib.parse.unquote(name), False, begin + end + 1
        return None
    return None


def _defined_target(
    state: rules_inline.StateInline, label: str, label_end: int, files: _Files
) -> tuple[str, bool, int] | None:
    """Return the target of a link whose address is defined elsewhere in the text."""
    end = label_end + 1
    key = label
    if state.src.startswith("[", end) and (close := state.src.find("]", end)) >= 0:
        key = state.src[end + 1 : close] or label
        end = close + 1
    definition: dict[str, str] | None = state.env.get("references", {}).get(
        common.utils.normalizeReference(key)
    )
    if definition is None:
        return None
    name, is_ours = _bare_name(definition["href"])
    real = files.find(name) if is_ours or "://" not in name else None
    if real is None and not is_ours:
        return None
    return real or urllib.parse.unquote(name), real is not None, end


def _bare_name(target: str) -> tuple[str, bool]:
    """Return the file name in a link's target, and whether the target is in our workspace."""
    name = _TITLE.sub("", target.strip()).removeprefix("<").removesuffix(">").strip()
    home = _HOME.match(name)
    return (name[home.end() :], True) if home else (name, False)


def _ends_word(text: str, place: int) -> bool:
    if text[place - 1].isspace():
        return False
    return place == len(text) or not (text[place].isalnum() and text[place - 1].isalnum())


def _spelling(name: str) -> str:
    """Return the form that all spellings of a name share."""
    text = unicodedata.normalize("NFKC", name).translate(_QUOTES).casefold()
    return " ".join(text.split())


def _without_markup(name: str) -> str:
    return str(common.utils.unescapeAll(name))


def _beginning(text: str) -> str:
    """Return the part of a text that is searched, cut between words."""
    if len(text) <= MAX_CHARACTERS:
        return text
    whole, *cut = text[:MAX_CHARACTERS].rsplit(maxsplit=1)
    return whole if cut else ""


def as_objection(names: Sequence[str]) -> chat_messages.Note:
    """Return the note that asks the model to answer again."""
    return chat_messages.Note(
        f"[Your answer names files that do not exist: {', '.join(names)}. Save them with code now, "
        "or answer without them. The person has seen your answer: write a whole new one.]"
    )
