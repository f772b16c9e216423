"""Small files of secrets, readable by the bot's user alone: tokens and keys. They block shortly."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator

from interpreter_bot import errors
from interpreter_bot.wording import storage_words

_MAX_BYTES = 1024 * 1024


def read(file: pathlib.Path) -> str:
    """Read a file; empty if there is none.

    Raises:
        SettingsError: it cannot be read, is readable by others, or is too large.
    """
    with _translated(file):
        try:
            with file.open("rb") as stream:
                if os.fstat(stream.fileno()).st_mode & 0o077:
                    raise errors.SettingsError(storage_words.not_private(file))
                data = stream.read(_MAX_BYTES + 1)
                if len(data) > _MAX_BYTES:
                    raise errors.SettingsError(storage_words.too_large(file))
                return data.decode("ascii", "replace").strip()
        except FileNotFoundError:
            return ""


def read_or_create(file: pathlib.Path, make: Callable[[], str]) -> str:
    """Read a file, or create it if there is none; of two bots that do so at once, one counts.

    Raises:
        SettingsError: it can be neither read nor created, or is readable by others.
    """
    if not file.exists():
        with (
            _translated(file),
            _new_file(file, make()) as temporary,
            contextlib.suppress(FileExistsError),
        ):
            # A link, unlike a rename, replaces nothing: the first one counts.
            os.link(temporary, file)
    return read(file)


def replace(file: pathlib.Path, text: str) -> None:
    """Replace what a file holds; it is never seen half written.

    Raises:
        SettingsError: it cannot be written.
    """
    with _translated(file), _new_file(file, text) as temporary:
        temporary.replace(file)


@contextlib.contextmanager
def locked_for_change(file: pathlib.Path) -> Iterator[None]:
    """Let nobody else change a file between its being read and replaced here; they wait.

    Raises:
        SettingsError: its directory cannot be used.
    """
    with _translated(file):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Not the file itself, which is another one after each change.
        descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _translated(file):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _new_file(file: pathlib.Path, text: str) -> Iterator[pathlib.Path]:
    """Write a text to a file beside another, to be put in its place within the block.

    Both are synchronized: a lost key is lost for good.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=file.parent)  # made 0600
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        yield pathlib.Path(temporary)
        _synchronize(file.parent)
    finally:
        pathlib.Path(temporary).unlink(missing_ok=True)


def _synchronize(directory: pathlib.Path) -> None:
    """Make what was linked or renamed in a directory outlive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _translated(file: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.SettingsError(storage_words.unusable(file, error.strerror)) from error
