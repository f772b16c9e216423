"""Saves outputs and files of cells into a directory that a person chose."""

from __future__ import annotations

import errno
import hashlib
import os
import pathlib
import secrets
from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.wording import terminal_words

_FILES_DIRECTORY: Final = "files"
_MAX_COMPONENT_BYTES: Final = 200


class SavingError(errors.BotError):
    """A file could not be saved."""


class SavedFiles:
    """Saves files below one directory, even if their names would lead out of it.

    Attributes:
        directory: where files are saved.
        has_failed: a file could not be saved.
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

    def save_display(self, cell: int, output: values.Image | values.Html) -> pathlib.Path:
        """Save a display under a generated name; an update replaces the display it updates.

        Raises:
            SavingError: it could not be saved.
        """
        if isinstance(output, values.Html):
            suffix, data = ".html", output.html
        else:
            suffix, data = output.suffix, output.data
        key = (output.display_id, suffix) if output.display_id is not None else None
        path = self._displays.get(key) if key and output.is_update else None
        if path is None:
            self._count += 1
            path = self.directory / f"cell-{cell}-{self._count}{suffix}"
        if key:
            self._displays[key] = path
        self._replace(path, data)
        return path

    def save_file(self, name: str, copy: pathlib.Path) -> pathlib.Path:
        """Save a file that code made, by moving its copy in the directory to its name.

        Raises:
            SavingError: it could not be saved.
        """
        path = self.directory.joinpath(_FILES_DIRECTORY, *_components(name))
        self._replace(path, copy)
        return path

    def _replace(self, path: pathlib.Path, content: bytes | pathlib.Path) -> None:
        """Replace a file atomically by bytes, or by a copy that is in the directory.

        A symbolic link is replaced, not the file to which it points.
        """
        temporary_path = self.directory / f".{secrets.token_hex(8)}.part"
        if isinstance(content, pathlib.Path):
            temporary_path = content
        try:
            # The directory itself may be a link, as a person chose it.
            if not path.parent.resolve().is_relative_to(self.directory.resolve()):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                temporary_path.write_bytes(content)
            temporary_path.replace(path)
        except OSError as error:
            self.has_failed = True
            temporary_path.unlink(missing_ok=True)
            raise SavingError(terminal_words.not_saved(path, error.strerror)) from error


def _components(name: str) -> list[str]:
    """Split the name of a file into components that do not lead out of a directory."""
    name = name.encode("utf-8", "replace").decode().replace("\0", "_")
    parts = [_shorten(part) for part in name.split("/")]
    return [part for part in parts if part not in ("", ".", "..")] or ["file"]


def _shorten(component: str) -> str:
    """Shorten a component that is too long for a file system; a hash keeps it unique."""
    component_bytes = component.encode()
    if len(component_bytes) <= _MAX_COMPONENT_BYTES:
        return component
    stem, suffix = os.path.splitext(component)
    suffix = suffix if len(suffix.encode()) <= 20 else ""
    stem = component_bytes[: _MAX_COMPONENT_BYTES - 40].decode("utf-8", "ignore")
    return f"{stem}-{hashlib.sha256(component_bytes).hexdigest()[:16]}{suffix}"
