"""Host processes on this machine: where they listen, and how a bot finds or starts one.

Each listens on a socket of its own; beside it a link leads to the newest, which is the one that new
sessions go to. A host that a bot starts is no part of the bot: it has a session of its own, so no
signal for the bot reaches it, and its environment holds nothing that is not for kernels.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Final

import aiohttp

from interpreter_bot import cancellation, errors, settings
from interpreter_bot.hosts import host_connection, remote_host, socket_owners, wire_messages

_log = logging.getLogger(__name__)

_NEWEST: Final = "host.sock"
_LOCK: Final = "lock"
# What is neither ours nor a secret: where programs, home and time zone are, and the language.
_INHERITED: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "PYTHONPATH"}
    | {"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "PYTHONDONTWRITEBYTECODE"}
)
_POLL_SECONDS: Final = 0.02
# It saves variables (snapshots.end_seconds) and ends its kernels.
_END_SECONDS: Final = 60.0
_CLOSING_SECONDS: Final = 5.0
_START_SECONDS: Final = 120.0
_SOCKET_PATH_BYTES: Final = 107
_NONE: Final = "No process that keeps Python kernels can be reached at {path}."
_SILENT: Final = "The process that keeps the Python kernels did not start; its log says why."


def directory(paths: settings.Paths) -> pathlib.Path:
    """Return where the hosts of a data directory listen.

    Raises:
        SettingsError: a socket's path would be too long.
    """
    name = hashlib.sha256(os.fsencode(paths.data.absolute())).hexdigest()[:8]
    found = paths.runtime.absolute() / f"h-{name}"
    if len(os.fsencode(found / "4194304.sock")) > _SOCKET_PATH_BYTES:
        raise errors.SettingsError(f"{paths.runtime} is too long a path for sockets.")
    return found


def make_directory(paths: settings.Paths, *, is_shared: bool) -> pathlib.Path:
    """Make the directory in which hosts listen, safe from other users. Blocks.

    Args:
        paths: where it is.
        is_shared: another user's bots may connect too.

    Raises:
        SettingsError: it cannot be made, or is not ours.
    """
    found = directory(paths)
    socket_owners.make(found.parent, mode=0o711 if is_shared else 0o700)
    socket_owners.make(found, mode=0o711)
    return found


def make_socket_path(paths: settings.Paths, *, is_shared: bool = False) -> pathlib.Path:
    """Return the path of this process's socket; removes those of hosts that were killed. Blocks.

    Raises:
        SettingsError: as `make_directory` does.
    """
    found = make_directory(paths, is_shared=is_shared)
    for other in found.glob("[0-9]*.sock"):
        with socket.socket(socket.AF_UNIX) as peer:
            if peer.connect_ex(str(other)) == errno.ECONNREFUSED:
                other.unlink(missing_ok=True)
    return found / f"{os.getpid()}.sock"


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


async def status(paths: settings.Paths) -> host_connection.HostStatus:
    """Ask the newest host what it does.

    Raises:
        KernelError: there is none.
    """
    async with host_connection.open_session(newest(paths)) as session:
        return await host_connection.read_status(session)


async def drain(paths: settings.Paths, *, is_urgent: bool) -> None:
    """Tell the newest host to start no more kernels, and to end.

    Args:
        paths: where it is.
        is_urgent: it ends when nothing runs any more; otherwise when its last kernel is gone.

    Raises:
        KernelError: there is none.
    """
    async with host_connection.open_session(newest(paths)) as session:
        try:
            body = wire_messages.document({"is_urgent": is_urgent})
            async with session.post("/v1/drain", data=body) as response:
                response.raise_for_status()
        except (aiohttp.ClientError, OSError) as error:
            raise errors.KernelError(_NONE.format(path=newest(paths))) from error


@contextlib.asynccontextmanager
async def open_host(
    config: settings.Settings, *, may_start: bool
) -> AsyncIterator[remote_host.RemoteHost]:
    """Find the host of the settings, or start one; at an orderly end, one that waits for us ends.

    Args:
        config: the settings in effect.
        may_start: whether one is started, now and when it is lost.

    Raises:
        BotError: there is none, and none can be started; the sentence says why.
    """
    keeper = _Keeper(config)

    async def ensure() -> None:
        if may_start:
            await keeper.find_or_start()

    await ensure()
    opening = remote_host.RemoteHost.open(newest(config.paths), revive=ensure)
    try:
        async with opening as host:
            yield host
    finally:
        # Also where the bot could not start after all; only one that is killed leaves it behind.
        if may_start:
            await cancellation.shielded(keeper.end())


class _Keeper:
    """Starts a host where there is none, and ends it where nobody else needs it."""

    def __init__(self, config: settings.Settings) -> None:
        self._config = config
        self._started: list[subprocess.Popen[bytes]] = []

    async def find_or_start(self) -> None:
        """Return when there is a host; of several bots one starts it.

        Raises:
            BotError: it could not be started.
        """
        place = await asyncio.to_thread(
            make_directory, self._config.paths, is_shared=bool(self._config.host.bot_user)
        )
        async with _locked(place / _LOCK):
            try:
                found = await status(self._config.paths)
                if not found.is_draining:
                    return
            except errors.HostUnusableError:
                # Beside one that is there a second one would use the same files.
                raise
            except errors.KernelError:
                _log.info("no host of kernels is there; one is started")
            await self._start()

    async def _start(self) -> None:
        config = self._config
        data = config.paths.data.absolute()
        await asyncio.to_thread(data.mkdir, mode=0o711, parents=True, exist_ok=True)
        linger = str(config.host.linger_seconds)
        arguments = [sys.executable, "-m", "interpreter_bot", "host", "--linger", linger]
        arguments += [] if config.sandbox.enabled else ["--unsafe-no-sandbox"]
        inherited = {name: value for name, value in os.environ.items() if name in _INHERITED}
        # Not by asyncio, which kills what it has started when it is closed.
        process = await asyncio.to_thread(
            subprocess.Popen,
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=data,
            env=inherited | config.for_host(),
            start_new_session=True,
        )
        # The others are asked whether they have ended, or they would stay as dead ones.
        self._started = [one for one in self._started if one.poll() is None] + [process]
        assert process.stdout is not None  # noqa: S101
        with process.stdout as words:
            reading = asyncio.create_task(asyncio.to_thread(words.readline), name="start of a host")
            await asyncio.wait({reading}, timeout=_START_SECONDS)
            if not reading.done():
                process.kill()
            line = await reading
        if b"ready" in line:
            return
        await asyncio.to_thread(process.wait)
        try:
            raise wire_messages.error(json.loads(line)["error"])
        except (ValueError, KeyError, TypeError) as error:
            raise errors.KernelError(_SILENT) from error

    async def end(self) -> None:
        """End the host, if it waits for bots and we were the last one."""
        # One that was lost is asked for its end, or it would stay as a dead one.
        self._started = [one for one in self._started if one.poll() is None]
        give_up = time.monotonic() + _CLOSING_SECONDS
        try:
            found = await status(self._config.paths)
            # It hears a moment later than we do that our own connection is closed.
            while found.bots > 0 and time.monotonic() < give_up:
                await asyncio.sleep(_POLL_SECONDS)
                found = await status(self._config.paths)
            if not found.is_lingering or found.bots > 0:
                return
            await drain(self._config.paths, is_urgent=True)
        except errors.KernelError:
            _log.info("the host of kernels is gone already")
            return
        give_up = time.monotonic() + _END_SECONDS
        # What ends is no child of ours, or it might be: nobody tells.
        while time.monotonic() < give_up and self._is_there(found.pid):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)

    def _is_there(self, pid: int) -> bool:
        for process in self._started:
            if process.pid == pid:
                return process.poll() is None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


@contextlib.asynccontextmanager
async def _locked(path: pathlib.Path) -> AsyncIterator[None]:
    """Hold a lock that other processes respect."""
    with await asyncio.to_thread(path.open, "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_SECONDS)
        yield
