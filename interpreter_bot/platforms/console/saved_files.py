"""Save outputs and files of cells into a directory that a person named."""

from __future__ import annotations

import contextlib
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
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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

    def __init__(self, directory: int, name: str, failures: Failures) -> None:
        """Begin a file.

        Args:
            directory: descriptor, closed in the end.
            name: one component, below `directory`.
            failures: records errors.
        """
        self._directory = directory
        self._name = name
        self._failures = failures
        self._staged = f".{secrets.token_hex(8)}.part"
        self._is_complete = False
        self._file = os.fdopen(os.open(self._staged, _NEW, 0o666, dir_fd=directory), "wb")

    def write(self, data: bytes, /) -> object:
        """Append bytes."""
        with self._failures.noted():
            return self._file.write(data)

    def complete(self) -> None:
        """Replace the file of that name: a link itself and not what it points to."""
        here = self._directory
        with self._failures.noted():
            self._file.close()
            os.replace(self._staged, self._name, src_dir_fd=here, dst_dir_fd=here)
        self._is_complete = True

    def close(self) -> None:
        """Close the file; one that was not completed is removed."""
        try:
            with contextlib.suppress(OSError):
                # A write that failed before would fail again now.
                self._file.close()
            if not self._is_complete:
                os.unlink(self._staged, dir_fd=self._directory)
        finally:
            os.close(self._directory)


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
            with contextlib.closing(self._begin(path.name)) as kept:
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
        return self._begin(_FILES, *_components(name))

    def _begin(self, *components: str) -> SavedFile:
        """Open the directories down to the file, none of them through a link.

        Raises:
            OSError: it cannot be written.
        """
        *parents, name = components
        with self._failures.noted():
            # The directory itself may well be a link: a person named it.
            here = os.open(self._directory, _DIRECTORY & ~os.O_NOFOLLOW)
            try:
                for parent in parents:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(parent, dir_fd=here)
                    below = os.open(parent, _DIRECTORY, dir_fd=here)
                    os.close(here)
                    here = below
                return SavedFile(here, name, self._failures)
            except BaseException:
                os.close(here)
                raise


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
