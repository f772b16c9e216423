"""Spare kernels, already started and confined, and whether one more fits on this machine."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable

from interpreter_bot import errors, settings
from interpreter_bot.kernels import launchers, machines

_IDLE_KERNEL_BYTES = 64 * settings.MIB

_log = logging.getLogger(__name__)

# A kernel's first code takes some 3 ms longer than the next, for pages of memory that it is the
# first to write to; a spare has run this instead of a person's.
_NOTHING = "None"
_NOTHING_SECONDS = 10.0
# Leaves the cores to the session that has just taken one.
_PAUSE_SECONDS = 0.05


def room_bytes(launched: launchers.LaunchedKernel) -> int:
    """Return the memory that a live kernel is taken to fill: some, even while it does nothing."""
    return max(launched.provisioner.usage().counted_bytes() or 0, _IDLE_KERNEL_BYTES)


def has_room(
    kernels: settings.Kernels,
    live: Iterable[launchers.LaunchedKernel],
    others: int,
    *,
    machine_bytes: int = 0,
) -> bool:
    """Return whether one more kernel fits beside the present ones.

    Args:
        kernels: the settings, which bound their number or their memory.
        live: those of sessions. What is left of one that died takes no room.
        others: how many there are besides: spares, being started, being closed.
        machine_bytes: memory of the machine; 0 means of this one.
    """
    alive = [launched for launched in live if launched.kernel.is_alive]
    unused = others + 1
    if kernels.concurrent:
        return len(alive) + unused <= kernels.concurrent
    budget_bytes = (machine_bytes or machines.memory_bytes()) * kernels.memory_share
    used_bytes = sum(map(room_bytes, alive))
    return used_bytes + unused * _IDLE_KERNEL_BYTES <= budget_bytes


class Spares:
    """Spare kernels, replaced as they are taken and as room allows."""

    def __init__(
        self,
        count: int,
        *,
        launch: Callable[[], Awaitable[launchers.LaunchedKernel]],
        may_launch: Callable[[], bool],
        prepare: Callable[[], Awaitable[object]],
        end: Callable[[launchers.LaunchedKernel], Awaitable[None]],
        rest_seconds: float = 0.0,
        rest: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Start with none.

        Args:
            count: how many to keep ready.
            launch: starts a kernel.
            may_launch: returns whether one more kernel fits, and delays no session.
            prepare: waits until those that are started have everything imported.
            end: ends a kernel.
            rest_seconds: so long after a kernel was used there are none; 0 means never.
            rest: is called then.
        """
        self._count = count
        self._launch = launch
        self._may_launch = may_launch
        self._prepare = prepare
        self._end = end
        self._rest = rest
        self._rest_seconds = rest_seconds or math.inf
        self._used = time.monotonic()
        self._ready: list[launchers.LaunchedKernel] = []
        self.launching: asyncio.Future[None] | None = None
        """Is done once the spare that is being started is ready, or cannot be started."""
        self._refilling: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Count the ready ones; the one being started is not ready."""
        return len(self._ready)

    @property
    def places(self) -> int:
        """How many places they take, with the one being started."""
        return len(self._ready) + (self.launching is not None)

    async def take(self) -> launchers.LaunchedKernel | None:
        """Return a live one, if there is any."""
        while self._ready:
            launched = self._ready.pop()
            if launched.kernel.is_alive:
                return launched
            _log.warning("a spare kernel had died")
            await self._end(launched)
        return None

    async def tend(self, *, used: float, is_needed: bool) -> None:
        """Start the missing ones; where no session needs a kernel, and used none for long, have
        none.

        Args:
            used: when a session used its kernel last, in monotonic seconds, as far as that shows.
            is_needed: whether any session has a kernel now, or is about to.
        """
        self._used = max(self._used, used)
        if is_needed or time.monotonic() - self._used < self._rest_seconds:
            self.refill_soon()
            return
        await self._end_all()
        if self._rest is not None:
            await self._rest()

    def refill_soon(self) -> None:
        """Start the missing ones in the background."""
        if self._refilling is None or self._refilling.done():
            self._refilling = asyncio.create_task(self._refill(), name="refill spares")

    async def _refill(self) -> None:
        while len(self._ready) < self._count:
            await asyncio.sleep(_PAUSE_SECONDS)
            await self._prepare()
            if not self._may_launch():
                return
            launching = self.launching = asyncio.get_running_loop().create_future()
            launched = None
            try:
                launched = await self._launch()
                if not launched.provisioner.starts_when_attached:
                    await launched.kernel.execute(
                        _NOTHING,
                        show=lambda _: None,
                        seconds=_NOTHING_SECONDS,
                        is_own=True,
                        is_silent=True,
                    )
            except errors.BotError:
                _log.exception("no spare kernel could be started")
                return
            finally:
                if launched is not None:
                    self._ready.append(launched)
                self.launching = None
                launching.set_result(None)

    async def close(self) -> None:
        """End the ready ones, and start no more."""
        self._count = 0
        await self._end_all()

    async def _end_all(self) -> None:
        """Break off what is being started, and end the ready ones."""
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.gather(self._refilling, return_exceptions=True)
        ready, self._ready = self._ready, []
        await asyncio.gather(*map(self._end, ready))
