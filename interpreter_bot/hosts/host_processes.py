"""Host processes on this machine: a bot finds or starts one, and may end it when the bot ends.

The host is in a process session of its own, so signals for the bot do not reach it. Its environment
holds only variables that kernels may see.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection
from importlib import metadata
from typing import Final

import aiohttp

from interpreter_bot import cancellation, errors, settings, values
from interpreter_bot.hosts import (
    host_addresses,
    host_sockets,
    http_sessions,
    kernel_doors,
    messages,
    ports,
    remote_host,
    requests,
    rolling_hosts,
)
from interpreter_bot.kernels.libraries import kernel_environment
from interpreter_bot.kernels.metering import session_metering
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_LOCK_NAME: Final = "lock"
# Paths, home, time zone and language, and the variables for reaching a package index. No secrets.
_INHERITED_VARIABLES: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "PYTHONPATH"}
    | {"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "PYTHONDONTWRITEBYTECODE"}
    | {*settings.CERTIFICATE_VARIABLES, *settings.PROXY_VARIABLES}
)
# Init programs of containers, which end the container when the bot ends.
_CONTAINER_INITS: Final = frozenset({"tini", "docker-init", "dumb-init", "catatonit"})
_POLL_SECONDS: Final = 0.02
# A host saves variables for up to 30 s and ends its kernels before it ends.
_MAX_END_SECONDS: Final = 60.0
_MAX_CLOSING_SECONDS: Final = 5.0
# How long a host waits for the next bot after its own was killed.
_LINGER_SECONDS: Final = "600"
_MAX_START_SECONDS: Final = 120.0
# How long commands, which start no host, wait for a lost host.
_MAX_RECONNECTING_SECONDS: Final = 3.0


async def read_status(address: host_addresses.Address) -> messages.HostStatus:
    """Read the status of a host.

    Raises:
        KernelError: there is no host.
    """
    async with http_sessions.HostSession(address) as session:
        return await http_sessions.read_status(session, address)


async def drain(path: pathlib.Path, *, is_urgent: bool) -> None:
    """Tell the host at a socket to start no more kernels, and to end after its last kernel.

    With `is_urgent`, the host ends once no code runs.

    Raises:
        KernelError: there is no host.
    """
    async with http_sessions.HostSession(path) as session:
        try:
            request = requests.REQUESTS[ports.HostProcess.drain.__qualname__]
            body = messages.encode_json(request.arguments(is_urgent=is_urgent))
            request_path = f"/v1/requests/{request.name}"
            async with await session.request("POST", request_path, data=body) as response:
                response.raise_for_status()
        except (aiohttp.ClientError, OSError) as error:
            raise errors.KernelError(host_words.not_reached(path)) from error


async def drain_others(path: pathlib.Path) -> None:
    """Drain all hosts but the new one at a socket, which gets their sessions when they end."""
    for other_path in await asyncio.to_thread(host_sockets.list_sockets, path.parent):
        if other_path != path:
            try:
                await drain(other_path, is_urgent=False)
            except errors.KernelError:
                _log.info("the host at %s is gone", other_path)


def fingerprint(config: settings.Settings) -> str:
    """Identify the kernels of a host by their settings and libraries."""
    return f"{config.kernel_fingerprint}/{kernel_environment.name(config)}"


def _is_compatible(host_status: messages.HostStatus, config: settings.Settings) -> bool:
    """Return whether a host's kernels are the same as this process would start."""
    return (
        not host_status.is_draining
        and host_status.release == metadata.version("interpreter-bot")
        and (host_status.sandbox_level is not values.SandboxLevel.NONE) == config.sandbox.enabled
        and host_status.fingerprint == fingerprint(config)
        and set(map(str, config.private_paths)) <= set(host_status.private_paths)
    )


@contextlib.asynccontextmanager
async def open_compatible(
    config: settings.Settings,
) -> AsyncIterator[remote_host.RemoteHost | None]:
    """Connect to a compatible host, if any, for sessions that end with this process."""
    async with contextlib.AsyncExitStack() as stack:
        opening = remote_host.RemoteHost.open(
            host_sockets.newest_link(config.paths),
            patience_seconds=_MAX_RECONNECTING_SECONDS,
            is_ephemeral=True,
        )
        try:
            host = await stack.enter_async_context(opening)
        except errors.KernelError:
            _log.info("no host of kernels can be used", exc_info=True)
            yield None
            return
        try:
            yield host if _is_compatible(host.connection.status, config) else None
        finally:
            if not host.connection.is_connected:
                await cancellation.shielded(_delete_files(host.ephemeral_keys, config))


