"""Spare kernels, started and confined in advance, and the check whether one more kernel fits."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable

from interpreter_bot import errors, settings
from interpreter_bot.kernels import live_kernels, machines

_IDLE_KERNEL_BYTES = 64 * settings.MIB

_log = logging.getLogger(__name__)

# Share of the machine's memory for kernels; the rest is for the bot, its store and the disk cache.
_MEMORY_SHARE = 0.8
# Pause before a spare starts, so that the session that has just taken one gets the cores first.
_PAUSE_SECONDS = 0.05


def room_bytes(kernel: live_kernels.Kernel) -> int:
    """Return the memory that a live kernel counts for: at least the minimum of an idle one."""
    return max(kernel.provisioner.meter().counted_bytes() or 0, _IDLE_KERNEL_BYTES)


def has_room(
    config: settings.Kernels,
    kernels: Iterable[live_kernels.Kernel],
    starting_or_ending_count: int,
    *,
    machine_bytes: int = 0,
) -> bool:
    """Return whether one more kernel fits, by the configured number or share of memory.

    `kernels` are those of sessions; dead ones take no room. Spares and kernels that are starting or
    ending are only counted, in `starting_or_ending_count`. `machine_bytes` 0 means this machine's
    memory.
    """
    alive_kernels = [kernel for kernel in kernels if kernel.is_alive]
    idle_count = starting_or_ending_count + 1
    if config.concurrent:
        return len(alive_kernels) + idle_count <= config.concurrent
    budget_bytes = (machine_bytes or machines.memory_bytes()) * _MEMORY_SHARE
    used_bytes = sum(map(room_bytes, alive_kernels))
    return used_bytes + idle_count * _IDLE_KERNEL_BYTES <= budget_bytes


class Spares:
    """Spare kernels, replaced as they are taken and as room allows."""

    def __init__(
        self,
        count: int,
        *,
        launch: Callable[[], Awaitable[live_kernels.Kernel]],
        may_launch: Callable[[], bool],
        wait_until_preloaded: Callable[[], Awaitable[object]],
        end_kernel: Callable[[live_kernels.Kernel], Awaitable[None]],
        rest_seconds: float = 0.0,
        stop_server: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Start no spare yet; later keep `count` ready.

        `may_launch` says whether one more kernel fits and delays no session. `wait_until_preloaded`
        waits until the fork server has imported everything. After `rest_seconds` in which nobody
        used a kernel, all spares end and `stop_server` is called; 0 means never.
        """
        self._target_count = count
        self._launch = launch
        self._may_launch = may_launch
        self._wait_until_preloaded = wait_until_preloaded
        self._end_kernel = end_kernel
        self._stop_server = stop_server
        self._rest_seconds = rest_seconds or math.inf
        self._last_used = time.monotonic()
        self._ready_kernels: list[live_kernels.Kernel] = []
        self.pending_launch: asyncio.Future[None] | None = None
        """Done once the starting spare is ready or has failed; None while none starts."""
        self._refill_task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Count the spares that are ready, without the starting one."""
        return len(self._ready_kernels)

    @property
    def kernel_count(self) -> int:
        """How many spares exist, including the starting one."""
        return len(self._ready_kernels) + (self.pending_launch is not None)

    async def take(self) -> live_kernels.Kernel | None:
        """Return a live spare, if there is one."""
        while self._ready_kernels:
            kernel = self._ready_kernels.pop()
            if kernel.is_alive:
                return kernel
            _log.warning("a spare kernel had died")
            await self._end_kernel(kernel)
        return None

    async def maintain(self, *, last_used: float, is_needed: bool) -> None:
        """Start missing spares, or end all if no session has used a kernel for `rest_seconds`.

        `last_used`, in monotonic seconds, is when a live kernel was used last.
        """
        self._last_used = max(self._last_used, last_used)
        if is_needed or time.monotonic() - self._last_used < self._rest_seconds:
            self.refill_soon()
            return
        await self._end_all()
        if self._stop_server is not None:
            await self._stop_server()

    def refill_soon(self) -> None:
        """Start missing spares in the background."""
        if self._refill_task is None or self._refill_task.done():
            self._refill_task = asyncio.create_task(self._refill(), name="refill spares")

    async def _refill(self) -> None:
        while len(self._ready_kernels) < self._target_count:
            await asyncio.sleep(_PAUSE_SECONDS)
            await self._wait_until_preloaded()
            if not self._may_launch():
                return
            launch = self.pending_launch = asyncio.get_running_loop().create_future()
            try:
                self._ready_kernels.append(await self._launch())
            except errors.BotError:
                _log.exception("no spare kernel could be started")
                return
            finally:
                self.pending_launch = None
                launch.set_result(None)

    async def close(self) -> None:
        """End all spares, and start no more."""
        self._target_count = 0
        await self._end_all()

    async def _end_all(self) -> None:
        """Cancel the start of a spare, and end the ready ones."""
        if self._refill_task is not None:
            self._refill_task.cancel()
            await asyncio.gather(self._refill_task, return_exceptions=True)
        kernels, self._ready_kernels = self._ready_kernels, []
        await asyncio.gather(*map(self._end_kernel, kernels))
