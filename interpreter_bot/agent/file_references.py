"""Files that a model's answer links to: links become file names, and links to no file are found.

Models write `[result](sandbox:/mnt/data/result (1).csv)`, which is no valid Markdown, and which no
platform can follow. The file is delivered beside the answer, so the link is replaced by its name.
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
_MAX_MISSING_FILES: Final = 10
_MAX_TARGET_CHARACTERS: Final = 500
_MAX_PARENTHESES: Final = 20
_MAX_WORDS: Final = 30
_MAX_LOOKUPS: Final = 1000
_WORKSPACE_PREFIX: Final = re.compile(
    r"(?:(?:sandbox|attachment|file):/{0,3}(?:mnt/data/)?|/?mnt/data/)"
)
_SCHEME: Final = "sandbox"
_BARE_LINK: Final = re.compile(r"sandbox:/{0,3}(?:mnt/data/)?")
_NAME_WITHOUT_SPACES: Final = re.compile(r"[^\s()<>\[\]\"'`]{1,500}")
_TRAILING_PUNCTUATION: Final = ".,;:!?*_"
_LINK_TITLE: Final = re.compile(r"\s+(?:\"[^\"]*\"|'[^']*')\Z")
_PLAIN_PUNCTUATION: Final = str.maketrans("\u2018\u2019\u201c\u201d\u2010\u2011", "''\"\"--")

_DATA_FILE: Final = re.compile(
    r"[^\0]*\.(?:csv|tsv|xlsx|xlsm|xlsb|xls|ods|jsonl|geojson|parquet|feather|pkl|pickle|joblib|npy|"
    r"npz|h5|hdf5|png|jpg|jpeg|gif|svg|webp|tif|tiff|bmp|pdf|docx|doc|pptx|rtf|zip|7z|mp4|mp3|wav|"
    r"webm|mov|avi|mkv|ogg|flac|srt)\Z",
    re.IGNORECASE,
)
# A quick test, as most answers link to no file.
_MAY_REFER: Final = re.compile(r"\]\(|\]:|sandbox:", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class _Reference:
    """A link to a file, or the bare URL of one.

    Attributes:
        start: its start in the text of its block.
        end: its end there.
        label: the link's label, as Markdown.
        name: the real name of a file that exists, otherwise the name as it is written.
        exists: whether the file exists.
    """

    start: int
    end: int
    label: str
    name: str
    exists: bool

    @property
    def replacement(self) -> str:
        name = f"`{self.name}`" if "`" not in self.name else self.name
        label = self.label.strip("`* ")
        if not label or label in (self.name, self.name.rpartition("/")[2]):
            return name
        return label if name in label else f"{label} ({name})"


class _ExistingFiles:
    """The existing files, which can be found by any spelling of their names."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self._names_by_normalized: dict[str, str] = {}
        for name in sorted(self.names):
            self._names_by_normalized.setdefault(_normalize_name(name), name)
        for name in sorted(self.names):
            self._names_by_normalized.setdefault(_normalize_name(name.rpartition("/")[2]), name)

    def find(self, target: str) -> str | None:
        """Return the real name of a file, given a name or the target of a link."""
        relative_target = target.removeprefix("./")
        for name in dict.fromkeys(
            (relative_target, urllib.parse.unquote(relative_target), _unescape(relative_target))
        ):
            if name in self.names:
                return name
            real_name = self._names_by_normalized.get(
                _normalize_name(name)
            ) or self._names_by_normalized.get(_normalize_name(name.rpartition("/")[2]))
            if real_name is not None:
                return real_name
        return None

    def find_at_start(self, text: str) -> tuple[str, int] | None:
        """Return the longest file name with which a text begins, and its length in the text."""
        word_ends = (index for index in range(1, len(text) + 1) if _is_word_end(text, index))
        for end in reversed([*itertools.islice(word_ends, _MAX_WORDS)]):
            if (name := self.find(text[:end])) is not None:
                return name, end
        return None


def may_refer_to_files(text: str) -> bool:
    """Return whether an answer may refer to files."""
    return _MAY_REFER.search(text) is not None


