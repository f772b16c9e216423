"""Hosts that follow each other: the newest takes new sessions, each keeps its own until they end.

That is how a host is upgraded: a second one is started, the first one drains. A connection stays
with its host as long as that is there, and leads to the newest one then.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from interpreter_bot import code_activity, errors, session_variables
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
    """A lease of whichever host has the session; implements `ports.Lease`."""

    def __init__(
        self,
        host: remote_host.RemoteHost,
        lease: Callable[[remote_host.RemoteHost], Awaitable[ports.Lease]],
        find: Callable[[], Awaitable[remote_host.RemoteHost]],
    ) -> None:
        """Lease nothing yet.

        Args:
            host: has the session, as far as is known.
            lease: leases it of a host.
            find: finds out which host has it now.
        """
        self._host = host
        self._lease = lease
        self._find = find
        self._leased: ports.Lease | None = None

    async def begin(self) -> ports.Lease:
        """Lease it, if it is not yet."""
        if self._leased is None:
            self._leased = await self._lease(self._host)
        return self._leased

    async def kernel(self, *, waiting: ports.OnWait | None = None) -> ports.Kernel:
        """Return the session's kernel; see `ports.Lease.kernel`."""
        try:
            return await (await self.begin()).kernel(waiting=waiting)
        except errors.KernelStartError:
            # A host that drains may have let it go just before it was leased.
            if (host := await self._find()) is self._host:
                raise
            self._host, self._leased = host, None
        return await self.kernel(waiting=waiting)


