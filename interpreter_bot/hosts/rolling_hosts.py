"""Hosts of one machine during a rolling upgrade: the newest one takes new sessions.

The upgrade starts a second host, and the first one drains: it keeps its sessions until they end.
Then the connection to the first host leads to the newest.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from interpreter_bot import errors
from interpreter_bot.hosts import (
    host_connection,
    host_sockets,
    kernel_doors,
    ports,
    remote_host,
    session_router,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")


class RollingLease:
    """A lease at the host that has the session, which may change; implements `ports.Lease`."""

    def __init__(
        self,
        host: remote_host.RemoteHost,
        open_lease: Callable[[remote_host.RemoteHost], Awaitable[ports.Lease]],
        find_host: Callable[[], Awaitable[remote_host.RemoteHost]],
    ) -> None:
        """Begin no lease yet; `host` is the latest result of `find_host`."""
        self._host = host
        self._open_lease = open_lease
        self._find_host = find_host
        self._current_lease: ports.Lease | None = None

    async def begin(self) -> ports.Lease:
        """Lease the session's kernel at its host, unless there is a lease already."""
        if self._current_lease is None:
            self._current_lease = await self._open_lease(self._host)
        return self._current_lease

    async def kernel(self, *, on_wait: ports.OnWait | None = None) -> ports.Kernel:
        try:
            return await (await self.begin()).kernel(on_wait=on_wait)
        except errors.KernelStartError:
            # A draining host may have ended the session just before the lease.
            if (host := await self._find_host()) is self._host:
                raise
            self._host, self._current_lease = host, None
        return await self.kernel(on_wait=on_wait)


