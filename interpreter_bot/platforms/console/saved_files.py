"""Save outputs and files of cells into a directory that a person named."""

from __future__ import annotations

import errno
import hashlib
import os
import pathlib
import secrets
from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.wording import terminal_words

_FILES: Final = "files"
_COMPONENT_BYTES: Final = 200


class SavingError(errors.BotError):
    """It could not be saved."""


class SavedFiles:
    """Writes below one directory, and nowhere else for any file name.

    Attributes:
        directory: that one.
        has_failed: something is missing there because saving failed.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        """Make the directory.

        Raises:
            SettingsError: it cannot be made.
        """
        self.directory: Final = directory
        self.has_failed = False
        self._count = 0
        self._displays: dict[tuple[str, str], pathlib.Path] = {}
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.SettingsError(terminal_words.nothing_saved(directory)) from error

    def keep(self, cell: int, output: values.Image | values.Html) -> pathlib.Path:
        """Save a display under a generated name; an update replaces the display it updates.

        Raises:
            SavingError: it could not be saved.
        """
        if isinstance(output, values.Html):
            suffix, data = ".html", output.html
        else:
            suffix, data = output.suffix, output.data
        identity = (output.display_id, suffix) if output.display_id is not None else None
        path = self._displays.get(identity) if identity and output.is_update else None
        if path is None:
            self._count += 1
            path = self.directory / f"cell-{cell}-{self._count}{suffix}"
        if identity:
            self._displays[identity] = path
        self._put(path, data)
        return path

    def take(self, name: str, copy: pathlib.Path) -> pathlib.Path:
        """Save a file that code made, of which there is a copy in the directory.

        Raises:
            SavingError: it could not be saved.
        """
        path = self.directory.joinpath(_FILES, *_components(name))
        self._put(path, copy)
        return path

    def _put(self, path: pathlib.Path, content: bytes | pathlib.Path) -> None:
        """Put bytes, or a copy in the directory, in a file's place, so that it appears whole.

        A link is replaced itself, and not what it points to.
        """
        staged = self.directory / f".{secrets.token_hex(8)}.part"
        if isinstance(content, pathlib.Path):
            staged = content
        try:
            # The directory itself may well be a link: a person named it.
            if not path.parent.resolve().is_relative_to(self.directory.resolve()):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                staged.write_bytes(content)
            staged.replace(path)
        except OSError as error:
            self.has_failed = True
            staged.unlink(missing_ok=True)
            raise SavingError(terminal_words.not_saved(path, error.strerror)) from error


def _components(name: str) -> list[str]:
    """Split a name, which should be harmless already, into harmless components."""
    name = name.encode("utf-8", "replace").decode().replace("\0", "_")
    parts = [_fit(part) for part in name.split("/")]
    return [part for part in parts if part not in ("", ".", "..")] or ["file"]


def _fit(part: str) -> str:
    """Shorten a name that is too long for a file system: an odd byte is shown as four letters."""
    encoded = part.encode()
    if len(encoded) <= _COMPONENT_BYTES:
        return part
    stem, suffix = os.path.splitext(part)
    suffix = suffix if len(suffix.encode()) <= 20 else ""
    stem = encoded[: _COMPONENT_BYTES - 40].decode("utf-8", "ignore")
    return f"{stem}-{hashlib.sha256(encoded).hexdigest()[:16]}{suffix}"
