"""Small files of secrets, such as tokens and keys, that only the bot's user can read.

The functions block briefly.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator

from interpreter_bot import errors
from interpreter_bot.wording import storage_words

_MAX_FILE_BYTES = 1024 * 1024


def read(file: pathlib.Path) -> str:
    """Read a file; empty if there is none.

    Raises:
        SettingsError: it cannot be read, is readable by others, or is too large.
    """
    with _translate_errors(file):
        try:
            with file.open("rb") as stream:
                if os.fstat(stream.fileno()).st_mode & 0o077:
                    raise errors.SettingsError(storage_words.not_private(file))
                data = stream.read(_MAX_FILE_BYTES + 1)
                if len(data) > _MAX_FILE_BYTES:
                    raise errors.SettingsError(storage_words.file_too_large(file))
                return data.decode("ascii", "replace").strip()
        except FileNotFoundError:
            return ""


def read_or_create(file: pathlib.Path, make_text: Callable[[], str]) -> str:
    """Read a file, or create it if there is none; two bots that do so at once read the same text.

    Raises:
        SettingsError: it can be neither read nor created, or is readable by others.
    """
    if not file.exists():
        with (
            _translate_errors(file),
            _new_file(file, make_text()) as temporary,
            contextlib.suppress(FileExistsError),
        ):
            # A link, unlike a rename, replaces nothing: the first bot's file stays.
            os.link(temporary, file)
    return read(file)


def replace(file: pathlib.Path, text: str) -> None:
    """Replace the content of a file; no reader sees a half-written one.

    Raises:
        SettingsError: it cannot be written.
    """
    with _translate_errors(file), _new_file(file, text) as temporary:
        temporary.replace(file)


@contextlib.contextmanager
def locked_for_change(file: pathlib.Path) -> Iterator[None]:
    """Lock a file against changes by other processes while it is read and replaced here.

    Raises:
        SettingsError: its directory cannot be used.
    """
    with _translate_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Each change makes another file, so the directory is locked instead.
        descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _translate_errors(file):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _new_file(file: pathlib.Path, text: str) -> Iterator[pathlib.Path]:
    """Write a text to a new file beside `file`; the block then moves or links it to that name.

    File and directory are synchronized, because a lost key cannot be made again.
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
    """Make links and renames in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _translate_errors(file: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.SettingsError(storage_words.file_unusable(file, error.strerror)) from error
