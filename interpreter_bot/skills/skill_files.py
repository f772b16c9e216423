"""Files and front matter of one skill, read once, with limits, and without following links.

An administrator accepts exactly the bytes that were read, so nothing can change in between.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import re
import stat
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from interpreter_bot import errors
from interpreter_bot.text import quantities, safe_text
from interpreter_bot.wording import skill_words

HEAD_FILE: Final = "SKILL.md"
MODULES_DIRECTORY: Final = "python"
"""The directory in a skill with the modules that code can import."""
_NAME: Final = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
# The library raises these for values that it cannot make, such as `!!bool maybe`.
_YAML_VALUE_ERRORS: Final = (
    ValueError,
    RecursionError,
    LookupError,
    AttributeError,
    TypeError,
    OverflowError,
)
_MAX_NAME_CHARACTERS: Final = 64
_MAX_DESCRIPTION_CHARACTERS: Final = 1024
_MAX_AUTHOR_CHARACTERS: Final = 100
_MAX_HEAD_BYTES: Final = 16 * 1024
_MAX_SKILL_BYTES: Final = 16 * 1024 * 1024
_MAX_FILES: Final = 500
_MAX_DEPTH: Final = 8
_IGNORED_NAMES: Final = frozenset({"__pycache__", ".git", ".DS_Store"})


class SkillError(errors.BotError):
    """A skill cannot be used."""


@dataclasses.dataclass(frozen=True, slots=True)
class Skill:
    """A skill as it was read.

    Attributes:
        name: its name, and that of its directory.
        description: what it does and when to use it, one line.
        author: from its metadata; may be empty.
        files: contents by relative path.
        programs: the paths of executable files.
    """

    name: str
    description: str
    author: str
    files: Mapping[str, bytes]
    programs: frozenset[str]

    @property
    def digest(self) -> str:
        """SHA-256 of the names and contents of all files, lower-case hex."""
        hasher = hashlib.sha256()
        for path, content in sorted(self.files.items()):
            head = f"{path}\0{path in self.programs}\0{len(content)}\0"
            hasher.update(head.encode("utf-8", "surrogateescape") + content)
        return hasher.hexdigest()

    @property
    def modules(self) -> Mapping[str, str]:
        """The paths of the modules and packages that code can import, by name."""
        modules = {}
        for path in self.files:
            parts = pathlib.PurePosixPath(path).parts
            if parts[0] != MODULES_DIRECTORY or len(parts) < 2:
                continue
            is_package = len(parts) == 3 and parts[2] == "__init__.py"
            name = parts[1] if is_package else parts[1].removesuffix(".py")
            if name.isidentifier() and (is_package or (len(parts) == 2 and name != parts[1])):
                modules[name] = "/".join(parts[:2])
        return dict(sorted(modules.items()))


def find(directories: Sequence[pathlib.Path]) -> dict[str, pathlib.Path]:
    """Find possible skills in directories; of two with the same name, the first is used.

    Raises:
        SkillError: a directory cannot be read.
    """
    paths: dict[str, pathlib.Path] = {}
    for directory in directories:
        try:
            for path in sorted(directory.iterdir()):
                if (path / HEAD_FILE).is_file():
                    paths.setdefault(path.name, path)
        except OSError as error:
            raise SkillError(skill_words.unreadable_directory(directory, error.strerror)) from error
    return paths


def read(directory: pathlib.Path) -> Skill:
    """Read a skill.

    Raises:
        SkillError: the directory is no skill, contains a link, or is too large.
    """
    files: dict[str, bytes] = {}
    programs = set()
    remaining_bytes = _MAX_SKILL_BYTES
    try:
        root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for path, descriptor in _open_files(root, ""):
                with os.fdopen(descriptor, "rb") as file:
                    content = file.read(remaining_bytes + 1)
                    is_program = os.fstat(file.fileno()).st_mode & 0o111 != 0
                remaining_bytes -= len(content)
                if remaining_bytes < 0 or len(files) >= _MAX_FILES:
                    raise SkillError(skill_words.too_large(_MAX_FILES, _MAX_SKILL_BYTES))
                files[path] = content
                if is_program:
                    programs.add(path)
        finally:
            os.close(root)
    except OSError as error:
        raise SkillError(skill_words.unreadable(error.strerror)) from error
    name, description, author = _read_front_matter(files.get(HEAD_FILE, b""))
    if name != directory.name:
        raise SkillError(skill_words.other_name(directory.name))
    return Skill(name, description, author, files, frozenset(programs))


def _open_files(directory: int, prefix: str) -> Iterator[tuple[str, int]]:
    """Open all files of a directory; yield paths and descriptors, which the caller closes.

    Raises:
        SkillError: it contains something other than files and directories.
    """
    if prefix.count("/") > _MAX_DEPTH:
        raise SkillError(skill_words.TOO_DEEP)
    for name in sorted(os.listdir(directory)):
        if name in _IGNORED_NAMES:
            continue
        path = prefix + name
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        # A name with unprintable characters could be neither shown nor requested.
        if not path.isprintable() or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise SkillError(
                skill_words.not_a_plain_file(safe_text.sanitize(safe_text.replace_surrogates(path)))
            )
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(name, flags, dir_fd=directory)
        if stat.S_ISREG(mode):
            yield path, descriptor
            continue
        try:
            yield from _open_files(descriptor, f"{path}/")
        finally:
            os.close(descriptor)


def _read_front_matter(content: bytes) -> tuple[str, str, str]:
    """Read name, description and author from the front matter; other keys are ignored.

    Raises:
        SkillError: there is no front matter, or it has another format.
    """
    text = content[:_MAX_HEAD_BYTES].decode("utf-8", "replace").replace("\r\n", "\n")
    preamble, mark, remainder = text.partition("---\n")
    front_matter, end, _ = remainder.partition("\n---")
    if preamble or not mark or not end:
        raise SkillError(skill_words.no_front_matter(HEAD_FILE))
    # Imported on first use, as the import would be a large part of the start of `exec`.
    import yaml

    try:
        fields = yaml.safe_load(front_matter)
    except (yaml.YAMLError, *_YAML_VALUE_ERRORS) as error:
        raise SkillError(skill_words.not_yaml(HEAD_FILE)) from error
    if not isinstance(fields, dict):
        raise SkillError(skill_words.no_fields(HEAD_FILE))
    name, description = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or not _is_name(name):
        raise SkillError(skill_words.bad_name(_MAX_NAME_CHARACTERS))
    if not isinstance(description, str) or not 0 < len(description) <= _MAX_DESCRIPTION_CHARACTERS:
        raise SkillError(skill_words.bad_description(_MAX_DESCRIPTION_CHARACTERS))
    metadata = fields.get("metadata")
    author = metadata.get("author", "") if isinstance(metadata, dict) else ""
    author_name = author if isinstance(author, str) else ""
    return (
        name,
        quantities.one_line(safe_text.sanitize(description), _MAX_DESCRIPTION_CHARACTERS),
        quantities.one_line(safe_text.sanitize(author_name), _MAX_AUTHOR_CHARACTERS),
    )


def _is_name(name: str) -> bool:
    is_plain = name == name.lower() == unicodedata.normalize("NFKC", name)
    return is_plain and len(name) <= _MAX_NAME_CHARACTERS and _NAME.fullmatch(name) is not None