class RollingHosts(session_router.SessionRouter):
    """All hosts of one data directory; implements `ports.Hosts`. Use `open`.

    Attributes:
        ends_with_bot: whether they end with a bot that ends in order.
        is_awaited: whether they are kept for the next bot, also at an orderly end.
    """

    def __init__(
        self,
        newest: pathlib.Path,
        revive: host_connection.Revive,
        doorkeeper: kernel_doors.Doorkeeper | None,
        *,
        ends_with_bot: bool,
    ) -> None:
        super().__init__()
        self.ends_with_bot = ends_with_bot
        self.is_awaited = False
        self._newest = newest
        self._revive = revive
        self._doorkeeper = doorkeeper
        # The newest first.
        self._hosts: list[remote_host.RemoteHost] = []
        self._stacks: dict[remote_host.RemoteHost, contextlib.AsyncExitStack] = {}
        self._looking = asyncio.Lock()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        newest: pathlib.Path,
        *,
        revive: host_connection.Revive,
        doorkeeper: kernel_doors.Doorkeeper | None = None,
        ends_with_bot: bool = False,
    ) -> AsyncIterator[RollingHosts]:
        """Connect to all hosts there are.

        Args:
            newest: the link to the newest one's socket.
            revive: called when a host cannot be reached.
            doorkeeper: decides what kernels reach; None lets them reach nothing.
            ends_with_bot: whether they cannot outlive a bot that ends in order.

        Raises:
            KernelError: the newest one cannot be reached, or is of another release.
        """
        hosts = cls(newest, revive, doorkeeper, ends_with_bot=ends_with_bot)
        try:
            await hosts._join(newest)
            first = hosts._hosts[0].connection.address
            for path in await asyncio.to_thread(host_sockets.listening, newest.parent):
                if path != first:
                    # Where it cannot be spoken to, its sessions are as good as gone.
                    with contextlib.suppress(errors.KernelError):
                        await hosts._join(path)
            yield hosts
        finally:
            for stack in hosts._stacks.values():
                await stack.aclose()

    async def connected(self) -> None:
        """Wait until the newest knows that a bot is there."""
        await self._hosts[0].connection.connected()

    async def _join(self, path: pathlib.Path) -> None:
        """Connect to a host, which is the newest, or else the oldest known.

        Raises:
            KernelError: it cannot be reached, or is of another release.
        """
        stack = contextlib.AsyncExitStack()
        opening = remote_host.RemoteHost.open(
            path,
            newest=self._newest,
            revive=self._revive,
            doorkeeper=self._doorkeeper,
            is_bot=True,
        )
        host = await stack.enter_async_context(opening)
        self._stacks[host] = stack
        self._hosts.insert(0 if path == self._newest else len(self._hosts), host)
        if self.on_loss is not None:
            await host.listen(self.on_loss)

    async def _look(self) -> None:
        """Connect to a host that is new, and leave connections that lead to where another does."""
        path = host_sockets.target(self._newest)
        known = [host.connection.address for host in self._hosts]
        # One that is lost finds the newest by itself.
        is_new = path is not None and path not in known and self._hosts[0].connection.is_connected
        if not is_new and len(set(known)) == len(known):
            return
        async with self._looking:
            if path is not None and path not in [host.connection.address for host in self._hosts]:
                try:
                    await self._join(self._newest)
                except errors.KernelError:
                    _log.exception("a new host of kernels cannot be used")
            self._hosts.sort(key=lambda host: host.connection.address != path)
            for host in self._hosts[1:]:
                if (
                    host.connection.address == self._hosts[0].connection.address
                    and not host.is_used
                ):
                    self._hosts.remove(host)
                    await self._stacks.pop(host).aclose()

    @property
    def hosts(self) -> Iterable[remote_host.RemoteHost]:
        """All hosts, the newest first."""
        return self._hosts

    async def host_of(self, key: str) -> remote_host.RemoteHost:
        """Return the host that has a session's kernel, else the newest."""
        await self._look()
        for host in self._hosts[1:]:
            if host.connection.is_connected:
                # Gone at this moment: its sessions are the newest one's by now.
                with contextlib.suppress(errors.KernelError):
                    if key in await host.statuses([key]):
                        return host
        return self._hosts[0]

    async def take_move_notice(self, key: str) -> bool:
        """Say no: on one machine, each host begins with what the former left."""
        return False

    def outlive(self) -> None:
        """Keep what runs for the next bot."""
        self.is_awaited = True

    @property
    def packages(self) -> Mapping[str, str]:
        """Packages that code may import, with their versions."""
        return self._hosts[0].packages

    @property
    def keeps_variables(self) -> bool:
        """Whether variables of idle sessions are saved."""
        return self._hosts[0].keeps_variables

    async def fork(
        self, key: str, new_key: str, *, checkpoint: str = ""
    ) -> session_variables.RestoredState:
        """Let a new session begin as a copy of another; see `ports.Hosts.fork`."""
        return await (await self.host_of(key)).fork(key, new_key, checkpoint=checkpoint)

    def reach(self, key: str) -> code_activity.Reach:
        """Return what code of a session may reach outside."""
        return self._hosts[0].reach(key)

    @contextlib.asynccontextmanager
    async def lease(self, key: str, *, person: str = "") -> AsyncIterator[RollingLease]:
        """Lease a session's kernel."""
        async with contextlib.AsyncExitStack() as stack:

            async def leased(host: remote_host.RemoteHost) -> ports.Lease:
                return await stack.enter_async_context(host.lease(key, person=person))

            find = functools.partial(self.host_of, key)
            lease = RollingLease(await find(), leased, find)
            await lease.begin()
            yield lease

    async def follow(
        self, execution_id: str, *, after: int = 0, show: ports.Show, ask: ports.Ask | None
    ) -> ports.ExecutionEnd:
        """Follow an execution; see `ports.Hosts.follow`."""
        await self._look()
        # The newest has what those before it have left: it is asked last.
        for host in reversed(self._hosts[1:]):
            with contextlib.suppress(errors.ExecutionMissingError):
                return await host.follow(execution_id, after=after, show=show, ask=ask)
        return await self._hosts[0].follow(execution_id, after=after, show=show, ask=ask)

    async def stop(self, execution_id: str, reason: str = "") -> None:
        """Interrupt an execution, or keep it from beginning."""
        await self._ask_all(lambda host: host.stop(execution_id, reason))

    def acknowledge(self, execution_id: str) -> None:
        """Let the hosts forget an execution."""
        for host in self._hosts:
            host.acknowledge(execution_id)

    async def statuses(
        self, keys: Collection[str] | None = None
    ) -> Mapping[str, ports.KernelStatus]:
        """Return the kernels of sessions, by their keys."""
        await self._look()
        found: dict[str, ports.KernelStatus] = {}
        for told in reversed(await self._ask_all(lambda host: host.statuses(keys))):
            found |= told
        return found

    async def _ask_all(self, ask: Callable[[remote_host.RemoteHost], Awaitable[T]]) -> list[T]:
        """Ask all hosts, whatever becomes of one; return what those say that answer.

        Raises:
            BotError: the newest one does not; its sessions are most of them.
        """
        newest, *others = await asyncio.gather(*map(ask, self._hosts), return_exceptions=True)
        if isinstance(newest, BaseException):
            raise newest
        found = [newest]
        for answer in others:
            if not isinstance(answer, BaseException):
                found.append(answer)
            elif isinstance(answer, errors.BotError):
                _log.warning("a host before the newest one does not answer", exc_info=answer)
            else:
                raise answer
        return found

    async def forget(self, key: str) -> None:
        """End a session's kernel and delete its files."""
        await (await self.host_of(key)).forget(key)

    async def stored_bytes(self, keys: Collection[str]) -> ports.StoredBytes:
        """Measure workspaces, which all hosts share."""
        await self._look()
        return await self._hosts[0].stored_bytes(keys)
