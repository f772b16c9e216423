"""Moves of sessions between hosts that share a store: archived on one, restored on another.

Without a shared store, a session that is placed on another host begins empty.
"""

from __future__ import annotations

from typing import Final

from interpreter_bot import errors
from interpreter_bot.hosts import remote_host
from interpreter_bot.wording import host_words

_MAX_ARRIVALS: Final = 10_000


class SessionMoves:
    """Moves of sessions, and which of them arrived with their state."""

    def __init__(self) -> None:
        # By session: the epoch in which it arrived, and whether its state was restored.
        self._arrivals: dict[str, tuple[int, bool]] = {}

    async def fetch_session(self, key: str, host: remote_host.RemoteHost, epoch: int) -> None:
        """Let a host restore a session from the store, once per epoch and before other requests.

        Raises:
            KernelError: it cannot be restored now.
        """
        if epoch == 1 or self._arrivals.get(key, (0, False))[0] == epoch:
            return
        self._arrivals[key] = epoch, await host.fetch_session(key, epoch)
        while len(self._arrivals) > _MAX_ARRIVALS:
            self._arrivals.pop(next(iter(self._arrivals)))

    def is_restored(self, key: str) -> bool:
        """Whether a session arrived at its host with its state."""
        return self._arrivals.get(key, (0, False))[1]

    async def evacuate(self, key: str, host: remote_host.RemoteHost) -> bool:
        """Archive a session of a draining host, unless it is busy; return whether it may move."""
        status = host.connection.status
        if not (status.is_draining and status.has_store):
            return False
        kernel = (await host.statuses([key])).get(key)
        if kernel is not None and kernel.is_busy:
            return False
        return await self._end_and_archive(key, host)

    async def move_out(
        self, key: str, host: remote_host.RemoteHost, target: remote_host.RemoteHost
    ) -> None:
        """Archive a session, so that `target` can restore it.

        Raises:
            KernelError: it cannot be moved; at most its kernel has ended.
        """
        if not (host.connection.status.has_store and target.connection.status.has_store):
            raise errors.KernelError(host_words.NO_SHARED_STORE)
        if not await self._end_and_archive(key, host):
            raise errors.KernelError(host_words.NOT_ARCHIVED)

    async def _end_and_archive(self, key: str, host: remote_host.RemoteHost) -> bool:
        await host.end_session(key, host_words.MOVED)
        return await host.archive(key)
