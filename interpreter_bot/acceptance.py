"""Skills and tools of MCP servers that an administrator accepted.

Each is used only while it is identical to the accepted version. There is one file per name.
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
"""Characters of a digest that name a version. With fewer, an author could make two versions that
begin with the same characters: a harmless one to be read, and another one to be used."""
# Above the largest listing of a server: 500 tools of 64 KiB.
_MAX_RECORD_BYTES: Final = 64 * 1024 * 1024


class Standing(enum.StrEnum):
    """Whether something is used, or why not."""

    ON = "on"
    NEW = "new"
    """Nobody has accepted it."""
    CHANGED = "changed"
    """It differs from what was accepted."""
    GONE = "gone"
    """The accepted version no longer exists."""
    UNUSABLE = "unusable"


class Records(Generic[_T]):
    """Values by name, each a JSON file in the data directory. Methods block briefly."""

    def __init__(self, data_directory: pathlib.Path, subject: str, value_type: type[_T]) -> None:
        self._directory = data_directory / "acceptance" / subject
        self._adapter = pydantic.TypeAdapter(value_type)
        self._cache: dict[str, tuple[tuple[int, int], _T]] = {}

    def read(self, name: str) -> _T | None:
        """Return a value, the same object until its file changes; None if there is none."""
        file = self._file(name)
        try:
            status = file.stat()
            version = (status.st_mtime_ns, status.st_ino)
            entry = self._cache.get(name)
            if entry is None or entry[0] != version:
                if status.st_size > _MAX_RECORD_BYTES:
                    raise ValueError("it is too long")
                entry = version, self._adapter.validate_json(file.read_bytes())
                self._cache[name] = entry
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            # Without a record, nothing is accepted, which is safe.
            _log.error("%s cannot be used: %s", file, error)
            return None
        return entry[1]

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
        name: of the skill or server.
        digest: of the version that an administrator read; its first characters suffice.
        current: the whole digest of the present version.

    Raises:
        BotError: the digest is too short, or names another version.
    """
    if len(digest) < DIGEST_CHARACTERS:
        raise errors.BotError(operator_words.name_digest(name))
    if not current.startswith(digest):
        raise errors.BotError(operator_words.other_version(name, digest))


def find_standing(accepted: str | None, current: str) -> Standing:
    """Compare the accepted digest, None if nothing was accepted, with the present one."""
    if accepted is None:
        return Standing.NEW
    return Standing.ON if accepted == current else Standing.CHANGED