def replace_links(text: str, existing: Iterable[str]) -> str:
    """Replace links to workspace files by the files' real names.

    Args:
        text: Markdown.
        existing: names of all files.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    cursors: dict[int, int] = {}
    replacements: list[tuple[int, int, int, str]] = []
    for block in _parse_inline_blocks(text, _ExistingFiles(existing)):
        if block.map is None:
            continue
        line_start = 0
        for number, content in enumerate(block.content.split("\n"), block.map[0]):
            # In its line, the content of a block follows the marks of lists and quotations.
            column = lines[number].find(content, cursors.get(number, 0))
            for reference in block.meta["references"]:
                start, end = reference.start - line_start, reference.end - line_start
                if column >= 0 and start >= 0 and end <= len(content):
                    replacements.append(
                        (number, column + start, column + end, reference.replacement)
                    )
            if column >= 0:
                cursors[number] = column + len(content)
            line_start += len(content) + 1
    for number, start, end, replacement in sorted(replacements, reverse=True):
        lines[number] = lines[number][:start] + replacement + lines[number][end:]
    return "\n".join(lines)


def find_missing_files(text: str, existing: Iterable[str]) -> tuple[str, ...]:
    """Return the files that an answer links to and that do not exist, as the answer names them.

    Args:
        text: Markdown.
        existing: names of all files.
    """
    names = {
        reference.name: None
        for block in _parse_inline_blocks(text, _ExistingFiles(existing))
        for reference in block.meta["references"]
        if not reference.exists
    }
    return tuple(names)[:_MAX_MISSING_FILES]


def _parse_inline_blocks(text: str, files: _ExistingFiles) -> Iterator[token.Token]:
    """Yield the blocks of prose in an answer, without code, and with the references in each."""
    searched_text = _cut_to_limit(text)
    if markdown_cost.is_slow_to_parse(searched_text):
        return
    parser = markdown_it.MarkdownIt("commonmark").enable("table")
    parser.inline.ruler.before("link", "file_reference", _read_reference)
    for block in parser.parse(searched_text, {"files": files, "lookups": 0}):
        if block.type == "inline":
            block.meta["references"] = [
                child.meta["reference"]
                for child in block.children or ()
                if child.type == "file_reference"
            ]
            yield block


def _read_reference(state: rules_inline.StateInline, silent: bool) -> bool:
    """Read a link to a file, or a bare URL of one, at the parser's position."""
    files: _ExistingFiles = state.env["files"]
    if state.src[state.pos] not in ":![" or state.env["lookups"] >= _MAX_LOOKUPS:
        return False
    state.env["lookups"] += 1
    if state.src[state.pos] == ":":
        return _read_bare_link(state, files, silent=silent)
    is_picture = state.src.startswith("![", state.pos)
    start = state.pos + is_picture
    if state.src[start : start + 1] != "[":
        return False
    label_end = state.md.helpers.parseLinkLabel(state, start, not is_picture)
    if label_end < 0:
        return False
    label = state.src[start + 1 : label_end]
    match = _read_target(state, label, label_end, files)
    if match is None:
        return False
    name, exists, end = match
    # Not in a silent call, which only looks ahead: a label inside a label is parsed once more, so
    # that each level would double the work.
    if "](" in label and not silent:
        label = replace_links(label, files.names)
    _push_token(state, _Reference(state.pos, end, label, name, exists), silent=silent)
    return True


def _read_bare_link(
    state: rules_inline.StateInline, files: _ExistingFiles, *, silent: bool
) -> bool:
    start = state.pos - len(_SCHEME)
    opening = _BARE_LINK.match(state.src, max(start, 0))
    if opening is None or not state.pending.endswith(_SCHEME):
        return False
    rest = state.src[opening.end() : opening.end() + _MAX_TARGET_CHARACTERS].partition("\n")[0]
    if (match := files.find_at_start(rest)) is not None:
        name, length = match
    elif (word := _NAME_WITHOUT_SPACES.match(rest)) is not None and word[0].rstrip(
        _TRAILING_PUNCTUATION
    ):
        target = word[0].rstrip(_TRAILING_PUNCTUATION)
        name, length = urllib.parse.unquote(target), len(target)
    else:
        return False
    if not silent:
        state.pending = state.pending[: -len(_SCHEME)]
    reference = _Reference(start, opening.end() + length, "", name, match is not None)
    _push_token(state, reference, silent=silent)
    return True