async def _delete_files(keys: Collection[str], config: settings.Settings) -> None:
    """Delete the files of sessions whose host was killed; a live host deletes them itself."""
    # Imported here, as nothing else in this module needs these modules.
    from interpreter_bot.kernels.files import session_locks, workspaces

    files = workspaces.Workspaces(config.paths.data / "workspaces", config.limits)
    for key in keys:
        try:
            workspace = await files.ensure(key)
            async with session_locks.SessionLocks().lock_if_unused(workspace) as is_unused:
                if is_unused:
                    await workspace.remove()
        except errors.WorkspaceError:
            _log.exception("files of a session could not be deleted")


@contextlib.asynccontextmanager
async def open_host(
    config: settings.Settings,
    *,
    may_start: bool,
    doorkeeper: kernel_doors.Doorkeeper | None = None,
) -> AsyncIterator[rolling_hosts.RollingHosts]:
    """Find a compatible host or start one; at an orderly end, end a host that no bot uses.

    Raises:
        BotError: there is no host, and none can be started; the sentence says why.
    """
    starter = HostStarter(config)

    async def restart_host() -> None:
        if may_start:
            async with starter.ensure_host(must_be_compatible=False):
                return

    newest_link = host_sockets.newest_link(config.paths)
    opening = rolling_hosts.RollingHosts.open(
        newest_link,
        restart_host=restart_host,
        doorkeeper=doorkeeper,
        ends_with_bot=may_start and _ends_with_bot(),
    )
    leaves_hosts_running = False
    try:
        async with contextlib.AsyncExitStack() as stack:
            async with (
                starter.ensure_host(must_be_compatible=True)
                if may_start
                else contextlib.nullcontext()
            ):
                try:
                    hosts = await stack.enter_async_context(opening)
                    await hosts.wait_connected()
                except errors.KernelError as error:
                    if may_start or isinstance(error, errors.HostUnusableError):
                        raise
                    raise errors.KernelError(host_words.no_service_host(newest_link)) from error
            yield hosts
            leaves_hosts_running = hosts.leaves_hosts_running
    finally:
        # Also if the bot failed to start. The host keeps running if the bot is killed, or if its
        # turns continue in the next bot.
        if may_start and not leaves_hosts_running:
            await cancellation.shielded(starter.end_unused_hosts())


def _ends_with_bot() -> bool:
    """Return whether our child processes die with us, as in a container or a systemd unit."""
    # The first process of a container has no visible parent.
    if os.getppid() == 0 or "INVOCATION_ID" in os.environ:
        return True
    if os.getppid() != 1:
        return False
    try:
        return pathlib.Path("/proc/1/comm").read_text().strip() in _CONTAINER_INITS
    except OSError:
        # /proc is mounted with hidepid, which hides the file from plain users.
        return False


