"""Sockets of hosts on this machine: their directory, the newest socket, and checks of owners.

Each host listens on a socket of its own; a link beside them leads to the newest host, which gets
new sessions. This module imports no HTTP client, so that looking for a host is fast.
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
import struct
from collections.abc import AsyncIterator
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.wording import host_words

NEWEST_LINK: Final = "host.sock"
_MAX_SOCKET_PATH_BYTES: Final = 107
_PEER_CREDENTIALS: Final = struct.Struct("3i")


def directory(paths: settings.Paths) -> pathlib.Path:
    """Return the directory of the sockets of a data directory's hosts.

    Raises:
        SettingsError: a socket's path would be too long.
    """
    name = hashlib.sha256(os.fsencode(paths.data.absolute())).hexdigest()[:8]
    path = (paths.host_sockets or paths.runtime / f"h-{name}").absolute()
    if len(os.fsencode(path / "4194304.sock")) > _MAX_SOCKET_PATH_BYTES:
        raise errors.SettingsError(host_words.too_long_for_sockets(path.parent))
    return path


def make_directory(paths: settings.Paths, *, is_shared: bool) -> pathlib.Path:
    """Make the directory of sockets, safe from other users. Blocks.

    With `is_shared`, another user's bots may connect too.

    Raises:
        SettingsError: it cannot be made, or belongs to another user.
    """
    path = directory(paths)
    _make_private_directory(path.parent, mode=0o711 if is_shared else 0o700)
    _make_private_directory(path, mode=0o711)
    return path


def make_socket_path(paths: settings.Paths, *, is_shared: bool = False) -> pathlib.Path:
    """Return the path for this process's socket, and remove sockets of killed hosts. Blocks.

    Raises:
        SettingsError: as `make_directory` does.
    """
    directory = make_directory(paths, is_shared=is_shared)
    for path in list_sockets(directory):
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink(missing_ok=True)
    return directory / f"{os.getpid()}.sock"


@contextlib.asynccontextmanager
async def linked_as_newest(path: pathlib.Path) -> AsyncIterator[None]:
    """Let the link to the newest host lead to this socket, until a newer host changes it."""
    link, temporary = path.with_name(NEWEST_LINK), path.with_suffix(".new")

    def set_link() -> None:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(path.name)
        temporary.replace(link)

    def remove_link() -> None:
        with contextlib.suppress(OSError):
            if link.readlink() == pathlib.Path(path.name):
                link.unlink()

    await asyncio.to_thread(set_link)
    try:
        yield
    finally:
        await asyncio.to_thread(remove_link)


def newest_link(paths: settings.Paths) -> pathlib.Path:
    """Return the path of the link to the newest host."""
    return directory(paths) / NEWEST_LINK


def list_newest_first(paths: settings.Paths) -> list[pathlib.Path]:
    """Return the sockets of all hosts, the newest first. Blocks."""
    newest = resolve(newest_link(paths))
    return sorted(list_sockets(directory(paths)), key=lambda path: path != newest)


def resolve(path: pathlib.Path) -> pathlib.Path | None:
    """Return the socket that a link points to, a socket itself, or None if nothing is there."""
    try:
        return path.with_name(os.readlink(path))
    except FileNotFoundError:
        return None
    except OSError:
        return path


def peer_uid(peer: socket.socket) -> int:
    """Return the user of the process at the other end of a unix socket."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _, uid, _ = _PEER_CREDENTIALS.unpack(credentials)
    return int(uid)


def list_sockets(directory: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """Return the sockets of all hosts in a directory, including killed ones. Blocks."""
    return tuple(sorted(directory.glob("[0-9]*.sock")))


def _make_private_directory(directory: pathlib.Path, *, mode: int) -> None:
    """Make a directory that only we can write to, or check an existing one. Blocks.

    Raises:
        SettingsError: it belongs to another user, is a link, or others may write to it.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=mode)
        status = directory.lstat()
    except OSError as error:
        raise errors.SettingsError(
            host_words.unusable_directory(directory, error.strerror)
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise errors.SettingsError(host_words.not_a_directory(directory))
    if status.st_uid != os.geteuid():
        raise errors.SettingsError(host_words.owned_by_other_user(directory))
    if status.st_mode & 0o022:
        raise errors.SettingsError(host_words.writable_by_others(directory))
