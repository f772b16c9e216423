"""Skills that an administrator accepted: copies in the data directory, which kernels are shown.

A copy is what was accepted, to the byte. While its source says something else, or is gone, there is
no copy, and neither kernels nor models see the skill.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import pathlib
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from interpreter_bot import acceptance, errors
from interpreter_bot.acceptance import Standing
from interpreter_bot.skills import skill_catalogue, skill_files
from interpreter_bot.wording import skill_words

_log = logging.getLogger(__name__)

DIRECTORY: Final = "skills"
"""In the data directory: what kernels see at `skill_catalogue.MOUNTED`."""
IMPORTABLE: Final = ".python"
"""In that: links to all modules; see `guest.rootfs`."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Accepted:
    """What was accepted of a skill: its digest, and one of each file."""

    digest: str
    files: Mapping[str, str]


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
        self._accepted = acceptance.Records(data, "skills", _Accepted)
        self._catalogue: tuple[tuple[int, int], tuple[skill_files.Skill, ...]] | None = None

    def statuses(self) -> tuple[SkillStatus, ...]:
        """Compare all with their sources.

        Raises:
            SkillError: a directory cannot be read.
        """
        sources = skill_files.find(self._sources)
        return tuple(self._status(name, path) for name, path in sources.items())

    def refresh(self) -> tuple[SkillStatus, ...]:
        """Compare all with their sources, and show those alone that are as they were accepted.

        Raises:
            SkillError: a directory cannot be read, or written to.
        """
        statuses = self.statuses()
        if not self._sources and not self._shown.exists():
            return statuses
        skills = [
            status.skill for status in statuses if status.skill and status.standing is Standing.ON
        ]
        with _translated():
            make_directory(self._shown)
            for name in self._names() - {skill.name for skill in skills}:
                _log.warning("the skill %s is off: it was changed, removed or refused", name)
                _remove(self._shown / name)
            for skill in skills:
                if not _is_copied(skill, self._shown / skill.name):
                    self._copy(skill)
            self._link_modules(skills)
        return statuses

    def accept(self, name: str, digest: str) -> skill_files.Skill:
        """Accept a skill as it is now, if `digest` names it; see `acceptance.check_version`.

        Raises:
            BotError: there is none, it is another version, or it cannot be used.
        """
        path = skill_files.find(self._sources).get(name)
        if path is None:
            raise skill_files.SkillError(skill_words.unknown(name))
        skill = skill_files.read(path)
        acceptance.check_version(name, digest, skill.digest)
        self._accepted.write(name, _Accepted(skill.digest, _digests(skill)))
        self.refresh()
        return skill

    def refuse(self, name: str) -> None:
        """Take back that a skill was accepted.

        Raises:
            BotError: it was not.
        """
        if name != pathlib.PurePath(name).name or not self._accepted.remove(name):
            raise skill_files.SkillError(skill_words.not_accepted(name))
        self.refresh()

    def catalogue(self, max_characters: int) -> str:
        """Return the catalogue for a model; skills beyond `max_characters` are only named."""
        return skill_catalogue.write(self._read_shown(), max_characters=max_characters)

    def content(self, path: str, *, start: int, max_bytes: int) -> bytes:
        """Return a part of a file of a skill, by its path below /skills.

        Raises:
            FileMissingError: there is none.
            SkillError: it cannot be read.
        """
        name, _, file_path = path.partition("/")
        skill = next(
            (candidate for candidate in self._read_shown() if candidate.name == name), None
        )
        if skill is None or file_path not in skill.files:
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
            for name in sorted(self._names()):
                try:
                    skill = skill_files.read(self._shown / name)
                    # Its names suffice, and its contents may be large.
                    files = dict.fromkeys(skill.files, b"")
                    skills.append(dataclasses.replace(skill, files=files))
                except skill_files.SkillError:
                    _log.warning("the accepted skill %s cannot be read", name, exc_info=True)
            self._catalogue = version, tuple(skills)
        return self._catalogue[1]

    def _status(self, name: str, source: pathlib.Path) -> SkillStatus:
        try:
            skill = skill_files.read(source)
        except skill_files.SkillError as error:
            return SkillStatus(name, Standing.UNUSABLE, reason=str(error))
        accepted = self._accepted.read(name)
        standing = acceptance.standing(accepted.digest if accepted else None, skill.digest)
        changes = tuple(_changes(accepted.files, _digests(skill))) if accepted else ()
        return SkillStatus(name, standing, skill, changes=changes)

    def _names(self) -> set[str]:
        if not self._shown.is_dir():
            return set()
        return {path.name for path in self._shown.iterdir() if not path.name.startswith(".")}

    def _copy(self, skill: skill_files.Skill) -> None:
        new_copy = self._shown / f".new-{secrets.token_hex(8)}"
        try:
            _write(skill, new_copy)
            _remove(self._shown / skill.name)
            new_copy.rename(self._shown / skill.name)
        finally:
            shutil.rmtree(new_copy, ignore_errors=True)

    def _link_modules(self, skills: Iterable[skill_files.Skill]) -> None:
        """Gather all modules in one directory, so that kernels need one entry of `sys.path`.

        Links, below what kernels see: a module comes and goes with its skill, in live kernels too.
        """
        targets: dict[str, str] = {}
        for skill in skills:
            for name, path in skill.modules.items():
                if name in targets:
                    _log.warning("the module %s of the skill %s is hidden", name, skill.name)
                targets.setdefault(name, f"../{skill.name}/{path}")
        directory = self._shown / IMPORTABLE
        make_directory(directory)
        links = {pathlib.PurePath(target).name: target for target in targets.values()}
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
        removed = directory.with_name(f".old-{secrets.token_hex(8)}")
        directory.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)


def _is_copied(skill: skill_files.Skill, directory: pathlib.Path) -> bool:
    if not directory.is_dir():
        return False
    try:
        return skill_files.read(directory).digest == skill.digest
    except skill_files.SkillError:
        return False


def _digests(skill: skill_files.Skill) -> dict[str, str]:
    """Return a digest of each file, and of whether it may be executed."""
    return {
        path: hashlib.sha256(b"%d" % (path in skill.programs) + content).hexdigest()
        for path, content in skill.files.items()
    }


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Name the files that differ, and how."""
    for path in sorted(before.keys() | after.keys()):
        if path not in before:
            yield f"{path} (new)"
        elif path not in after:
            yield f"{path} (gone)"
        elif before[path] != after[path]:
            yield path


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise skill_files.SkillError(skill_words.accepted_unusable(error.strerror)) from error