class HostStarter:
    """Starts a host if there is none, and ends hosts that no bot uses."""

    def __init__(self, config: settings.Settings) -> None:
        self._config = config
        self._processes: list[subprocess.Popen[bytes]] = []

    @contextlib.asynccontextmanager
    async def ensure_host(self, *, must_be_compatible: bool) -> AsyncIterator[None]:
        """Find a host or start one. Within the context, no other bot starts or ends a host.

        With `must_be_compatible`, a host of another release or with other settings is replaced,
        and drains.

        Raises:
            BotError: no host could be started.
        """
        paths = self._config.paths
        directory = await asyncio.to_thread(
            host_sockets.make_directory, paths, is_shared=bool(self._config.host.bot_user)
        )
        async with _locked(directory / _LOCK_NAME):
            if not await self._has_usable_host(must_be_compatible=must_be_compatible):
                await self._start()
            yield

    async def _has_usable_host(self, *, must_be_compatible: bool) -> bool:
        try:
            host_status = await read_status(host_sockets.newest_link(self._config.paths))
        except http_sessions.OtherProtocolError:
            _log.warning("the host of kernels is of another release; one is started beside it")
        except errors.HostUnusableError:
            # Starting another host beside a stuck one would not bring its sessions back.
            raise
        except errors.KernelError:
            _log.info("no host of kernels is there; one is started")
        else:
            # If a connection was lost, any host is accepted: otherwise, two bots with different
            # settings would replace each other's hosts for ever.
            if _is_compatible(host_status, self._config) or not (
                must_be_compatible or host_status.is_draining
            ):
                return True
            _log.info("the host of kernels does not fit; one is started beside it")
        return False

    async def _start(self) -> None:
        config = self._config
        data = config.paths.data.absolute()
        await asyncio.to_thread(data.mkdir, mode=0o711, parents=True, exist_ok=True)
        command = [sys.executable, "-m", "interpreter_bot", "host", "--linger", _LINGER_SECONDS]
        command += [] if config.sandbox.enabled else ["--unsafe-no-sandbox"]
        if _log.isEnabledFor(logging.INFO):
            command.insert(command.index("host"), "--verbose")
        inherited_variables = {
            name: value for name, value in os.environ.items() if name in _INHERITED_VARIABLES
        }
        # Not by asyncio, which kills its child processes when the loop is closed.
        process = await asyncio.to_thread(
            subprocess.Popen,
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=data,
            env=inherited_variables | config.for_host(),
            start_new_session=True,
        )
        self._reap_processes()
        self._processes.append(process)
        assert process.stdout is not None  # noqa: S101
        with process.stdout as output:
            first_line = asyncio.create_task(
                asyncio.to_thread(output.readline), name="start of a host"
            )
            try:
                await asyncio.wait({first_line}, timeout=_MAX_START_SECONDS)
            finally:
                # Also if this bot is cancelled: no other bot knows of this host yet.
                if not first_line.done():
                    process.kill()
            line = await first_line
        try:
            start_message: messages.ToStarter = messages.decode(messages.ToStarter, line)
        except messages.MalformedError as error:
            await asyncio.to_thread(process.wait)
            raise errors.KernelError(host_words.NOT_STARTED) from error
        if isinstance(start_message, messages.HostFailed):
            await asyncio.to_thread(process.wait)
            raise messages.to_error(start_message.error)

    async def end_unused_hosts(self) -> None:
        """End the lingering hosts that no bot uses any more."""
        self._reap_processes()
        directory = host_sockets.directory(self._config.paths)
        paths = await asyncio.to_thread(host_sockets.list_sockets, directory)
        if paths:
            # With the lock, no bot connects to a host between its status and the request to end.
            async with _locked(directory / _LOCK_NAME):
                pids = await asyncio.gather(*map(self._request_end, paths))
            await asyncio.gather(*map(_wait_for_end, filter(None, pids)))
        self._reap_processes()

    def _reap_processes(self) -> None:
        # A child that has ended stays a zombie until it is polled.
        self._processes = [process for process in self._processes if process.poll() is None]

    async def _request_end(self, path: pathlib.Path) -> int | None:
        """Tell a host to end if no bot uses it; return its process id, or None."""
        deadline = time.monotonic() + _MAX_CLOSING_SECONDS
        try:
            host_status = await read_status(path)
            # The host notices a moment after us that our own connection is closed.
            while host_status.bots > 0 and time.monotonic() < deadline:
                await asyncio.sleep(_POLL_SECONDS)
                host_status = await read_status(path)
            if not host_status.is_lingering or host_status.bots > 0:
                return None
            await drain(path, is_urgent=True)
        except errors.KernelError:
            _log.info("the host of kernels at %s is gone already", path)
            return None
        return host_status.pid


async def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + _MAX_END_SECONDS
    # The host may be a child of another process, so poll instead of waiting. A host that is a
    # zombie has ended: in a container whose first process reaps nothing, zombies stay.
    while time.monotonic() < deadline and session_metering.start_ticks(pid):  # noqa: ASYNC110
        await asyncio.sleep(_POLL_SECONDS)


@contextlib.asynccontextmanager
async def _locked(path: pathlib.Path) -> AsyncIterator[None]:
    """Hold the lock on a file that bots share."""
    with await asyncio.to_thread(path.open, "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_SECONDS)
        yield
