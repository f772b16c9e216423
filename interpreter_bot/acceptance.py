"""What an administrator accepted, of skills and of the tools of MCP servers.

Each is used while it is, to the byte, what was accepted. A file a name holds what was.
"""

from __future__ import annotations

import enum
import logging
import pathlib
from typing import Final, Generic, TypeVar

import pydantic

from interpreter_bot import errors, private_files
from interpreter_bot.wording import operator_words

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

DIGEST_CHARACTERS: Final = 32
"""So many characters of a digest name a version: of fewer, its author can make two with the same
ones, one to be read and one to be accepted."""
_MAX_BYTES: Final = 16 * 1024 * 1024


class Standing(enum.StrEnum):
    """Whether something is used, or why not."""

    ON = "on"
    NEW = "new"
    """Nobody has accepted it."""
    CHANGED = "changed"
    """It is not what was accepted."""
    GONE = "gone"
    """What was accepted is not there any more."""
    UNUSABLE = "unusable"


class Records(Generic[_T]):
    """Values by name, each a JSON file in the data directory. Methods block, shortly."""

    def __init__(self, data: pathlib.Path, kind: str, type_: type[_T]) -> None:
        self._directory = data / "acceptance" / kind
        self._adapter = pydantic.TypeAdapter(type_)
        self._cache: dict[str, tuple[tuple[int, int], _T]] = {}

    def read(self, name: str) -> _T | None:
        """Return a value, the same object until its file changes; None if there is none."""
        file = self._file(name)
        try:
            status = file.stat()
            version = (status.st_mtime_ns, status.st_ino)
            cached = self._cache.get(name)
            if cached is None or cached[0] != version:
                if status.st_size > _MAX_BYTES:
                    raise ValueError("it is too long")
                cached = version, self._adapter.validate_json(file.read_bytes())
                self._cache[name] = cached
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            # Nothing of it is used then, which is safe.
            _log.error("%s cannot be used: %s", file, error)
            return None
        return cached[1]

    def write(self, name: str, value: _T) -> None:
        """Replace a value.

        Raises:
            SettingsError: its file cannot be written.
        """
        private_files.replace(self._file(name), self._adapter.dump_json(value).decode())

    def remove(self, name: str) -> bool:
        """Remove a value; return whether there was one."""
        try:
            self._file(name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _file(self, name: str) -> pathlib.Path:
        return self._directory / f"{name}.json"


def check_version(name: str, digest: str, current: str) -> None:
    """Check that a digest names the present version of something.

    Args:
        name: of it.
        digest: of what an administrator read; its first characters suffice.
        current: the whole digest of what is there now.

    Raises:
        BotError: it names no version, or another one.
    """
    if len(digest) < DIGEST_CHARACTERS:
        raise errors.BotError(operator_words.name_digest(name))
    if not current.startswith(digest):
        raise errors.BotError(operator_words.other_version(name, digest))


def find_standing(accepted: str | None, current: str) -> Standing:
    """Compare the digest of what was accepted, None if nothing was, with that of what is there."""
    if accepted is None:
        return Standing.NEW
    return Standing.ON if accepted == current else Standing.CHANGED