def _push_token(state: rules_inline.StateInline, reference: _Reference, *, silent: bool) -> None:
    if not silent:
        state.push("file_reference", "", 0).meta["reference"] = reference
    state.pos = reference.end


def _read_target(
    state: rules_inline.StateInline, label: str, label_end: int, files: _ExistingFiles
) -> tuple[str, bool, int] | None:
    """Return the file that a link leads to, whether it exists, and the end of the link."""
    following = state.src[label_end + 1 : label_end + 2]
    if following != "(":
        return _read_defined_target(state, label, label_end, files)
    start = label_end + 2
    rest = state.src[start : start + _MAX_TARGET_CHARACTERS].partition("\n")[0]
    ends = [index for index, character in enumerate(rest) if character == ")"][:_MAX_PARENTHESES]
    for end in reversed(ends):
        name, is_in_workspace = _strip_target(rest[:end])
        # A longer text that holds a whole link is not the link's target.
        may_be_file = "](" not in name and (is_in_workspace or "://" not in name)
        if may_be_file and (real_name := files.find(name)) is not None:
            return real_name, True, start + end + 1
    for end in ends:
        target = rest[:end]
        if target.count("(") > target.count(")") and end != ends[-1]:
            continue
        name, is_in_workspace = _strip_target(target)
        if is_in_workspace or (_DATA_FILE.match(name) and not re.search(r"[:#?]", name)):
            return urllib.parse.unquote(name), False, start + end + 1
        return None
    return None


def _read_defined_target(
    state: rules_inline.StateInline, label: str, label_end: int, files: _ExistingFiles
) -> tuple[str, bool, int] | None:
    """Do what `_read_target` does, for a link whose target is defined elsewhere in the text."""
    end = label_end + 1
    key = label
    if state.src.startswith("[", end) and (key_end := state.src.find("]", end)) >= 0:
        key = state.src[end + 1 : key_end] or label
        end = key_end + 1
    definition: dict[str, str] | None = state.env.get("references", {}).get(
        common.utils.normalizeReference(key)
    )
    if definition is None:
        return None
    name, is_in_workspace = _strip_target(definition["href"])
    real_name = files.find(name) if is_in_workspace or "://" not in name else None
    if real_name is None and not is_in_workspace:
        return None
    return real_name or urllib.parse.unquote(name), real_name is not None, end


def _strip_target(target: str) -> tuple[str, bool]:
    """Return the file name in a link's target, and whether it is a path of the workspace."""
    name = _LINK_TITLE.sub("", target.strip()).removeprefix("<").removesuffix(">").strip()
    prefix = _WORKSPACE_PREFIX.match(name)
    return (name[prefix.end() :], True) if prefix else (name, False)


def _is_word_end(text: str, index: int) -> bool:
    if text[index - 1].isspace():
        return False
    return index == len(text) or not (text[index].isalnum() and text[index - 1].isalnum())


def _normalize_name(name: str) -> str:
    """Return the form that all spellings of a name share."""
    text = unicodedata.normalize("NFKC", name).translate(_PLAIN_PUNCTUATION).casefold()
    return " ".join(text.split())


def _unescape(name: str) -> str:
    return str(common.utils.unescapeAll(name))


def _cut_to_limit(text: str) -> str:
    """Return the part of a text that is searched, cut between words."""
    if len(text) <= MAX_CHARACTERS:
        return text
    whole_words, *last_word = text[:MAX_CHARACTERS].rsplit(maxsplit=1)
    return whole_words if last_word else ""


def write_objection(names: Sequence[str]) -> chat_messages.Note:
    """Return the note that asks the model to answer again."""
    return chat_messages.Note(
        f"[Your answer links to files that do not exist: {', '.join(names)}. Save them with code "
        "now, or answer without them. The person has seen your answer: write a whole new one.]"
    )