class RollingHosts(session_router.SessionRouter):
    """All hosts of one data directory; implements `ports.Hosts`. Use `open`.

    Attributes:
        ends_with_bot: whether hosts end at an orderly end of the bot.
        leaves_hosts_running: whether hosts keep running for the next bot all the same.
    """

    def __init__(
        self,
        newest_link: pathlib.Path,
        restart_host: host_connection.RestartHost,
        doorkeeper: kernel_doors.Doorkeeper | None,
        *,
        ends_with_bot: bool,
    ) -> None:
        super().__init__(doorkeeper)
        self.ends_with_bot = ends_with_bot
        self.leaves_hosts_running = False
        self._newest_link = newest_link
        self._restart_host = restart_host
        # From the newest to the oldest.
        self._hosts: list[remote_host.RemoteHost] = []
        self._stacks: dict[remote_host.RemoteHost, contextlib.AsyncExitStack] = {}
        self._refresh_lock = asyncio.Lock()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        newest_link: pathlib.Path,
        *,
        restart_host: host_connection.RestartHost,
        doorkeeper: kernel_doors.Doorkeeper | None = None,
        ends_with_bot: bool = False,
    ) -> AsyncIterator[RollingHosts]:
        """Connect to all hosts of a data directory.

        Raises:
            KernelError: the newest host cannot be reached, or is of another release.
        """
        hosts = cls(newest_link, restart_host, doorkeeper, ends_with_bot=ends_with_bot)
        try:
            await hosts._connect(newest_link)
            newest_address = hosts._hosts[0].connection.address
            for path in await asyncio.to_thread(host_sockets.list_sockets, newest_link.parent):
                if path != newest_address:
                    # If an older host does not answer, its sessions are lost anyway.
                    with contextlib.suppress(errors.KernelError):
                        await hosts._connect(path)
            yield hosts
        finally:
            for stack in hosts._stacks.values():
                await stack.aclose()

    async def wait_connected(self) -> None:
        """Wait until the newest host is connected."""
        await self._hosts[0].connection.wait_connected()

    async def _connect(self, path: pathlib.Path) -> None:
        """Connect to a host: the newest goes first in the list, any other last.

        Raises:
            KernelError: the host cannot be reached, or is of another release.
        """
        stack = contextlib.AsyncExitStack()
        opening = remote_host.RemoteHost.open(
            path,
            newest_link=self._newest_link,
            restart_host=self._restart_host,
            doorkeeper=self._doorkeeper,
            is_bot=True,
        )
        host = await stack.enter_async_context(opening)
        self._stacks[host] = stack
        self._hosts.insert(0 if path == self._newest_link else len(self._hosts), host)
        if self.on_loss is not None:
            await host.subscribe_losses(self.on_loss)

    async def _refresh(self) -> None:
        """Connect to a new host, and close connections that now lead to the same host."""
        newest_path = host_sockets.resolve(self._newest_link)
        addresses = [host.connection.address for host in self._hosts]
        is_new = newest_path is not None and newest_path not in addresses
        # A lost connection finds the newest host by itself.
        may_connect = is_new and self._hosts[0].connection.is_connected
        has_duplicates = len(set(addresses)) < len(addresses)
        if not may_connect and not has_duplicates:
            return
        async with self._refresh_lock:
            if newest_path is not None and newest_path not in [
                host.connection.address for host in self._hosts
            ]:
                try:
                    await self._connect(self._newest_link)
                except errors.KernelError:
                    _log.exception("a new host of kernels cannot be used")
            self._hosts.sort(key=lambda host: host.connection.address != newest_path)
            for host in self._hosts[1:]:
                if (
                    host.connection.address == self._hosts[0].connection.address
                    and not host.connection.has_calls
                ):
                    self._hosts.remove(host)
                    await self._stacks.pop(host).aclose()

    @property
    def hosts(self) -> Iterable[remote_host.RemoteHost]:
        """All hosts, the newest first."""
        return self._hosts

    async def find_host(self, key: str) -> remote_host.RemoteHost:
        """Return the host that has a session's kernel, else the newest."""
        await self._refresh()
        for host in self._hosts[1:]:
            if host.connection.is_connected:
                # If a host has just ended, the newest host has its sessions.
                with contextlib.suppress(errors.KernelError):
                    if key in await host.statuses([key]):
                        return host
        return self._hosts[0]

    def keep_for_next_bot(self) -> None:
        self.leaves_hosts_running = True

    @contextlib.asynccontextmanager
    async def lease(self, key: str, *, person: str = "") -> AsyncIterator[RollingLease]:
        async with contextlib.AsyncExitStack() as stack:

            async def lease_at(host: remote_host.RemoteHost) -> ports.Lease:
                return await stack.enter_async_context(host.lease(key, person=person))

            find_host = functools.partial(self.find_host, key)
            rolling_lease = RollingLease(await find_host(), lease_at, find_host)
            await rolling_lease.begin()
            yield rolling_lease

    async def follow(
        self, execution_id: str, *, after: int = 0, show: ports.OnEvent, ask: ports.Ask | None
    ) -> ports.ExecutionEnd:
        await self._refresh()
        # The newest host takes over executions of hosts that ended, so it is asked last.
        for host in reversed(self._hosts[1:]):
            with contextlib.suppress(errors.ExecutionMissingError):
                return await host.follow(execution_id, after=after, show=show, ask=ask)
        return await self._hosts[0].follow(execution_id, after=after, show=show, ask=ask)

    async def stop(self, execution_id: str, reason: str = "") -> None:
        await self._ask_all(lambda host: host.stop(execution_id, reason))

    async def statuses(
        self, keys: Collection[str] | None = None
    ) -> Mapping[str, ports.KernelStatus]:
        await self._refresh()
        by_key: dict[str, ports.KernelStatus] = {}
        for answer in reversed(await self._ask_all(lambda host: host.statuses(keys))):
            by_key |= answer
        return by_key

    async def _ask_all(self, ask: Callable[[remote_host.RemoteHost], Awaitable[T]]) -> list[T]:
        """Ask all hosts at once; return their answers, newest host first, without failures.

        Raises:
            BotError: the newest host failed, which has most sessions.
        """
        newest_answer, *older_answers = await asyncio.gather(
            *map(ask, self._hosts), return_exceptions=True
        )
        if isinstance(newest_answer, BaseException):
            raise newest_answer
        answers = [newest_answer]
        for answer in older_answers:
            if not isinstance(answer, BaseException):
                answers.append(answer)
            elif isinstance(answer, errors.BotError):
                _log.warning("an older host does not answer", exc_info=answer)
            else:
                raise answer
        return answers

    async def stored_bytes(self, keys: Collection[str]) -> ports.StoredBytes:
        """Measure workspaces, which all hosts share."""
        await self._refresh()
        return await self._hosts[0].stored_bytes(keys)
