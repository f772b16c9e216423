"""Moves of sessions between hosts that share a store: how they leave one and come to another.

Without such a store a session that is placed anew begins anew.
"""

from __future__ import annotations

from typing import Final

from interpreter_bot import errors
from interpreter_bot.hosts import remote_host

_MOST_ARRIVALS: Final = 10_000
_MOVED: Final = "This conversation moved to another machine."
_NO_STORE: Final = "Sessions move only between hosts that share a store (host.store)."
_NOT_ARCHIVED: Final = "Its files and variables could not be archived, so it was not moved."


class SessionMoves:
    """The moves that a bot has heard of."""

    def __init__(self) -> None:
        # By session: the epoch in which it came to its host, and whether with what it had.
        self._arrivals: dict[str, tuple[int, bool]] = {}

    async def arrive(self, key: str, host: remote_host.RemoteHost, epoch: int) -> None:
        """Let a host bring what another had of a session, before anything else is asked of it.

        Raises:
            KernelError: it cannot be had now.
        """
        if epoch == 1 or self._arrivals.get(key, (0, False))[0] == epoch:
            return
        self._arrivals[key] = epoch, await host.arrive(key)
        while len(self._arrivals) > _MOST_ARRIVALS:
            self._arrivals.pop(next(iter(self._arrivals)))

    def is_restored(self, key: str) -> bool:
        """Whether a session came to its host with what it had before."""
        return self._arrivals.get(key, (0, False))[1]

    async def evacuate(self, key: str, host: remote_host.RemoteHost) -> bool:
        """Take a session from a host that ends, unless it is used there; say whether it left."""
        status = host.connection.status
        if not (status.is_draining and status.has_store):
            return False
        kernel = (await host.statuses([key])).get(key)
        if kernel is not None and kernel.is_busy:
            return False
        return await self._leave(key, host)

    async def leave(
        self, key: str, host: remote_host.RemoteHost, target: remote_host.RemoteHost
    ) -> None:
        """Take a session from a host, for another one.

        Raises:
            KernelError: it cannot be moved; nothing is changed then, but that its kernel may end.
        """
        if not (host.connection.status.has_store and target.connection.status.has_store):
            raise errors.KernelError(_NO_STORE)
        if not await self._leave(key, host):
            raise errors.KernelError(_NOT_ARCHIVED)

    async def _leave(self, key: str, host: remote_host.RemoteHost) -> bool:
        await host.end(key, _MOVED)
        return await host.archive(key)
