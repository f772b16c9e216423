"""Lists of sessions for an operator, from the database, the hosts and the disk.

Titles and ids come from people, so they are printed harmless and not used as names.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from interpreter_bot import errors, session_variables, settings, values
from interpreter_bot.app import execution_startup
from interpreter_bot.hosts import host_addresses, host_sockets, ports, remote_host
from interpreter_bot.kernels import snapshot_retention
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.store import columns, databases, records
from interpreter_bot.text import quantities, safe_text

_DAY_SECONDS: Final = 86_400.0
_SHORT_NAME_CHARACTERS: Final = 12
_MAX_TITLE_CHARACTERS: Final = 40
_MAX_KEY_CHARACTERS: Final = 80
_NO_VALUE: Final = "-"
COLUMN_TITLES: Final = (
    *("name", "title", "session", "person", "state"),
    *("memory", "age", "unused", "saved"),
)
"""Titles of the columns of `SessionEntry.cells`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntry:
    """One session.

    Attributes:
        key: its key as text.
        session: its record; None if the database has none.
        person: the person who began it.
        host: the host that has its kernel, or would start one; None if there is none. In a fleet,
            the host of its placement, in the epoch of the placement.
        epoch: of its placement; 0 if it has none.
        status: of its kernel, if it has one.
        saved: the size of its saved variables, if it has any.
    """

    key: str
    session: records.Session | None
    person: str
    host: remote_host.RemoteHost | None
    status: ports.KernelStatus | None
    saved: session_variables.SnapshotSize | None
    epoch: int = 0

    @property
    def name(self) -> str:
        """Its name on the command line, in hexadecimal digits."""
        return workspaces.Workspaces.name_of(self.key)

    @property
    def short_name(self) -> str:
        """The beginning of the name, which is nearly always unique."""
        return self.name[:_SHORT_NAME_CHARACTERS]

    @property
    def state(self) -> str:
        """Its state in a word."""
        if self.status is None:
            return "saved" if self.saved else "files"
        if self.status.is_busy:
            return "running"
        return "frozen" if self.status.is_frozen else "live"

    @property
    def idle_seconds(self) -> float | None:
        """The time since its last use; None if it is unknown."""
        if self.status is not None:
            return self.status.idle_seconds
        return _seconds_since(self.session.used) if self.session is not None else None

    def facts(self) -> dict[str, object]:
        """Return all facts, for programs."""
        status, saved, session = self.status, self.saved, self.session
        return {
            "name": self.name,
            "key": self.key,
            "title": session.title if session else "",
            "person": self.person,
            "state": self.state,
            "memory_bytes": status.memory_bytes if status else None,
            "age_seconds": _seconds_since(session.created) if session else None,
            "idle_seconds": self.idle_seconds,
            "saved_bytes": saved.bytes if saved else 0,
            "saved_at": saved.used_at if saved else None,
        }

    def cells(self) -> list[str]:
        """Return the texts of its row, one for each column."""
        title = self.session.title if self.session else ""
        return [
            self.short_name,
            quantities.one_line(safe_text.sanitize(title), _MAX_TITLE_CHARACTERS) or _NO_VALUE,
            quantities.one_line(self.key, _MAX_KEY_CHARACTERS),
            quantities.one_line(safe_text.sanitize(self.person), _MAX_TITLE_CHARACTERS),
            self.state,
            _format_size(self.status.memory_bytes if self.status else None),
            _format_age(_seconds_since(self.session.created) if self.session else None),
            _format_age(self.idle_seconds),
            _format_size(self.saved.bytes if self.saved else None),
        ]


