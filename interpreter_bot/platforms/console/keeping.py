"""Saving what cells showed and made into a directory of the person's."""

from __future__ import annotations

import os
import pathlib
from typing import BinaryIO

from interpreter_bot import errors, values

_FILES = "files"


class Keeper:
    """Writes below one directory, and nowhere else whatever things are called."""

    def __init__(self, directory: pathlib.Path) -> None:
        """Make the directory.

        Raises:
            SettingsError: it cannot be made.
        """
        self._directory = directory
        self._count = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.SettingsError(f"Nothing can be kept in {directory}.") from error

    def keep(self, cell: int, output: values.Image | values.Html) -> pathlib.Path:
        """Save a display under a name of ours; returns its path."""
        self._count += 1
        suffix = ".html" if isinstance(output, values.Html) else output.suffix
        data = output.html.encode() if isinstance(output, values.Html) else output.data
        path = self._directory / f"cell-{cell}-{self._count}{suffix}"
        path.write_bytes(data)
        return path

    def path_of(self, name: str) -> pathlib.Path:
        """Say where a file of the workspace is saved."""
        parts = [part for part in name.split("/") if part not in ("", ".", "..")]
        return self._directory.joinpath(_FILES, *parts)

    def open(self, name: str) -> BinaryIO:
        """Open the place for a file of the workspace, replacing an earlier copy.

        Raises:
            OSError: it cannot be written.
        """
        path = self.path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        return open(os.open(path, flags, 0o644), "wb")
