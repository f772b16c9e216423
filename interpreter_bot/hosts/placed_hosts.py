"""Hosts of several machines, as one: each session is on one of them, and stays there.

Where it is, a row of the database says (`placement_offers.Placements`). A session that has none
goes where its files are, else to the roomier of two hosts by chance. A host that is lost loses the
others nothing; its own sessions begin again elsewhere, once it was away for long, in a later epoch:
what comes back from the dead is refused, and its kernels of those sessions end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping
from typing import Final, TypeVar

from interpreter_bot import code_activity, errors, session_variables
from interpreter_bot.hosts import (
    host_addresses,
    host_lists,
    host_statuses,
    kernel_doors,
    placement_offers,
    ports,
    remote_host,
    session_moves,
    session_router,
)

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05
_RETRY_SECONDS: Final = 1.0
_FIRST_SECONDS: Final = 20.0
_NONE: Final = "No machine that runs Python can be reached right now."

T = TypeVar("T")


class PlacedHosts(session_router.SessionRouter):
    """All hosts of a fleet; implements `ports.Hosts`. Use `open`.

    Attributes:
        ends_with_bot: false.
        faults: why hosts cannot be used that cannot, a sentence for each.
    """

    ends_with_bot = False

    def outlive(self) -> None:
        """Do nothing: machines do not end with a bot."""

    def __init__(
        self,
        fleet: host_lists.Fleet,
        placed: placement_offers.Placements,
        *,
        lost_seconds: float,
        doorkeeper: kernel_doors.Doorkeeper | None,
    ) -> None:
        super().__init__()
        self._fleet, self._placements = fleet, placed
        self._lost_seconds, self._doorkeeper = lost_seconds, doorkeeper
        self._hosts: dict[host_addresses.Address, remote_host.RemoteHost] = {}
        self.faults: dict[host_addresses.Address, str] = {}
        self._members: dict[host_addresses.Address, asyncio.Task[None]] = {}
        # When hosts were heard of last that are in no list any more, or were never there.
        self._began = time.monotonic()
        self._left: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._moves = session_moves.SessionMoves()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        fleet: host_lists.Fleet,
        placed: placement_offers.Placements,
        *,
        lost_seconds: float = 30.0,
        doorkeeper: kernel_doors.Doorkeeper | None = None,
    ) -> AsyncIterator[PlacedHosts]:
        """Connect to all hosts there are, and to those that come.

        Args:
            fleet: says which.
            placed: where sessions are.
            lost_seconds: how long a host may be away before its sessions go elsewhere.
            doorkeeper: decides what kernels reach; None lets them reach nothing.

        Raises:
            KernelError: none can be used; the sentence says why.
        """
        hosts = cls(fleet, placed, lost_seconds=lost_seconds, doorkeeper=doorkeeper)
        looking = asyncio.create_task(hosts._look(), name="hosts of a fleet")
        try:
            await hosts._first()
            yield hosts
        finally:
            tasks = {looking, *hosts._tasks, *hosts._members.values()}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _first(self) -> None:
        """Wait until it is known of each host whether it can be used."""
        give_up = time.monotonic() + _FIRST_SECONDS
        while time.monotonic() < give_up:
            known = self._hosts.keys() | self.faults.keys()
            if self._members and known >= self._members.keys():
                break
            await asyncio.sleep(_POLL_SECONDS)
        if not self._hosts:
            raise errors.KernelError(" ".join([_NONE, *sorted(set(self.faults.values()))]))

    async def _look(self) -> None:
        """Connect to hosts that come, and leave those that went, for ever."""
        while True:
            addresses = await self._fleet.addresses()
            for address in addresses - self._members.keys():
                keeping = self._keep(address)
                self._members[address] = asyncio.create_task(keeping, name=f"host at {address}")
            for address in self._members.keys() - addresses:
                host = self._hosts.get(address)
                # One that is not listed any more may still have kernels.
                if host is None or not host.connection.is_connected:
                    self._members.pop(address).cancel()
                    self.faults.pop(address, None)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _keep(self, address: host_addresses.Address) -> None:
        """Have a host, whenever it can be reached."""
        while True:
            opening = remote_host.RemoteHost.open(
                address,
                patience_seconds=self._lost_seconds,
                doorkeeper=self._doorkeeper,
                epoch_on=self._epoch_on,
            )
            try:
                async with opening as host:
                    self._check(host)
                    self._hosts[address] = host
                    self.faults.pop(address, None)
                    refused = asyncio.get_running_loop().create_future()
                    host.connection.on_connect = functools.partial(self._arrived, host, refused)
                    await host.listen(self.on_loss)
                    try:
                        await refused
                    finally:
                        self._left[host.connection.status.data_id] = time.monotonic()
                        del self._hosts[address]
            except errors.BotError as error:
                if self.faults.get(address) != str(error):
                    _log.warning("the host at %s cannot be used: %s", address, error)
                self.faults[address] = str(error)
            except Exception:
                # The last net: else nobody would ever look for this host again.
                _log.exception("the host at %s cannot be used", address)
                self.faults[address] = host_statuses.UNREACHABLE
            await asyncio.sleep(_RETRY_SECONDS)

    def _check(self, host: remote_host.RemoteHost) -> None:
        others = [one.connection.status for one in self._hosts.values()]
        own, address = host.connection.status, str(host.connection.address)
        own.check_beside(others, address, needs_doors=self._doorkeeper is not None)

    def _arrived(self, host: remote_host.RemoteHost, refused: asyncio.Future[None]) -> None:
        try:
            # It may have been started anew, in another way.
            self._check(host)
        except errors.HostUnusableError as error:
            if not refused.done():
                refused.set_exception(error)
            return
        self._spawn(self._welcome(host), "sessions that a host has no more")

    def _spawn(self, work: Coroutine[object, None, None], name: str) -> asyncio.Task[None]:
        self._tasks.add(task := asyncio.create_task(work, name=name))
        task.add_done_callback(self._tasks.discard)
        return task

    async def _welcome(self, host: remote_host.RemoteHost) -> None:
        """Let a host that is here (again) know which of its sessions are elsewhere by now."""
        if self._doorkeeper is not None:
            host.take_over_doors()
        try:
            for key in await host.statuses():
                found = await self._placements.find(key)
                if found is not None and found[0] != host.connection.status.data_id:
                    await host.at(found[1]).fence(key)
        except errors.BotError:
            # Whoever uses one of them there is refused all the same, once its epoch was heard.
            _log.warning("a host could not be told what it lost", exc_info=True)

    def _connected(self) -> list[remote_host.RemoteHost]:
        return [host for host in self._hosts.values() if host.connection.is_connected]

    async def _reached(self, data_id: str) -> remote_host.RemoteHost | None:
        """Return the host of a data directory; None once it was away for too long."""
        while True:
            known = [
                host for host in self._hosts.values() if host.connection.status.data_id == data_id
            ]
            for host in known:
                if host.connection.is_connected:
                    return host
            away_seconds = [host.connection.away_seconds for host in known] or [
                time.monotonic() - self._left.get(data_id, self._began)
            ]
            if min(away_seconds) > self._lost_seconds:
                return None
            await asyncio.sleep(_POLL_SECONDS)

    async def _placed(
        self, key: str, *, beside: remote_host.RemoteHost | None = None
    ) -> tuple[remote_host.RemoteHost, bool, int]:
        """Return the host of a session in its epoch, whether people know of it, and the epoch.

        Args:
            key: of the session, which is placed if it is not, or its host is lost.
            beside: the host that it goes to, if it has none.

        Raises:
            KernelError: there is none.
        """
        found = await self._placements.find(key)
        while True:
            if found is not None:
                data_id, epoch, is_told = found
                host = await self._reached(data_id)
                is_alone = len(self._connected()) < 2
                if host is not None and (
                    is_alone or not await self._moves.evacuate(key, host.at(epoch))
                ):
                    await self._moves.arrive(key, host.at(epoch), epoch)
                    return host.at(epoch), is_told, epoch
                _log.warning("session is placed anew: its host %s ends, or is lost", data_id)
            # What was lost there is not put there again.
            chosen = beside if beside and found is None else await self._chosen(key)
            after = 0 if found is None else found[1]
            found = await self._placements.put(key, chosen.connection.status.data_id, after=after)

    async def move(self, key: str, data_id: str) -> None:
        """Move a session to the host of a data directory, with its files and variables.

        Raises:
            KernelError: it cannot be moved now; nothing is changed then.
        """
        found, target = await self._placements.find(key), await self._reached(data_id)
        source = None if found is None else await self._reached(found[0])
        if found is None or source is None or target is None:
            raise errors.KernelError(_NONE)
        if source is not target:
            await self._moves.leave(key, source.at(found[1]), target)
            await self._placements.put(key, data_id, after=found[1])

    async def _chosen(self, key: str) -> remote_host.RemoteHost:
        """Choose a host for a session; a KernelStartError if there is none."""
        taking = [one for one in self._connected() if not one.connection.status.is_draining]
        for hosts in (placement_offers.to_ask(taking), taking):
            offers = zip(
                hosts, await remote_host.asked(hosts, lambda one: one.offer(key)), strict=True
            )
            able = [(host, offer) for host, offer in offers if offer is not None]
            if (chosen := placement_offers.best(able)) is not None:
                return chosen
        raise errors.KernelStartError(_NONE)

    @property
    def hosts(self) -> Iterable[remote_host.RemoteHost]:
        """All hosts that are used."""
        return self._hosts.values()

    async def host_of(self, key: str) -> remote_host.RemoteHost:
        """Return the host of a session, which is placed if it has none."""
        return (await self._placed(key))[0]

    async def take_move_notice(self, key: str) -> bool:
        """Find a session's machine; say, once, whether it lost all with another."""
        _, is_told, epoch = await self._placed(key)
        is_news = not is_told and await self._placements.mark_told(key, epoch)
        return is_news and not self._moves.is_restored(key)

    @property
    def packages(self) -> Mapping[str, str]:
        """Packages that code may import, with their versions: of one host, as all are alike."""
        return next((host.packages for host in self._hosts.values()), {})

    @property
    def keeps_variables(self) -> bool:
        """Whether variables of idle sessions are saved."""
        return all(host.keeps_variables for host in self._hosts.values())

    async def _epoch_on(self, data_id: str, key: str) -> int | None:
        """Return in which epoch a session is on the host of a data directory; None if it is not."""
        found = await self._placements.find(key)
        return found[1] if found is not None and found[0] == data_id else None

    def reach(self, key: str) -> code_activity.Reach:
        """Return what code of a session may reach outside."""
        return code_activity.NOWHERE if self._doorkeeper is None else self._doorkeeper.reach(key)

    async def fork(
        self, key: str, new_key: str, *, checkpoint: str = ""
    ) -> session_variables.RestoredState:
        """Let a new session begin as a copy of another, on the same machine."""
        host = await self.host_of(key)
        copy, _, epoch = await self._placed(new_key, beside=host)
        new_epoch = epoch if copy.connection is host.connection else 0
        return await host.fork(key, new_key, checkpoint=checkpoint, new_epoch=new_epoch)

    @contextlib.asynccontextmanager
    async def lease(self, key: str, *, person: str = "") -> AsyncIterator[remote_host.RemoteLease]:
        """Lease a session's kernel."""
        async with (await self.host_of(key)).lease(key, person=person) as lease:
            yield lease

    async def follow(
        self, execution_id: str, *, after: int = 0, show: ports.Show, ask: ports.Ask | None
    ) -> ports.ExecutionEnd:
        """Follow an execution; see `ports.Hosts.follow`."""
        # Those that are away may have it, and are waited for as long as they may be.
        hosts = sorted(self._hosts.values(), key=lambda one: not one.connection.is_connected)
        for host in hosts:
            with contextlib.suppress(errors.ExecutionMissingError):
                return await host.follow(execution_id, after=after, show=show, ask=ask)
        raise errors.ExecutionMissingError

    async def stop(self, execution_id: str, reason: str = "") -> None:
        """Interrupt an execution, or keep it from beginning; also on a machine that is away."""
        work = (remote_host.stopped(one, execution_id, reason) for one in self._hosts.values())
        if stopping := {self._spawn(one, "stop an execution") for one in work}:
            # Those that are away hear of it when they are back.
            await asyncio.wait(stopping, timeout=remote_host.OFFER_SECONDS)

    def acknowledge(self, execution_id: str) -> None:
        """Let the hosts forget an execution."""
        for host in self._connected():
            host.acknowledge(execution_id)

    async def statuses(
        self, keys: Collection[str] | None = None
    ) -> Mapping[str, ports.KernelStatus]:
        """Return the kernels of sessions, by their keys."""
        found: dict[str, ports.KernelStatus] = {}
        for told in await remote_host.asked(self._connected(), lambda host: host.statuses(keys)):
            found |= told or {}
        return found

    async def forget(self, key: str) -> None:
        """End a session's kernel and delete its files, also those of earlier times elsewhere."""
        host = await self.host_of(key)
        await host.forget(key)
        others = [one for one in self._connected() if one.connection is not host.connection]
        await remote_host.asked(others, lambda other: other.forget(key))

    async def stored_bytes(self, keys: Collection[str]) -> ports.StoredBytes:
        """Measure workspaces of all hosts that answer."""
        by_key: dict[str, int] = {}
        others = disk_bytes = 0
        measured = await remote_host.asked(self._connected(), lambda host: host.stored_bytes(keys))
        for told in measured:
            if told is not None:
                for key, count_bytes in told.by_key.items():
                    by_key[key] = by_key.get(key, 0) + count_bytes
                others += told.others
                disk_bytes += told.disk_bytes
        return ports.StoredBytes(by_key, others, disk_bytes)
