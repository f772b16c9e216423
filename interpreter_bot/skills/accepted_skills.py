"""Skills that an administrator accepted: copies in the data directory, which kernels are shown.

A copy is what was accepted, to the byte. While its source says something else, or is gone, the copy
is kept aside, and neither kernels nor models see it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import logging
import os
import pathlib
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from interpreter_bot import errors
from interpreter_bot.skills import skill_catalogue, skill_files
from interpreter_bot.wording import skill_words

_log = logging.getLogger(__name__)

DIRECTORY: Final = "skills"
"""In the data directory: what kernels see at `skill_catalogue.MOUNTED`."""
_ASIDE: Final = "skills-aside"
IMPORTABLE: Final = ".python"
"""In that: links to all modules; see `guest.rootfs`."""


class Standing(enum.StrEnum):
    """Whether a skill is used, or why not."""

    ON = "on"
    NEW = "new"
    """Nobody has accepted it."""
    CHANGED = "changed"
    """It is not what was accepted."""
    UNUSABLE = "unusable"
    """It is no skill; see `SkillStatus.reason`."""


@dataclasses.dataclass(frozen=True, slots=True)
class SkillStatus:
    """Where a skill of the settings stands.

    Attributes:
        name: of its directory.
        standing: whether it is used.
        skill: as it is there; None if it is unusable.
        reason: a sentence, where it is.
        changes: files that differ from what was accepted.
    """

    name: str
    standing: Standing
    skill: skill_files.Skill | None = None
    reason: str = ""
    changes: tuple[str, ...] = ()


class AcceptedSkills:
    """The accepted skills of one bot. Methods block, shortly."""

    def __init__(self, directories: Sequence[pathlib.Path], data: pathlib.Path) -> None:
        self._sources = directories
        self._shown = data / DIRECTORY
        self._aside = data / _ASIDE
        self._catalogue: tuple[tuple[int, int], tuple[skill_files.Skill, ...]] | None = None

    def statuses(self) -> tuple[SkillStatus, ...]:
        """Compare all with their sources.

        Raises:
            SkillError: a directory cannot be read.
        """
        sources = skill_files.find(self._sources)
        return tuple(self._judged(name, path) for name, path in sources.items())

    def refresh(self) -> tuple[SkillStatus, ...]:
        """Compare all with their sources, and show those alone that are as they were accepted.

        Raises:
            SkillError: a directory cannot be read, or written to.
        """
        found = self.statuses()
        if not self._sources and not self._shown.exists():
            return found
        with _translated():
            make_directory(self._shown)
            on = {one.name for one in found if one.standing is Standing.ON}
            for name in self._names(self._shown) - on:
                _log.warning("the skill %s is off: it was changed or removed", name)
                self._move(self._shown, self._aside, name)
            for name in on - self._names(self._shown):
                self._move(self._aside, self._shown, name)
            self._link_modules(one.skill for one in found if one.name in on and one.skill)
        return found

    def accept(self, name: str, digest: str = "") -> skill_files.Skill:
        """Accept a skill as it is now; return it.

        Args:
            name: of it.
            digest: as it has to begin, of what somebody has read; empty for whatever is there.

        Raises:
            BotError: there is none, or it cannot be used.
        """
        path = skill_files.find(self._sources).get(name)
        if path is None:
            raise skill_files.SkillError(skill_words.unknown(name))
        skill = skill_files.read(path)
        if not skill.digest.startswith(digest):
            raise skill_files.SkillError(skill_words.changed(name, digest))
        with _translated():
            make_directory(self._shown)
            written = self._shown / f".new-{secrets.token_hex(8)}"
            try:
                _write(skill, written)
                for parent in (self._shown, self._aside):
                    _remove(parent / name)
                written.rename(self._shown / name)
            finally:
                shutil.rmtree(written, ignore_errors=True)
        self.refresh()
        return skill

    def refuse(self, name: str) -> None:
        """Take back that a skill was accepted.

        Raises:
            BotError: it was not.
        """
        if name not in self._names(self._shown) | self._names(self._aside):
            raise skill_files.SkillError(skill_words.not_accepted(name))
        with _translated():
            for parent in (self._shown, self._aside):
                _remove(parent / name)
        self.refresh()

    def catalogue(self, max_characters: int) -> str:
        """Return what a model is told of them; empty if there are none.

        Args:
            max_characters: skills beyond it are only named.
        """
        return skill_catalogue.written(self._read_shown(), max_characters=max_characters)

    def content(self, path: str, *, start: int, max_bytes: int) -> bytes:
        """Return a part of a file of a skill, by its path below /skills.

        Raises:
            FileMissingError: there is none.
            SkillError: it cannot be read.
        """
        name, _, rest = path.partition("/")
        skill = next((one for one in self._read_shown() if one.name == name), None)
        if skill is None or rest not in skill.files:
            raise errors.FileMissingError(skill_words.no_file(f"{skill_catalogue.MOUNTED}/{path}"))
        with _translated(), (self._shown / path).open("rb") as file:
            file.seek(start)
            return file.read(max_bytes)

    def _read_shown(self) -> tuple[skill_files.Skill, ...]:
        """Read what is shown; again when something came or went."""
        try:
            status = self._shown.stat()
        except FileNotFoundError:
            return ()
        version = (status.st_ino, status.st_mtime_ns)
        if self._catalogue is None or self._catalogue[0] != version:
            skills = []
            for name in sorted(self._names(self._shown)):
                try:
                    skill = skill_files.read(self._shown / name)
                    # Its names suffice, and its contents may be large.
                    files = dict.fromkeys(skill.files, b"")
                    skills.append(dataclasses.replace(skill, files=files))
                except skill_files.SkillError:
                    _log.warning("the accepted skill %s cannot be read", name, exc_info=True)
            self._catalogue = version, tuple(skills)
        return self._catalogue[1]

    def _judged(self, name: str, source: pathlib.Path) -> SkillStatus:
        try:
            skill = skill_files.read(source)
        except skill_files.SkillError as error:
            return SkillStatus(name, Standing.UNUSABLE, reason=str(error))
        for parent in (self._shown, self._aside):
            if (parent / name).is_dir():
                try:
                    accepted = skill_files.read(parent / name)
                except skill_files.SkillError as error:
                    return SkillStatus(name, Standing.CHANGED, skill, changes=(str(error),))
                if accepted.digest == skill.digest:
                    return SkillStatus(name, Standing.ON, skill)
                changes = tuple(_changes(accepted, skill))
                return SkillStatus(name, Standing.CHANGED, skill, changes=changes)
        return SkillStatus(name, Standing.NEW, skill)

    def _names(self, parent: pathlib.Path) -> set[str]:
        if not parent.is_dir():
            return set()
        return {path.name for path in parent.iterdir() if not path.name.startswith(".")}

    def _move(self, before: pathlib.Path, after: pathlib.Path, name: str) -> None:
        make_directory(after)
        _remove(after / name)
        (before / name).rename(after / name)

    def _link_modules(self, skills: Iterable[skill_files.Skill]) -> None:
        """Gather all modules in one directory, so that kernels need one entry of `sys.path`.

        Links, below what kernels see: a module comes and goes with its skill, in live kernels too.
        """
        wanted: dict[str, str] = {}
        for skill in skills:
            for name, path in skill.modules.items():
                if name in wanted:
                    _log.warning("the module %s of the skill %s is hidden", name, skill.name)
                wanted.setdefault(name, f"../{skill.name}/{path}")
        directory = self._shown / IMPORTABLE
        make_directory(directory)
        links = {pathlib.PurePath(target).name: target for target in wanted.values()}
        for link in list(directory.iterdir()):
            if links.get(link.name) != os.readlink(link):
                link.unlink()
        for name, target in links.items():
            if not (directory / name).is_symlink():
                (directory / name).symlink_to(target)


def prepare(data: pathlib.Path) -> pathlib.Path:
    """Make and return the directory that kernels see at /skills, though it may stay empty.

    They look once whether its modules' directory is there.
    """
    make_directory(data / DIRECTORY)
    make_directory(data / DIRECTORY / IMPORTABLE)
    return data / DIRECTORY


def make_directory(directory: pathlib.Path) -> None:
    """Make a directory that kernels can read, whatever the mask of this process."""
    directory.mkdir(parents=True, exist_ok=True)
    # A host that runs as another user may have made it; it is as it should be then.
    if directory.stat().st_mode & 0o777 != 0o755:
        directory.chmod(0o755)


def _write(skill: skill_files.Skill, directory: pathlib.Path) -> None:
    """Write a copy that kernels can read."""
    make_directory(directory)
    for path, content in skill.files.items():
        file = directory / path
        for parent in reversed(file.relative_to(directory).parents[:-1]):
            make_directory(directory / parent)
        file.write_bytes(content)
        file.chmod(0o755 if path in skill.programs else 0o644)


def _remove(directory: pathlib.Path) -> None:
    """Remove a copy, if it is there; at once for who looks."""
    if directory.is_dir():
        going = directory.with_name(f".old-{secrets.token_hex(8)}")
        directory.rename(going)
        shutil.rmtree(going, ignore_errors=True)


def _changes(before: skill_files.Skill, after: skill_files.Skill) -> Iterator[str]:
    """Name the files that differ, and how."""
    for path in sorted(before.files.keys() | after.files.keys()):
        if path not in before.files:
            yield f"{path} (new)"
        elif path not in after.files:
            yield f"{path} (gone)"
        elif before.files[path] != after.files[path]:
            yield path
        elif (path in before.programs) != (path in after.programs):
            yield f"{path} (its mode)"


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise skill_files.SkillError(skill_words.accepted_unusable(error.strerror)) from error
