"""Pool of kernels by session: started once for all, spares ready ahead, reaped when idle."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from interpreter_bot import session_variables, settings, values
from interpreter_bot.kernels import (
    admissions,
    kernel_capacity,
    launchers,
    leases,
    live_kernels,
    machine_setup,
    machines,
    snapshots,
    spares,
    watchdog_loop,
)
from interpreter_bot.kernels.files import session_locks, workspaces
from interpreter_bot.wording import run_words, variable_words

_log = logging.getLogger(__name__)

# A shorter wait need not be reported, nor a change more often than this.
_REPORT_SECONDS = 1.0

Loss: TypeAlias = Callable[[str, live_kernels.Kernel, str], Awaitable[None]]
"""Callback with a session's key, its former kernel, and the reason, a sentence."""

FileWork: TypeAlias = Callable[[workspaces.Workspace], Awaitable[None]]
"""Changes the files of a session, which has no kernel meanwhile."""


class Pool:
    """All kernels of one bot. Use `open`."""

    def __init__(
        self,
        config: settings.Settings,
        host: machine_setup.MachineSetup,
        files: workspaces.Workspaces,
        saved: snapshots.Snapshots,
    ) -> None:
        self.settings = config
        """Those in effect."""
        self._host = host
        self._workspaces = files
        self.snapshots = saved
        """What is kept of its sessions' variables."""
        self._launcher = launchers.Launcher(config.kernels, host.host_context)
        self._live: dict[str, launchers.LaunchedKernel] = {}
        self._starting: dict[str, asyncio.Task[launchers.LaunchedKernel]] = {}
        self._holders = leases.Holders()
        self.on_loss: Loss | None = None
        """Called when a session has lost its kernel, unless a person asked for that."""
        self._admissions = admissions.Admissions(config.kernels.starts)
        self._shutdowns = launchers.Shutdowns()
        self._rooms = kernel_capacity.RoomReservations(
            config.kernels,
            live=self._live,
            holders=self._holders,
            shutdowns=self._shutdowns,
            save=self._begin_saving,
            end_kernel=self.end_kernel,
        )
        self._spares = spares.Spares(
            config.kernels.spares,
            launch=self._launch_spare,
            prepare=host.host_context.server.is_complete.wait,
            may_launch=lambda: self._admissions.is_free and self._rooms.has_room(self._spares),
            end=self._shutdowns.end,
            rest_seconds=config.kernels.rest_seconds,
            rest=lambda: host.rest(self._is_wanted),
        )
        self._forgetting: dict[str, asyncio.Task[None]] = {}
        self.locks = session_locks.SessionLocks()
        """The sessions that are this process's."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, config: settings.Settings, *, is_ephemeral: bool = False
    ) -> AsyncIterator[Pool]:
        """Make the machine ready, and open a pool on it; see `machines.opened`."""
        async with (
            machines.opened(config, is_ephemeral=is_ephemeral) as machine,
            cls.on(machine) as pool,
        ):
            yield pool

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, machine: machines.Machine) -> AsyncIterator[Pool]:
        """Open a pool on a machine, and start the first spares.

        Raises:
            SettingsError: a directory or the provisioner cannot be used.
        """
        config = machine.config
        async with machine_setup.MachineSetup.open(machine) as host:
            saved = await snapshots.Snapshots.open(config, is_used=not machine.is_ephemeral)
            pool = cls(config, host, machine.files, saved)
            try:
                async with watchdog_loop.watching(pool.live, pool._starting, config, saved):
                    pool._spares.refill_soon()
                    try:
                        yield pool
                    finally:
                        await saved.save_all(pool.live.values())
            finally:
                await pool._close()

    @property
    def packages(self) -> Mapping[str, str]:
        """Packages that code in a kernel may import, with their versions."""
        return self._host.host_context.server.packages

    @property
    def sandbox_level(self) -> values.SandboxLevel:
        """What keeps the kernels apart."""
        return self._host.host_context.level

    @property
    def has_doors(self) -> bool:
        """Whether the bot can listen where code of the kernels connects."""
        return bool(self._host.host_context.doors)

    @property
    def live(self) -> MappingProxyType[str, launchers.LaunchedKernel]:
        """Live kernels, by session."""
        return MappingProxyType(self._live)

    @property
    def sessions(self) -> tuple[str, ...]:
        """Sessions that have a kernel, or are about to."""
        return (*self._live, *self._starting)

    @property
    def spare_count(self) -> int:
        """How many spare kernels are ready."""
        return len(self._spares)

    async def workspace(self, key: str) -> workspaces.Workspace:
        """Return a session's files; they outlive its kernels. While they are deleted, it waits."""
        while (forgetting := self._forgetting.get(key)) is not None:
            await asyncio.wait({forgetting})
        return await self._workspaces.of(key)

    async def stored_workspaces(self) -> tuple[workspaces.Workspace, ...]:
        """List all workspaces, also of sessions without a kernel."""
        return await self._workspaces.existing()

    @contextlib.asynccontextmanager
    async def lease(self, key: str, *, person: str = "") -> AsyncIterator[leases.Lease]:
        """Lease a session's kernel: while a lease is held, it is neither evicted nor reaped.

        If the session has none, its start begins now; should that fail, `Lease.kernel` tries again.
        Limits, and requests to end it, still end a leased kernel.

        Args:
            key: of the session.
            person: whose kernel it is from now on, as `kernel_capacity` tells people apart.
        """
        self._holders.add(key, person)
        try:
            if not self._has_kernel(key):
                self._begin(key)
            elif person:
                self._live[key].person = person
            yield leases.Lease(functools.partial(self.take, key))
        finally:
            self._holders.remove(key, person)
            self._rooms.note_change()
            if (launched := self._live.get(key)) is not None:
                launched.kernel.last_used = time.monotonic()

    async def take(self, key: str, waiting: leases.OnWait | None = None) -> live_kernels.Kernel:
        """Return the session's kernel; without a `lease` it may be evicted whenever it is idle.

        Its `announcement` says so where an earlier one died.

        Args:
            key: of the session.
            waiting: as in `leases.Lease.kernel`.

        Raises:
            KernelStartError: none could be started.
            PoolFullError: there is no room for one, and nobody has a lease.
        """
        # A kernel takes no code before its variables are back.
        if self._has_kernel(key) and key not in self._starting:
            kernel = self._live[key].kernel
            kernel.last_used = time.monotonic()
            return kernel
        starting = self._begin(key)
        if waiting is not None:
            await self._report_wait(key, starting, waiting)
        # The cancellation of one caller must not take the kernel from the others.
        return (await asyncio.shield(starting)).kernel

    async def _report_wait(
        self, key: str, starting: asyncio.Future[Any], waiting: leases.OnWait
    ) -> None:
        """Report what a start waits for whenever that changed, until it is done."""
        reported = ""
        try:
            while not (await asyncio.wait({starting}, timeout=_REPORT_SECONDS))[0]:
                ahead = self._admissions.ahead(key)
                sentence = self._rooms.wait(key) or (run_words.starting(ahead) if ahead else "")
                if sentence != reported:
                    reported = sentence
                    waiting(sentence)
        finally:
            if reported:
                waiting("")

    def _has_kernel(self, key: str) -> bool:
        launched = self._live.get(key)
        is_alive = launched is not None and launched.kernel.is_alive
        return is_alive and key not in self._forgetting

    def _begin(self, key: str) -> asyncio.Task[launchers.LaunchedKernel]:
        """Start a session's kernel, or return the start under way."""
        starting = self._starting.get(key)
        if starting is None:
            forgetting = self._forgetting.get(key)
            starting = asyncio.create_task(
                self._start(key, after=forgetting), name=f"start kernel of {key}"
            )
            self._starting[key] = starting
            starting.add_done_callback(functools.partial(self._started, key))
        return starting

    def _started(self, key: str, starting: asyncio.Task[launchers.LaunchedKernel]) -> None:
        self._starting.pop(key, None)
        self._leave(key)
        self._spares.refill_soon()
        if not starting.cancelled() and (error := starting.exception()) is not None:
            # Callers get the exception; should none wait any more, it is in the log.
            _log.warning("no kernel could be started: %s", error)

    async def _start(
        self, key: str, *, after: asyncio.Task[None] | None
    ) -> launchers.LaunchedKernel:
        if after is not None:
            # Its new files must not be deleted with the old ones.
            await asyncio.wait({after})
        # The owner of its files changes only when its last process is gone.
        await self._shutdowns.wait_for(key)
        if (former := self._live.get(key)) is not None:
            await self.end_kernel(key, former.kernel.loss_reason)
        launched = await self._obtain(key)
        if not await self.snapshots.restore(launched):
            await self.end_kernel(key)
            launched = await self._obtain(key)
            await self.snapshots.note_unread(launched)
        if former is not None:
            launched.kernel.announcement = variable_words.new_python(
                reason=former.kernel.loss_reason
            )
        return launched

    async def _obtain(self, key: str) -> launchers.LaunchedKernel:
        """Take a spare or start a kernel, and give it a session's files."""
        person = self._holders.person(key)
        room = await self._rooms.reserve(key, person, self._spares)
        launched = room.spare
        try:
            if launched is None:
                async with self._admissions.place(key, person):
                    launched = await self._launch()
            try:
                workspace = self._workspaces.named(key)
                await self.locks.take(workspace)
                await self._host.attach(launched, workspace, key)
            except BaseException:
                await self._shutdowns.end(launched)
                raise
            launched.kernel.last_used = time.monotonic()
            launched.person = person
            self._live[key] = launched
        finally:
            self._rooms.free(person)
        return launched

    async def _launch(self) -> launchers.LaunchedKernel:
        await self._host.revive()
        return await self._launcher.launch()

    def _is_wanted(self) -> bool:
        return any((self._live, self._starting, self._forgetting, self._shutdowns))

    async def _launch_spare(self) -> launchers.LaunchedKernel:
        async with self._admissions.place(""):
            return await self._launch()

    def _begin_saving(self, key: str) -> asyncio.Task[None] | None:
        return self.snapshots.begin_saving(self._live[key])

    async def end_kernel(self, key: str, reason: str = "") -> None:
        """End a session's kernel, if it has one, and let other processes have the session.

        Args:
            key: of the session.
            reason: why, a sentence for its people; empty if a person asked for it.
        """
        launched = self._live.pop(key, None)
        if launched is None:
            return
        _log.info("a kernel ended: %s", reason or "as asked")
        launched.kernel.kill_with_reason(values.Ending.STOPPED, reason or run_words.SESSION_ENDED)
        await self._shutdowns.end(launched, key)
        if key not in self._live and key not in self._starting:
            await self.snapshots.tidy(launched.workspace)
        if reason and self.on_loss is not None:
            await self.on_loss(key, launched.kernel, reason)
        self._leave(key)

    def _leave(self, key: str) -> None:
        """Let other processes have a session, unless anything of it is still here."""
        if not any(key in here for here in (self._live, self._starting, self._forgetting)):
            self.locks.leave(workspaces.Workspaces.name_of(key))

    async def reap(self, idle_seconds: float | None = None) -> int:
        """End kernels that died or were idle for too long; returns how many.

        Args:
            idle_seconds: how long that is; by default what the settings say.
        """
        await self._spares.tend(used=self._rooms.last_used(), is_needed=self._is_wanted())
        usual_seconds = self.settings.kernels.idle_seconds
        oldest = time.monotonic() - (usual_seconds if idle_seconds is None else idle_seconds)
        everyone = [self._reap(key, one, oldest) for key, one in self._live.items()]
        # At once: each end takes time, in which others may be taken again.
        results = await asyncio.gather(*everyone, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                _log.error("a kernel was not ended", exc_info=result)
        return results.count(True)

    async def _reap(self, key: str, launched: launchers.LaunchedKernel, oldest: float) -> bool:
        kernel = launched.kernel
        is_idle = kernel.last_used < oldest and key not in self._holders
        is_due = not kernel.is_busy and (is_idle or not kernel.is_alive)
        if self._live.get(key) is not launched or not is_due:
            return False
        if kernel.is_alive and self.snapshots.checkpoint(launched):
            return False  # The next time, with its variables saved.
        await self.end_kernel(
            key, run_words.STOPPED_WHEN_IDLE if kernel.is_alive else kernel.loss_reason
        )
        return True

    async def end_spares(self) -> None:
        """Have no more spare kernels."""
        await self._spares.close()

    async def save_variables(self, key: str) -> None:
        """Save those of a live session that nobody uses, if code ran since they were saved."""
        await self.snapshots.save(self._live[key])

    async def saved_variables(self, key: str) -> session_variables.SavedVariables | None:
        """Return what a session's next kernel will have of its variables; None if nothing."""
        saved = await self.snapshots.find(await self._workspaces.of(key))
        return saved.summary if saved is not None else None

    async def release(self, key: str) -> None:
        """End a session's kernel and forget its variables, at a person's request."""
        await self.let_go(key, self._forget)

    async def forget(self, key: str) -> None:
        """End a session's kernel and delete its files; a start in between waits."""
        await self.let_go(key, self._remove)

    async def let_go(self, key: str, work: FileWork) -> None:
        """End a session's kernel and do work on its files; of several, one after the other."""
        # Later starts wait for this task, so it must not wait for them.
        before = self._forgetting.get(key), self._starting.get(key)
        doing = asyncio.create_task(self._let_go(key, before, work), name=f"let go {key}")
        self._forgetting[key] = doing
        doing.add_done_callback(functools.partial(self._let_be, key))
        await asyncio.shield(doing)

    async def _let_go(
        self, key: str, before: Iterable[asyncio.Task[Any] | None], work: FileWork
    ) -> None:
        """Wait for what was under way before, and do it."""
        if under_way := set(filter(None, before)):
            await asyncio.wait(under_way)
        workspace = self._workspaces.named(key)
        # Another process may have its kernel.
        await self.locks.take(workspace)
        await self.end_kernel(key)
        await work(workspace)

    def _let_be(self, key: str, done: asyncio.Task[None]) -> None:
        if self._forgetting[key] is done:
            del self._forgetting[key]
        self._leave(key)

    async def _forget(self, workspace: workspaces.Workspace) -> None:
        await self.snapshots.forget(workspace)
        await self._host.forget(workspace)

    async def _remove(self, workspace: workspaces.Workspace) -> None:
        await self._forget(workspace)
        await workspace.remove()
        # What is locked is gone; who comes back locks what is there then.
        self.locks.leave(workspace.name)

    async def _close(self) -> None:
        for task in (starting := list(self._starting.values())):
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        live = list(self._live.values())
        self._live.clear()
        ends = [self._spares.close(), *map(self._shutdowns.end, live), *self._forgetting.values()]
        results = await asyncio.gather(*ends, return_exceptions=True)
        for result in [*results, *await self._shutdowns.wait_for_all()]:
            if isinstance(result, BaseException):
                _log.error("a kernel was not ended", exc_info=result)
        self.locks.close()
