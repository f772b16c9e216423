"""Skills that an administrator accepted: copies in the data directory, which kernels can read.

A copy is exactly the accepted version. While its source differs or is gone, there is no copy, and
neither kernels nor models see the skill.
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

from interpreter_bot import acceptance
from interpreter_bot.acceptance import Standing
from interpreter_bot.skills import skill_catalogue, skill_files
from interpreter_bot.wording import skill_words

_log = logging.getLogger(__name__)

DIRECTORY: Final = "skills"
"""Directory of copies in the data directory; kernels see it at `skill_catalogue.MOUNT_POINT`."""
MODULE_LINKS: Final = ".python"
"""Directory in `DIRECTORY` with links to all modules; see `guest.rootfs.SKILL_MODULES`."""
_OLD_COPY_PREFIX: Final = ".old-"


@dataclasses.dataclass(frozen=True, slots=True)
class _AcceptedVersion:
    """The digests of an accepted skill, and of its files."""

    digest: str
    files: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class SkillStatus:
    """The status of a skill in a directory that the settings name.

    Attributes:
        name: the name of its directory.
        standing: whether it is used.
        skill: its present version; None if it is unusable.
        reason: a sentence on why it is unusable, or empty.
        changes: files that differ from the accepted version.
    """

    name: str
    standing: Standing
    skill: skill_files.Skill | None = None
    reason: str = ""
    changes: tuple[str, ...] = ()


class AcceptedSkills:
    """The accepted skills of one bot. Methods block for a short time."""

    def __init__(self, directories: Sequence[pathlib.Path], data: pathlib.Path) -> None:
        self._sources = directories
        self._copies_directory = data / DIRECTORY
        self._accepted = acceptance.Records(data, "skills", _AcceptedVersion)
        self._catalogue: tuple[tuple[int, int], tuple[skill_files.Skill, ...]] | None = None

    def statuses(self) -> tuple[SkillStatus, ...]:
        """Compare all skills with their accepted versions.

        Raises:
            SkillError: a directory cannot be read.
        """
        sources = skill_files.find(self._sources)
        return tuple(self._status(name, path) for name, path in sources.items())

    def refresh(self) -> tuple[SkillStatus, ...]:
        """Update the copies: each skill that equals its accepted version has one, others have none.

        Raises:
            SkillError: a directory cannot be read or written.
        """
        statuses = self.statuses()
        if not self._sources and not self._copies_directory.exists():
            return statuses
        skills = [
            status.skill for status in statuses if status.skill and status.standing is Standing.ON
        ]
        with _translate_errors():
            make_directory(self._copies_directory)
            # A process that was killed may have left some, which kernels could still read.
            for old_copy in self._copies_directory.glob(f"{_OLD_COPY_PREFIX}*"):
                shutil.rmtree(old_copy, ignore_errors=True)
            for name in self._copy_names() - {skill.name for skill in skills}:
                _log.warning("the skill %s is off: it was changed, removed or refused", name)
                _remove(self._copies_directory / name)
            for skill in skills:
                if not _is_copied(skill, self._copies_directory / skill.name):
                    self._copy(skill)
            self._link_modules(skills)
        return statuses

    def accept(self, name: str, digest: str) -> skill_files.Skill:
        """Accept the present version of a skill if `digest` names it.

        Raises:
            BotError: there is no such skill, it has another digest, or it cannot be used; see
                `acceptance.check_version`.
        """
        path = skill_files.find(self._sources).get(name)
        if path is None:
            raise skill_files.SkillError(skill_words.unknown(name))
        skill = skill_files.read(path)
        acceptance.check_version(name, digest, skill.digest)
        self._accepted.write(name, _AcceptedVersion(skill.digest, _file_digests(skill)))
        self.refresh()
        return skill

    def refuse(self, name: str) -> None:
        """Revoke the acceptance of a skill.

        Raises:
            BotError: the skill was not accepted.
        """
        if name != pathlib.PurePath(name).name or not self._accepted.remove(name):
            raise skill_files.SkillError(skill_words.not_accepted(name))
        self.refresh()

    def catalogue(self, max_characters: int) -> str:
        """Return the catalogue for a model; skills beyond `max_characters` are only named."""
        return skill_catalogue.write(self._read_copies(), max_characters=max_characters)

    def names(self) -> tuple[str, ...]:
        """Return the names of the skills that are in use."""
        return tuple(skill.name for skill in self._read_copies())

    def _read_copies(self) -> tuple[skill_files.Skill, ...]:
        """Return the copied skills; read them again if one was added or removed."""
        try:
            status = self._copies_directory.stat()
        except FileNotFoundError:
            return ()
        version = (status.st_ino, status.st_mtime_ns)
        if self._catalogue is None or self._catalogue[0] != version:
            skills = []
            for name in sorted(self._copy_names()):
                try:
                    skill = skill_files.read(self._copies_directory / name)
                    # Only the names of files are needed later, and their contents may be large.
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
        standing = acceptance.find_standing(accepted.digest if accepted else None, skill.digest)
        changes = tuple(_list_changes(accepted.files, _file_digests(skill))) if accepted else ()
        return SkillStatus(name, standing, skill, changes=changes)

    def _copy_names(self) -> set[str]:
        if not self._copies_directory.is_dir():
            return set()
        return {
            path.name for path in self._copies_directory.iterdir() if not path.name.startswith(".")
        }

    def _copy(self, skill: skill_files.Skill) -> None:
        new_copy = self._copies_directory / f".new-{secrets.token_hex(8)}"
        try:
            _write(skill, new_copy)
            _remove(self._copies_directory / skill.name)
            new_copy.rename(self._copies_directory / skill.name)
        finally:
            shutil.rmtree(new_copy, ignore_errors=True)

    def _link_modules(self, skills: Iterable[skill_files.Skill]) -> None:
        """Link all modules in one directory, so that kernels need one entry of `sys.path`.

        As these are links, modules appear and disappear with their skills, also in running kernels.
        """
        targets: dict[str, str] = {}
        for skill in skills:
            for name, path in skill.modules.items():
                if name in targets:
                    _log.warning("the module %s of the skill %s is hidden", name, skill.name)
                targets.setdefault(name, f"../{skill.name}/{path}")
        directory = self._copies_directory / MODULE_LINKS
        make_directory(directory)
        links = {pathlib.PurePath(target).name: target for target in targets.values()}
        for link in list(directory.iterdir()):
            if links.get(link.name) != os.readlink(link):
                link.unlink()
        for name, target in links.items():
            if not (directory / name).is_symlink():
                (directory / name).symlink_to(target)


def prepare(data: pathlib.Path) -> pathlib.Path:
    """Make and return the directory that kernels see at /skills.

    It is made even if there are no skills yet, as kernels look for the directory of modules once.
    """
    make_directory(data / DIRECTORY)
    make_directory(data / DIRECTORY / MODULE_LINKS)
    return data / DIRECTORY


def make_directory(directory: pathlib.Path) -> None:
    """Make a directory that kernels can read, whatever the mask of this process."""
    directory.mkdir(parents=True, exist_ok=True)
    # Only the owner may change the mode. A host that runs as another user has set it already.
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
    """Remove a copy, if it exists; for readers it disappears at once."""
    if directory.is_dir():
        old_copy = directory.with_name(f"{_OLD_COPY_PREFIX}{secrets.token_hex(8)}")
        directory.rename(old_copy)
        shutil.rmtree(old_copy, ignore_errors=True)


def _is_copied(skill: skill_files.Skill, directory: pathlib.Path) -> bool:
    if not directory.is_dir():
        return False
    try:
        return skill_files.read(directory).digest == skill.digest
    except skill_files.SkillError:
        return False


def _file_digests(skill: skill_files.Skill) -> dict[str, str]:
    """Return a digest of each file, which includes whether it may be executed."""
    return {
        path: hashlib.sha256(b"%d" % (path in skill.programs) + content).hexdigest()
        for path, content in skill.files.items()
    }


def _list_changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that differ, with the kind of difference."""
    for path in sorted(before.keys() | after.keys()):
        if path not in before:
            yield f"{path} (new)"
        elif path not in after:
            yield f"{path} (gone)"
        elif before[path] != after[path]:
            yield path


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise skill_files.SkillError(skill_words.accepted_unusable(error.strerror)) from error
