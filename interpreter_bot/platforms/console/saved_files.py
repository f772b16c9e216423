"""Save outputs and files of cells into a directory that a person named."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pathlib
import secrets
from collections.abc import Iterator
from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.wording import terminal_words

_FILES: Final = "files"
_COMPONENT_BYTES: Final = 200


class SavingError(errors.BotError):
    """It could not be saved."""


class Failures:
    """Whether saving any file has failed."""

    def __init__(self) -> None:
        self.is_any = False

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Record an OSError that passes through."""
        try:
            yield
        except OSError:
            self.is_any = True
            raise


class SavedFile:
    """One file being written to the directory; it appears whole, and replaces an earlier one."""

    def __init__(self, path: pathlib.Path, failures: Failures) -> None:
        self._path = path
        self._failures = failures
        self._staged = path.with_name(f".{secrets.token_hex(8)}.part")
        self._file = self._staged.open("xb")

    def write(self, data: bytes, /) -> object:
        """Append bytes."""
        with self._failures.noted():
            return self._file.write(data)

    def complete(self) -> None:
        """Replace the file of that name: a link itself and not what it points to."""
        with self._failures.noted():
            self._file.close()
            self._staged.replace(self._path)

    def close(self) -> None:
        """Close the file; one that was not completed is removed."""
        with contextlib.suppress(OSError):
            # A write that failed before would fail again now.
            self._file.close()
        self._staged.unlink(missing_ok=True)


class SavedFiles:
    """Writes below one directory, and nowhere else for any file name."""

    def __init__(self, directory: pathlib.Path) -> None:
        """Make the directory.

        Raises:
            SettingsError: it cannot be made.
        """
        self._directory = directory
        self._failures = Failures()
        self._count = 0
        self._displays: dict[tuple[str, str], pathlib.Path] = {}
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.SettingsError(terminal_words.nothing_saved(directory)) from error

    @property
    def has_failed(self) -> bool:
        """Whether something is missing in the directory because saving failed."""
        return self._failures.is_any

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
            path = self._directory / f"cell-{cell}-{self._count}{suffix}"
        if identity:
            self._displays[identity] = path
        try:
            with contextlib.closing(self._begin(path)) as kept:
                kept.write(data)
                kept.complete()
        except OSError as error:
            raise SavingError(terminal_words.not_saved(path, error.strerror)) from error
        return path

    def path_of(self, name: str) -> pathlib.Path:
        """Return where a file of the workspace is saved."""
        return self._directory.joinpath(_FILES, *_components(name))

    def open(self, name: str) -> SavedFile:
        """Begin to save a file of the workspace; an earlier copy stays until it is complete.

        Raises:
            OSError: it cannot be written.
        """
        return self._begin(self.path_of(name))

    def _begin(self, path: pathlib.Path) -> SavedFile:
        """Make the directories down to the file; none of them may be a link that leads out.

        Raises:
            OSError: it cannot be written.
        """
        with self._failures.noted():
            # The directory itself may well be a link: a person named it.
            if not path.parent.resolve().is_relative_to(self._directory.resolve()):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            return SavedFile(path, self._failures)


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
