"""Kernels that stand by, already started and confined, for sessions to come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from interpreter_bot import errors
from interpreter_bot.kernels import launching

_log = logging.getLogger(__name__)

# Leaves the cores to whoever has just taken one.
_PAUSE_SECONDS = 0.05


class Spares:
    """A few of them, made up for as they are taken and as room allows."""

    def __init__(
        self,
        count: int,
        *,
        launch: Callable[[], Awaitable[launching.Launched]],
        may_launch: Callable[[], bool],
        end: Callable[[launching.Launched], Awaitable[None]],
    ) -> None:
        """Keep none yet.

        Args:
            count: how many are to stand by.
            launch: starts a kernel.
            may_launch: says whether one more kernel fits, and keeps no session waiting.
            end: closes a kernel.
        """
        self._count = count
        self._launch = launch
        self._may_launch = may_launch
        self._end = end
        self._ready: list[launching.Launched] = []
        self._launching: asyncio.Event | None = None
        self._refilling: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Count those that stand by; the one on its way is not ready."""
        return len(self._ready)

    @property
    def places(self) -> int:
        """How many places they take, with the one on its way."""
        return len(self._ready) + (self._launching is not None)

    async def take(self) -> launching.Launched | None:
        """Return one that is alive, if there is any."""
        while self._ready:
            launched = self._ready.pop()
            if launched.kernel.is_alive:
                return launched
            _log.warning("a spare kernel had died")
            await self._end(launched)
        return None

    async def arrival(self) -> bool:
        """Wait for the one on its way, however it ends; False at once where none is."""
        if self._launching is None:
            return False
        await self._launching.wait()
        return True

    def refill_soon(self) -> None:
        """Bring them up to their number in the background."""
        if self._refilling is None or self._refilling.done():
            self._refilling = asyncio.create_task(self._refill(), name="refill spares")

    async def _refill(self) -> None:
        while len(self._ready) < self._count:
            await asyncio.sleep(_PAUSE_SECONDS)
            if not self._may_launch():
                return
            arrived = self._launching = asyncio.Event()
            try:
                self._ready.append(await self._launch())
            except errors.BotError:
                _log.exception("no spare kernel could be started")
                return
            finally:
                self._launching = None
                arrived.set()

    async def close(self) -> list[launching.Launched]:
        """Start no more; returns those that stand by, which are the caller's to close."""
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.gather(self._refilling, return_exceptions=True)
        remaining, self._ready = self._ready, []
        return remaining
