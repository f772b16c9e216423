"""The token that guards the page: made once, kept where only the bot's user can read it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import secrets
import tempfile
from typing import Final

from interpreter_bot import errors

_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]{32,200}")
_MOST_BYTES: Final = 1024


def kept(file: pathlib.Path) -> str:
    """Read the token, or make one where there is none. A restart logs nobody out.

    Raises:
        SettingsError: the file can be neither read nor made, is no token, or is readable by others.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not file.exists():
            _make(file)
        if file.stat().st_mode & 0o077:
            raise errors.SettingsError(f"{file} can be read by others; make it private: chmod 600.")
        with file.open("rb") as stream:
            token = stream.read(_MOST_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise errors.SettingsError(f"{file} cannot be used: {error.strerror}.") from error
    if _SHAPE.fullmatch(token) is None:
        raise errors.SettingsError(
            f"{file} holds no token of 32 to 200 letters, digits, - and _; remove it for a new one."
        )
    return token


def _make(file: pathlib.Path) -> None:
    """Make the file whole, or not at all: two bots may start at once."""
    descriptor, temporary = tempfile.mkstemp(prefix=".token-", dir=file.parent)  # made 0600
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_urlsafe(32) + "\n")
        # A link, unlike a rename, replaces nothing: the first one counts.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, file)
    finally:
        pathlib.Path(temporary).unlink()
