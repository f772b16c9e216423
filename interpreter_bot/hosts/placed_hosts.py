"""Hosts of several machines, as one: each session is placed on one of them, and stays there.

The database stores the placement (`placement_offers.Placements`). A new session goes to the host
that has its files, or else to the emptier of two random hosts. If a host is
away for too long, its sessions are placed on another host, in a later epoch. If it comes back, its
kernels of those sessions end, and requests of the former epoch are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping
from typing import Final

import cachetools

from interpreter_bot import errors, session_variables, values
from interpreter_bot.hosts import (
    host_addresses,
    host_lists,
    kernel_doors,
    placement_offers,
    ports,
    remote_host,
    session_router,
)
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_WATCH_INTERVAL_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05
_RETRY_SECONDS: Final = 1.0
_MAX_CONNECTING_SECONDS: Final = 20.0
_MAX_ARRIVALS: Final = 10_000


class SessionArrivals:
    """Arrivals of sessions on hosts, which restore them from the store that they share.

    Without a shared store, a session that is placed on another host begins empty.
    """

    def __init__(self) -> None:
        # By session: the epoch of its arrival, and whether its state was restored.
        self._arrivals: cachetools.LRUCache[str, tuple[int, bool]] = cachetools.LRUCache(
            _MAX_ARRIVALS
        )

    async def fetch_session(self, key: str, host: remote_host.RemoteHost, epoch: int) -> None:
        """Let a host restore a session from the store, once per epoch and before other requests.

        Raises:
            KernelError: it cannot be restored now.
        """
        if epoch == 1 or self._arrivals.get(key, (0, False))[0] == epoch:
            return
        self._arrivals[key] = epoch, await host.fetch_session(key, epoch)

    def is_restored(self, key: str) -> bool:
        """Whether a session arrived at its host with its state."""
        return self._arrivals.get(key, (0, False))[1]


async def evacuate(key: str, host: remote_host.RemoteHost) -> bool:
    """Archive a session of a draining host, unless it is busy; return whether it may move."""
    status = host.connection.status
    if not (status.is_draining and status.has_store):
        return False
    kernel = (await host.statuses([key])).get(key)
    if kernel is not None and kernel.is_busy:
        return False
    return await _end_and_archive(key, host)


async def move_out(key: str, host: remote_host.RemoteHost, target: remote_host.RemoteHost) -> None:
    """Archive a session, so that `target` can restore it.

    Raises:
        KernelError: it cannot be moved; at most its kernel has ended.
    """
    if not (host.connection.status.has_store and target.connection.status.has_store):
        raise errors.KernelError(host_words.NO_SHARED_STORE)
    if not await _end_and_archive(key, host):
        raise errors.KernelError(host_words.NOT_ARCHIVED)


async def _end_and_archive(key: str, host: remote_host.RemoteHost) -> bool:
    await host.end_session(key, host_words.SESSION_MOVED)
    return await host.archive(key)


class PlacedHosts(session_router.SessionRouter):
    """All hosts of a fleet; implements `ports.Hosts`. Use `open`.

    Attributes:
        faults: a sentence for each host that cannot be used.
    """

    def __init__(
        self,
        fleet: host_lists.Fleet,
        placements: placement_offers.Placements,
        *,
        lost_seconds: float,
        doorkeeper: kernel_doors.Doorkeeper | None,
    ) -> None:
        super().__init__(doorkeeper)
        self._fleet, self._placements = fleet, placements
        self._lost_seconds = lost_seconds
        self._hosts: dict[host_addresses.Address, remote_host.RemoteHost] = {}
        self.faults: dict[host_addresses.Address, str] = {}
        self._connection_tasks: dict[host_addresses.Address, asyncio.Task[None]] = {}
        # A host that was never connected counts as away since the start.
        self._started_at = time.monotonic()
        self._disconnected_at: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._session_arrivals = SessionArrivals()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        fleet: host_lists.Fleet,
        placements: placement_offers.Placements,
        *,
        lost_seconds: float = 30.0,
        doorkeeper: kernel_doors.Doorkeeper | None = None,
    ) -> AsyncIterator[PlacedHosts]:
        """Connect to all hosts of a fleet, now and whenever one joins.

        The sessions of a host that is away for `lost_seconds` go elsewhere.

        Raises:
            KernelError: no host can be used; the sentence says why.
        """
        hosts = cls(fleet, placements, lost_seconds=lost_seconds, doorkeeper=doorkeeper)
        watch_task = asyncio.create_task(hosts._watch_fleet(), name="hosts of a fleet")
        try:
            await hosts._wait_for_first_host()
            yield hosts
        finally:
            tasks = {watch_task, *hosts._tasks, *hosts._connection_tasks.values()}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _wait_for_first_host(self) -> None:
        """Wait until each host is connected or has a fault; at most `_MAX_CONNECTING_SECONDS`.

        Raises:
            KernelError: no host can be used.
        """
        deadline = time.monotonic() + _MAX_CONNECTING_SECONDS
        while time.monotonic() < deadline:
            settled_addresses = self._hosts.keys() | self.faults.keys()
            if self._connection_tasks and settled_addresses >= self._connection_tasks.keys():
                break
            await asyncio.sleep(_POLL_SECONDS)
        if not self._hosts:
            raise errors.KernelError(
                " ".join([host_words.NO_MACHINE, *sorted(set(self.faults.values()))])
            )

    async def _watch_fleet(self) -> None:
        """Connect to hosts that join the fleet, and drop those that left, for ever."""
        while True:
            try:
                self._follow_list(await self._fleet.addresses())
            except Exception:
                # Catch everything, or no host that joins later would ever be used.
                _log.exception("the hosts of the fleet cannot be listed")
            await asyncio.sleep(_WATCH_INTERVAL_SECONDS)

    def _follow_list(self, addresses: frozenset[host_addresses.Address]) -> None:
        for address in addresses - self._connection_tasks.keys():
            connecting = self._stay_connected(address)
            self._connection_tasks[address] = asyncio.create_task(
                connecting, name=f"host at {address}"
            )
        for address in self._connection_tasks.keys() - addresses:
            host = self._hosts.get(address)
            # A connected host that is no longer listed may still have kernels.
            if host is None or not host.connection.is_connected:
                self._connection_tasks.pop(address).cancel()
                self.faults.pop(address, None)

    async def _stay_connected(self, address: host_addresses.Address) -> None:
        """Stay connected to a host, for ever."""
        while True:
            opening = remote_host.RemoteHost.open(
                address,
                patience_seconds=self._lost_seconds,
                doorkeeper=self._doorkeeper,
                find_epoch=self._find_epoch,
            )
            try:
                async with opening as host:
                    self._check_usable(host)
                    self._hosts[address] = host
                    self.faults.pop(address, None)
                    fault = asyncio.get_running_loop().create_future()
                    host.connection.on_connect = functools.partial(self._on_connected, host, fault)
                    await host.subscribe_losses(self.on_loss)
                    try:
                        await fault
                    finally:
                        self._disconnected_at[host.connection.status.data_id] = time.monotonic()
                        del self._hosts[address]
            except errors.BotError as error:
                if self.faults.get(address) != str(error):
                    _log.warning("the host at %s cannot be used: %s", address, error)
                self.faults[address] = str(error)
            except Exception:
                # Catch everything, or this host would never be tried again.
                _log.exception("the host at %s cannot be used", address)
                self.faults[address] = host_words.UNREACHABLE
            await asyncio.sleep(_RETRY_SECONDS)

    def _check_usable(self, host: remote_host.RemoteHost) -> None:
        """Refuse a host that lacks doors, or whose data directory is a copy.

        Raises:
            HostUnusableError: the sentence says what to do.
        """
        status, address = host.connection.status, host.connection.address
        if self._doorkeeper is not None and not status.has_doors:
            raise errors.HostUnusableError(host_words.without_doors(str(address)))
        for other_address, other in self._hosts.items():
            # During an upgrade, a directory may have several hosts. But placements name a directory
            # by its id, so two directories must not have the same id.
            other_status = other.connection.status
            if (
                other_status.data_id == status.data_id
                and other_status.data_copy_id != status.data_copy_id
            ):
                raise errors.HostUnusableError(host_words.copied_directory(address, other_address))

    def _on_connected(self, host: remote_host.RemoteHost, fault: asyncio.Future[None]) -> None:
        try:
            # The host may have been restarted with other settings.
            self._check_usable(host)
        except errors.HostUnusableError as error:
            if not fault.done():
                fault.set_exception(error)
            return
        self._spawn(self._end_moved_sessions(host), "end of moved sessions")

    def _spawn(self, work: Coroutine[object, None, None], name: str) -> asyncio.Task[None]:
        self._tasks.add(task := asyncio.create_task(work, name=name))
        task.add_done_callback(self._tasks.discard)
        return task

    async def _end_moved_sessions(self, host: remote_host.RemoteHost) -> None:
        """End the kernels of a host that (re)connected whose sessions are on another host now."""
        if self._doorkeeper is not None:
            host.take_over_doors()
        try:
            for key in await host.statuses():
                placement = await self._placements.find(key)
                if placement is not None and placement.data_id != host.connection.status.data_id:
                    await host.with_epoch(placement.epoch).end_moved_session(key, placement.epoch)
        except errors.BotError:
            # A later request in the session's new epoch ends the old kernel all the same.
            _log.warning("kernels of moved sessions could not be ended", exc_info=True)

    def _connected_hosts(self) -> list[remote_host.RemoteHost]:
        return [host for host in self._hosts.values() if host.connection.is_connected]

    async def _wait_for_host(self, data_id: str) -> remote_host.RemoteHost | None:
        """Return the host of a data directory once it is connected; None if it is lost."""
        while True:
            candidates = [
                host for host in self._hosts.values() if host.connection.status.data_id == data_id
            ]
            for host in candidates:
                if host.connection.is_connected:
                    return host
            away_seconds = [host.connection.away_seconds for host in candidates] or [
                time.monotonic() - self._disconnected_at.get(data_id, self._started_at)
            ]
            if min(away_seconds) > self._lost_seconds:
                return None
            await asyncio.sleep(_POLL_SECONDS)

    async def _place(
        self, key: str, *, preferred_host: remote_host.RemoteHost | None = None
    ) -> tuple[remote_host.RemoteHost, values.Placement]:
        """Return a session's host in its epoch, and the placement.

        A session without a host, or whose host is lost, is placed: a new session on
        `preferred_host`, if given.

        Raises:
            KernelError: no host can take it.
        """
        placement = await self._placements.find(key)
        while True:
            if placement is not None:
                host = await self._wait_for_host(placement.data_id)
                if host is not None:
                    host = host.with_epoch(placement.epoch)
                    is_only_host = len(self._connected_hosts()) < 2
                    if is_only_host or not await evacuate(key, host):
                        await self._session_arrivals.fetch_session(key, host, placement.epoch)
                        return host, placement
                _log.warning(
                    "a session is placed anew: its host %s ends or is lost", placement.data_id
                )
            # Only for new sessions: the lost host of another session may be `preferred_host`.
            target = (
                preferred_host
                if preferred_host and placement is None
                else await self._choose_host(key)
            )
            former_epoch = 0 if placement is None else placement.epoch
            placement = await self._placements.put(
                key, target.connection.status.data_id, former_epoch=former_epoch
            )

    async def _choose_host(self, key: str) -> remote_host.RemoteHost:
        """Choose a host for a session.

        Raises:
            KernelStartError: no host takes sessions.
        """
        available_hosts = [
            host for host in self._connected_hosts() if not host.connection.status.is_draining
        ]
        for hosts in (placement_offers.sample_hosts(available_hosts), available_hosts):
            offers = zip(
                hosts, await remote_host.ask_all(hosts, lambda host: host.offer(key)), strict=True
            )
            answers = [(host, offer) for host, offer in offers if offer is not None]
            if (best := placement_offers.choose_host(answers)) is not None:
                return best
        raise errors.KernelStartError(host_words.NO_MACHINE)

    @property
    def hosts(self) -> Iterable[remote_host.RemoteHost]:
        """All hosts that were connected and are not given up."""
        return self._hosts.values()

    async def find_host(self, key: str) -> remote_host.RemoteHost:
        """Return the host of a session, after placing it if it has none."""
        return (await self._place(key))[0]

    async def ensure_placed(self, key: str) -> bool:
        _, placement = await self._place(key)
        is_first_notice = not placement.is_announced and await self._placements.mark_announced(
            key, placement.epoch
        )
        return is_first_notice and not self._session_arrivals.is_restored(key)

    async def _find_epoch(self, data_id: str, key: str) -> int | None:
        """Return a session's epoch on the host of a data directory; None if it is elsewhere."""
        placement = await self._placements.find(key)
        if placement is None or placement.data_id != data_id:
            return None
        return placement.epoch

    async def fork(
        self, key: str, new_key: str, *, checkpoint: str = ""
    ) -> session_variables.RestoredState:
        """Let a new session begin as a copy of another, on the same machine."""
        host = await self.find_host(key)
        new_host, placement = await self._place(new_key, preferred_host=host)
        new_epoch = placement.epoch if new_host.connection is host.connection else 0
        return await host.fork(key, new_key, checkpoint=checkpoint, new_epoch=new_epoch)

    @contextlib.asynccontextmanager
    async def lease(self, key: str, *, person: str = "") -> AsyncIterator[remote_host.RemoteLease]:
        async with (await self.find_host(key)).lease(key, person=person) as lease:
            yield lease

    async def follow(
        self, execution_id: str, *, after: int = 0, show: ports.OnEvent, ask: ports.Ask | None
    ) -> ports.ExecutionEnd:
        # A host that is away may have the execution, so it is asked as well, when it reconnects.
        hosts = sorted(self._hosts.values(), key=lambda host: not host.connection.is_connected)
        for host in hosts:
            with contextlib.suppress(errors.ExecutionMissingError):
                return await host.follow(execution_id, after=after, show=show, ask=ask)
        raise errors.ExecutionMissingError

    async def stop(self, execution_id: str, reason: str = "") -> None:
        stop_tasks = {
            self._spawn(remote_host.try_to_stop(host, execution_id, reason), "stop an execution")
            for host in self._hosts.values()
        }
        if stop_tasks:
            # Hosts that are away get the request when they reconnect.
            await asyncio.wait(stop_tasks, timeout=remote_host.MAX_ANSWER_SECONDS)

    async def statuses(
        self, keys: Collection[str] | None = None
    ) -> Mapping[str, ports.KernelStatus]:
        by_key: dict[str, ports.KernelStatus] = {}
        for answer in await remote_host.ask_all(
            self._connected_hosts(), lambda host: host.statuses(keys)
        ):
            by_key |= answer or {}
        return by_key

    async def forget(self, key: str) -> None:
        """End a session's kernel and delete its files, also those on former hosts."""
        host = await self.find_host(key)
        await host.forget(key)
        other_hosts = [
            other_host
            for other_host in self._connected_hosts()
            if other_host.connection is not host.connection
        ]
        await remote_host.ask_all(other_hosts, lambda other_host: other_host.forget(key))

    async def stored_bytes(self, keys: Collection[str]) -> ports.StoredBytes:
        by_key: dict[str, int] = {}
        other_bytes = disk_bytes = 0
        answers = await remote_host.ask_all(
            self._connected_hosts(), lambda host: host.stored_bytes(keys)
        )
        for answer in answers:
            if answer is not None:
                for key, session_bytes in answer.by_key.items():
                    by_key[key] = by_key.get(key, 0) + session_bytes
                other_bytes += answer.other_bytes
                disk_bytes += answer.disk_bytes
        return ports.StoredBytes(by_key, other_bytes, disk_bytes)