@contextlib.asynccontextmanager
async def open_hosts(
    config: settings.Settings, warn: Callable[[str], object]
) -> AsyncIterator[list[remote_host.RemoteHost]]:
    """Connect to all hosts of the settings, those of one machine newest first.

    `warn` receives a sentence for each host of a fleet that does not answer.

    Raises:
        HostUnusableError: the host of this machine does not answer, or has another release.
    """
    async with contextlib.AsyncExitStack() as stack:
        hosts = []
        addresses: Sequence[host_addresses.Address]
        addresses = await asyncio.to_thread(host_sockets.list_newest_first, config.paths)
        if config.host.fleet:
            addresses = await execution_startup.find_fleet_addresses(config)
        for address in addresses:
            try:
                host = await stack.enter_async_context(remote_host.RemoteHost.open(address))
            except errors.KernelError as error:
                if config.host.fleet:
                    warn(f"{address}: {error}")
                elif isinstance(error, errors.HostUnusableError):
                    raise
                continue
            hosts.append(host)
        yield hosts


async def list_sessions(
    config: settings.Settings,
    database: databases.Database,
    hosts: Sequence[remote_host.RemoteHost],
) -> list[SessionEntry]:
    """Return all sessions of the database and of hosts, the latest used first."""
    sessions_by_key = {
        values.format_key(session.key): (session, person)
        for session, person in await database.sessions.list_with_owners()
    }
    kernels: dict[str, tuple[remote_host.RemoteHost, ports.KernelStatus]] = {}
    for fleet_host in hosts:
        for key, status in (await fleet_host.statuses()).items():
            if not status.loss_reason:
                kernels[key] = fleet_host, status
    keys = sessions_by_key.keys() | kernels.keys()
    sizes = await _find_sizes(config, keys, hosts)
    hosts_by_data_id: dict[str, remote_host.RemoteHost] = {}
    if config.host.fleet:
        hosts_by_data_id = {
            fleet_host.connection.status.data_id: fleet_host for fleet_host in hosts
        }
    placements = await database.placements.find_all(keys) if hosts_by_data_id else {}
    entries = []
    for key in keys:
        session, person = sessions_by_key.get(key, (None, ""))
        kernel = kernels.get(key)
        placement = placements.get(key)
        host: remote_host.RemoteHost | None = kernel[0] if kernel else next(iter(hosts), None)
        if placement is not None:
            placed_host = hosts_by_data_id.get(placement.data_id)
            # A kernel on a host that lost the session to another one no longer counts.
            kernel = kernel if kernel is not None and kernel[0] is placed_host else None
            host = None if placed_host is None else placed_host.with_epoch(placement.epoch)
        entries.append(
            SessionEntry(
                key=key,
                session=session,
                person=person,
                host=host,
                status=kernel[1] if kernel else None,
                saved=sizes.get(key),
                epoch=placement.epoch if placement is not None else 0,
            )
        )
    return sorted(entries, key=lambda entry: (entry.idle_seconds or 0.0, entry.name))


async def _find_sizes(
    config: settings.Settings, keys: set[str], hosts: Sequence[remote_host.RemoteHost]
) -> Mapping[str, session_variables.SnapshotSize]:
    # Hosts of one data directory report the same sizes, and may read it even if this user may not.
    if hosts:
        sizes: dict[str, session_variables.SnapshotSize] = {}
        for host in hosts if config.host.fleet else hosts[:1]:
            sizes |= await host.snapshot_sizes(keys)
        return sizes
    all_workspaces = await open_workspaces(config).list_all()
    return await snapshot_retention.measure(all_workspaces, keys)


def open_workspaces(config: settings.Settings) -> workspaces.Workspaces:
    """Return the files of sessions on this disk."""
    return workspaces.Workspaces(config.paths.data / "workspaces", config.limits)


def _seconds_since(moment: datetime.datetime) -> float:
    return max((columns.now() - moment).total_seconds(), 0.0)


def _format_age(seconds: float | None) -> str:
    if seconds is None:
        return _NO_VALUE
    days = seconds / _DAY_SECONDS
    return quantities.count(int(days), "day") if days >= 2 else quantities.duration(seconds)


def _format_size(size_bytes: int | None) -> str:
    return _NO_VALUE if size_bytes is None else quantities.size(size_bytes)
