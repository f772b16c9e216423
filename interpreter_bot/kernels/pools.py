"""Kernels by session: started once however many ask, a few ready ahead, let go when unused."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator
from types import MappingProxyType

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import executing, grounds, launching, watchdogs, workspaces

_log = logging.getLogger(__name__)

# A kernel that was just taken is about to be used; evicting it would lose the race for its taker.
_FRESH_SECONDS = 10.0
_REFILL_PAUSE_SECONDS = 0.05
_IDLE_KERNEL_BYTES = 64 * settings.MIB
_AS_ASKED = "The session was ended."
_RESTARTED = "A new Python was started, without the variables of the earlier one. {reason}"


class Pool:
    """All kernels of one bot. Use `open`."""

    def __init__(
        self, bot: settings.Settings, ground: grounds.Grounds, files: workspaces.Workspaces
    ) -> None:
        self._settings = bot
        self._ground = ground
        self._workspaces = files
        self._launcher = launching.Launcher(bot.kernels, ground.ground)
        self._live: dict[str, launching.Launched] = {}
        self._starting: dict[str, asyncio.Task[launching.Launched]] = {}
        self._spares: list[launching.Launched] = []
        self._let_go: dict[str, str] = {}
        self._refilling: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._ending_of: dict[str, asyncio.Task[None]] = {}
        self._is_closing = False

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, bot: settings.Settings, *, is_ephemeral: bool = False
    ) -> AsyncIterator[Pool]:
        """Clean up after a bot that died, start the fork server and the first spares.

        Args:
            bot: the settings in effect.
            is_ephemeral: no file of a session outlives this pool, or this process.

        Raises:
            SandboxError: the walls cannot be built here.
            KernelStartError: the kernels' Python cannot be used.
        """
        directory = bot.paths.data / "workspaces"
        if is_ephemeral:
            parent = bot.paths.data / "ephemeral"
            directory = await asyncio.to_thread(grounds.own_directory, parent)
        files = workspaces.Workspaces(directory, bot.limits)
        async with grounds.Grounds.open(bot, files, directory) as ground:
            pool = cls(bot, ground, files)
            watching = asyncio.create_task(
                watchdogs.watch(pool.live, bot.paths.data, bot.limits), name="watchdog"
            )
            watching.add_done_callback(_log_end)
            try:
                pool._refill_soon()
                yield pool
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                await pool._close()
                if is_ephemeral:
                    await asyncio.to_thread(grounds.remove, directory)

    @property
    def is_sandboxed(self) -> bool:
        """Whether there are walls around the kernels."""
        return self._settings.sandbox.enabled

    @property
    def live(self) -> MappingProxyType[str, launching.Launched]:
        """The kernels that sessions have, by session."""
        return MappingProxyType(self._live)

    @property
    def spare_count(self) -> int:
        """How many kernels stand by."""
        return len(self._spares)

    async def workspace(self, key: str) -> workspaces.Workspace:
        """Return a session's files; they outlive its kernels."""
        return await self._workspaces.of(key)

    async def take(self, key: str) -> executing.Kernel:
        """Return the session's kernel, starting one where it has none.

        Its `announcement` says so where an earlier one was lost.

        Raises:
            KernelStartError: none could be started.
            PoolFullError: every kernel is busy and no more fit.
        """
        launched = self._live.get(key)
        if launched is not None and launched.kernel.is_alive:
            launched.kernel.last_used = time.monotonic()
            return launched.kernel
        starting = self._starting.get(key)
        if starting is None:
            starting = asyncio.create_task(self._start(key), name=f"start kernel of {key}")
            self._starting[key] = starting
            starting.add_done_callback(functools.partial(self._started, key))
        # One asker going away must not take the kernel from the others.
        return (await asyncio.shield(starting)).kernel

    def _started(self, key: str, starting: asyncio.Task[launching.Launched]) -> None:
        self._starting.pop(key, None)
        if not starting.cancelled() and (error := starting.exception()) is not None:
            # Whoever waits is told; should nobody wait any more, it is not lost.
            _log.warning("no kernel could be started: %s", error)

    async def _start(self, key: str) -> launching.Launched:
        if (ending := self._ending_of.get(key)) is not None:
            # Its files change hands only when its last process is gone.
            await asyncio.wait({ending})
        reason = self._let_go.get(key, "")
        if (former := self._live.pop(key, None)) is not None:
            reason = reason or former.kernel.obituary
            # Kept until it has been said, should this start fail.
            self._let_go[key] = reason
            await self._end(former)
        workspace = await self._workspaces.of(key)
        launched = await self._take_spare()
        if launched is None:
            await self._make_room()
            await self._ground.revive()
            launched = await self._launcher.launch()
        try:
            await self._ground.attach(launched, workspace)
        except BaseException:
            await self._end(launched)
            raise
        self._let_go.pop(key, None)
        if reason:
            launched.kernel.announcement = _RESTARTED.format(reason=reason)
        launched.kernel.last_used = time.monotonic()
        self._live[key] = launched
        self._refill_soon()
        return launched

    async def _take_spare(self) -> launching.Launched | None:
        while self._spares:
            launched = self._spares.pop()
            if launched.kernel.is_alive:
                return launched
            _log.warning("a spare kernel had died")
            await self._end(launched)
        return None

    def _refill_soon(self) -> None:
        if self._refilling is None or self._refilling.done():
            self._refilling = asyncio.create_task(self._refill(), name="refill spares")

    async def _refill(self) -> None:
        """Bring the spares up to their number; a pause leaves the cores to whoever took one."""
        while len(self._spares) < self._settings.kernels.spares and not self._is_closing:
            await asyncio.sleep(_REFILL_PAUSE_SECONDS)
            if not self._has_room(1):
                return
            try:
                await self._ground.revive()
                self._spares.append(await self._launcher.launch())
            except errors.BotError:
                _log.exception("no spare kernel could be started")
                return

    def _count(self) -> int:
        return len(self._live) + len(self._spares) + len(self._starting)

    def _has_room(self, newcomers: int) -> bool:
        """Say whether kernels that are about to start fit beside those there are."""
        if self._settings.kernels.concurrent:
            return self._count() + newcomers <= self._settings.kernels.concurrent
        used = [launched.provisioner.memory_bytes() or 0 for launched in self._live.values()]
        idle = (len(self._spares) + len(self._starting) + newcomers) * _IDLE_KERNEL_BYTES
        budget = grounds.memory_bytes() * self._settings.kernels.memory_share
        return sum(max(size, _IDLE_KERNEL_BYTES) for size in used) + idle <= budget

    async def _make_room(self) -> None:
        """Let the longest idle kernels go until one more fits; never a busy one.

        Raises:
            PoolFullError: all are busy.
        """
        while not self._has_room(0):
            now = time.monotonic()
            idle = [
                (launched.kernel.last_used, key)
                for key, launched in self._live.items()
                if not launched.kernel.is_busy and now - launched.kernel.last_used > _FRESH_SECONDS
            ]
            if not idle:
                raise errors.PoolFullError
            await self._let(min(idle)[1], "It was let go to make room for others.")

    async def _let(self, key: str, reason: str) -> None:
        launched = self._live.pop(key, None)
        if launched is not None:
            self._let_go[key] = reason
            _log.info("a kernel ended: %s", reason or "as asked")
            launched.kernel.condemn(values.Ending.STOPPED, reason or _AS_ASKED)
            ending = asyncio.create_task(launched.close(), name="end kernel")
            self._ending_of[key] = ending
            ending.add_done_callback(functools.partial(self._ended, key))
            await self._to_the_end(ending)

    def _ended(self, key: str, ending: asyncio.Task[None]) -> None:
        if self._ending_of.get(key) is ending:
            del self._ending_of[key]

    async def _end(self, launched: launching.Launched) -> None:
        """Close a kernel, to the end even if whoever asked for it goes away."""
        await self._to_the_end(asyncio.create_task(launched.close(), name="end kernel"))

    async def _to_the_end(self, ending: asyncio.Task[None]) -> None:
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)

    async def reap(self) -> int:
        """Let kernels go that died, or that nobody used for long; returns how many."""
        self._refill_soon()
        oldest = time.monotonic() - self._settings.kernels.idle_seconds
        count = 0
        for key, launched in list(self._live.items()):
            kernel = launched.kernel
            # Each end takes time, in which any of the others may have been taken or replaced.
            if self._live.get(key) is not launched or kernel.is_busy:
                continue
            if not kernel.is_alive:
                await self._let(key, kernel.obituary)
            elif kernel.last_used < oldest:
                await self._let(key, "It was let go after it had not been used for a while.")
            else:
                continue
            count += 1
        return count

    async def release(self, key: str) -> None:
        """Let a session's kernel go, because somebody asked for it."""
        if (starting := self._starting.get(key)) is not None:
            await asyncio.wait({starting})
        await self._let(key, "")
        self._let_go.pop(key, None)

    async def forget(self, key: str) -> None:
        """Let a session's kernel go and delete its files."""
        await self.release(key)
        await (await self._workspaces.of(key)).remove()

    async def _close(self) -> None:
        self._is_closing = True
        tasks = [*self._starting.values(), *([self._refilling] if self._refilling else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        everyone = [*self._live.values(), *self._spares]
        self._live.clear()
        self._spares.clear()
        closing = [self._end(launched) for launched in everyone]
        for result in await asyncio.gather(*closing, *self._ending, return_exceptions=True):
            if isinstance(result, BaseException):
                _log.error("a kernel was not closed", exc_info=result)
        self._launcher.close()


def _log_end(watching: asyncio.Task[None]) -> None:
    """Log that a task ended which was meant to be eternal."""
    if not watching.cancelled():
        _log.critical(
            "the watchdog ended; limits are no longer watched", exc_info=watching.exception()
        )
