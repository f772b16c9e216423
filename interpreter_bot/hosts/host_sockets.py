"""Sockets of hosts on this machine: where they are, which of them is the newest, which are dead.

Each host listens on a socket of its own; beside it a link leads to the newest, which is the one
that new sessions go to. Whoever only wants to know whether there is one imports no client of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import pathlib
import socket
import stat
from collections.abc import AsyncIterator
from typing import Final

from interpreter_bot import errors, settings

_NEWEST: Final = "host.sock"
_SOCKET_PATH_BYTES: Final = 107


def directory(paths: settings.Paths) -> pathlib.Path:
    """Return where the hosts of a data directory listen.

    Raises:
        SettingsError: a socket's path would be too long.
    """
    name = hashlib.sha256(os.fsencode(paths.data.absolute())).hexdigest()[:8]
    path = (paths.host_sockets or paths.runtime / f"h-{name}").absolute()
    if len(os.fsencode(path / "4194304.sock")) > _SOCKET_PATH_BYTES:
        raise errors.SettingsError(f"{path.parent} is too long a path for sockets.")
    return path


def make_directory(paths: settings.Paths, *, is_shared: bool) -> pathlib.Path:
    """Make the directory in which hosts listen, safe from other users. Blocks.

    Args:
        paths: where it is.
        is_shared: another user's bots may connect too.

    Raises:
        SettingsError: it cannot be made, or is not ours.
    """
    path = directory(paths)
    _make_own(path.parent, mode=0o711 if is_shared else 0o700)
    _make_own(path, mode=0o711)
    return path


def make_socket_path(paths: settings.Paths, *, is_shared: bool = False) -> pathlib.Path:
    """Return the path of this process's socket; removes those of hosts that were killed. Blocks.

    Raises:
        SettingsError: as `make_directory` does.
    """
    directory = make_directory(paths, is_shared=is_shared)
    for path in listening(directory):
        with socket.socket(socket.AF_UNIX) as peer:
            if peer.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink(missing_ok=True)
    return directory / f"{os.getpid()}.sock"


@contextlib.asynccontextmanager
async def announced(path: pathlib.Path) -> AsyncIterator[None]:
    """Let the link to the newest host lead to this socket, until another's does."""
    link, temporary = path.with_name(_NEWEST), path.with_suffix(".new")

    def lead_here() -> None:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(path.name)
        temporary.replace(link)

    def lead_nowhere() -> None:
        with contextlib.suppress(OSError):
            if link.readlink() == pathlib.Path(path.name):
                link.unlink()

    await asyncio.to_thread(lead_here)
    try:
        yield
    finally:
        await asyncio.to_thread(lead_nowhere)


def newest(paths: settings.Paths) -> pathlib.Path:
    """Return the path at which the newest host listens, if there is one."""
    return directory(paths) / _NEWEST


def newest_first(paths: settings.Paths) -> list[pathlib.Path]:
    """Return the sockets of all hosts, as `listening` does. Blocks."""
    first = target(newest(paths))
    return sorted(listening(directory(paths)), key=lambda path: path != first)


def target(path: pathlib.Path) -> pathlib.Path | None:
    """Return the socket to which a link leads, or which it is; None where nothing is."""
    try:
        return path.with_name(os.readlink(path))
    except FileNotFoundError:
        return None
    except OSError:
        return path


def listening(directory: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """Return the sockets of all hosts in a directory, also of those that were killed. Blocks."""
    return tuple(sorted(directory.glob("[0-9]*.sock")))


def _make_own(directory: pathlib.Path, *, mode: int) -> None:
    """Make a directory into which nobody else can put anything, or see that it is one. Blocks.

    Raises:
        SettingsError: it is another user's, or a link, or others may write to it.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=mode)
        status = directory.lstat()
    except OSError as error:
        raise errors.SettingsError(f"The directory {directory} cannot be used.") from error
    if not stat.S_ISDIR(status.st_mode):
        raise errors.SettingsError(f"{directory} is a link or a file, not a directory.")
    if status.st_uid != os.geteuid():
        raise errors.SettingsError(f"{directory} belongs to another user.")
    if status.st_mode & 0o022:
        raise errors.SettingsError(f"Others may write to {directory}: chmod go-w.")
