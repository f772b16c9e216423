"""Pool of kernels, one per session: started on demand or taken from spares, ended when idle."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from interpreter_bot import session_variables, settings, values
from interpreter_bot.kernels import (
    admissions,
    kernel_capacity,
    launchers,
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

# Waits shorter than this are not reported; longer ones are checked this often for a new reason.
_REPORT_SECONDS = 1.0
_GRACE_SECONDS = 4.0
# A host process may take twice as long to end.
_MAX_END_SECONDS = 30.0

OnKernelLoss: TypeAlias = Callable[[str, live_kernels.Kernel, str], Awaitable[None]]
"""Callback with a session's key, its former kernel, and the reason, a sentence."""

FileWork: TypeAlias = Callable[[workspaces.Workspace], Awaitable[None]]
"""Function that changes the files of a session; the session has no kernel while it runs."""

OnWait: TypeAlias = Callable[[str], None]
"""Callback for long waits: gets each new reason, a sentence, and an empty text at the end."""


class Lease:
    """Lease of one session's kernel, which is neither evicted nor reaped meanwhile."""

    def __init__(self, pool: Pool, key: str) -> None:
        self._pool, self._key = pool, key

    async def kernel(self, *, on_wait: OnWait | None = None) -> live_kernels.Kernel:
        """Return the session's live kernel; may be called repeatedly; see `Pool.take`."""
        return await self._pool.take(self._key, on_wait)


class Pool:
    """All kernels of one bot. Use `open`."""

    def __init__(
        self,
        config: settings.Settings,
        setup: machine_setup.MachineSetup,
        all_workspaces: workspaces.Workspaces,
        session_snapshots: snapshots.Snapshots,
        *,
        grace_seconds: float,
        max_starts: int,
    ) -> None:
        self.settings = config
        """The settings in effect."""
        self._machine_setup = setup
        self._workspaces = all_workspaces
        self.snapshots = session_snapshots
        """The saved variables of its sessions."""
        self._grace_seconds = grace_seconds
        self._kernels: dict[str, live_kernels.Kernel] = {}
        self._starts: dict[str, asyncio.Task[live_kernels.Kernel]] = {}
        self._holders = kernel_capacity.LeaseHolders()
        self.on_loss: OnKernelLoss | None = None
        """Called when a session has lost its kernel, unless a person asked for that."""
        self._admissions = admissions.Admissions(max_starts)
        self._shutdowns = launchers.Shutdowns()
        self._reservations = kernel_capacity.RoomReservations(
            config.kernels,
            kernels=self._kernels,
            holders=self._holders,
            shutdowns=self._shutdowns,
            start_saving=self._start_saving,
            end_kernel=self.end_kernel,
        )
        self._spares = spares.Spares(
            config.kernels.spares,
            launch=self._launch_spare,
            wait_until_preloaded=setup.host_context.server.preloading_ended.wait,
            may_launch=lambda: (
                self._admissions.is_free and self._reservations.has_room(self._spares)
            ),
            end_kernel=self._shutdowns.end,
            rest_seconds=config.kernels.rest_seconds,
            stop_server=lambda: setup.stop_fork_server(self._has_sessions),
        )
        self._file_work: dict[str, asyncio.Task[None]] = {}
        self.locks = session_locks.SessionLocks()
        """Locks of the sessions that this process works for."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        config: settings.Settings,
        *,
        is_ephemeral: bool = False,
        grace_seconds: float = _GRACE_SECONDS,
        max_starts: int = 0,
        end_seconds: float = _MAX_END_SECONDS,
    ) -> AsyncIterator[Pool]:
        """Make the machine ready, and open a pool on it; see `machines.open_machine`."""
        async with (
            machines.open_machine(config, is_ephemeral=is_ephemeral) as machine,
            cls.open_on(
                machine,
                grace_seconds=grace_seconds,
                max_starts=max_starts,
                end_seconds=end_seconds,
            ) as pool,
        ):
            yield pool

    @classmethod
    @contextlib.asynccontextmanager
    async def open_on(
        cls,
        machine: machines.Machine,
        *,
        grace_seconds: float = _GRACE_SECONDS,
        max_starts: int = 0,
        end_seconds: float = _MAX_END_SECONDS,
    ) -> AsyncIterator[Pool]:
        """Open a pool on a machine, and start the first spares.

        Args:
            machine: has the settings.
            grace_seconds: time for code to react to an interrupt before its kernel is killed.
            max_starts: kernels that start at the same time; 0 means one more than the cores.
            end_seconds: time to save everything unsaved at the end.

        Raises:
            SettingsError: a directory or the provisioner cannot be used.
        """
        config = machine.config
        async with machine_setup.MachineSetup.open(machine) as setup:
            session_snapshots = await snapshots.Snapshots.open(
                config, is_used=not machine.is_ephemeral
            )
            pool = cls(
                config,
                setup,
                machine.all_workspaces,
                session_snapshots,
                grace_seconds=grace_seconds,
                max_starts=max_starts,
            )
            try:
                async with watchdog_loop.run_watchdog(
                    pool.kernels, pool._starts, config, session_snapshots
                ):
                    pool._spares.refill_soon()
                    try:
                        yield pool
                    finally:
                        await session_snapshots.save_all(pool.kernels.values(), end_seconds)
            finally:
                await pool._close()

    @property
    def packages(self) -> Mapping[str, str]:
        """Packages that code in a kernel may import, with their versions."""
        return self._machine_setup.host_context.server.packages

    @property
    def sandbox_level(self) -> values.SandboxLevel:
        """How strong the walls between kernels are."""
        return self._machine_setup.host_context.level

    @property
    def has_doors(self) -> bool:
        """Whether kernels have doors: ports where the bot answers their code."""
        return bool(self._machine_setup.host_context.doors)

    @property
    def kernels(self) -> MappingProxyType[str, live_kernels.Kernel]:
        """Live kernels, by session."""
        return MappingProxyType(self._kernels)

    @property
    def sessions(self) -> tuple[str, ...]:
        """Sessions that have a kernel, or whose kernel is starting."""
        return (*self._kernels, *self._starts)

    @property
    def spare_count(self) -> int:
        """How many spare kernels are ready."""
        return len(self._spares)

    async def workspace(self, key: str) -> workspaces.Workspace:
        """Return a session's files, which outlive its kernels; wait until no file work runs."""
        while (task := self._file_work.get(key)) is not None:
            await asyncio.wait({task})
        return await self._workspaces.ensure(key)

    async def stored_workspaces(self) -> tuple[workspaces.Workspace, ...]:
        """List all workspaces, also of sessions without a kernel."""
        return await self._workspaces.list_all()

    @contextlib.asynccontextmanager
    async def lease(self, key: str, *, person: str = "") -> AsyncIterator[Lease]:
        """Lease a session's kernel: a leased kernel is neither evicted nor reaped.

        If the session has no kernel, its start begins now; if the start fails, `Lease.kernel` tries
        again. Limits and explicit requests still end a leased kernel. From now on the kernel counts
        for `person`; see `kernel_capacity`.
        """
        self._holders.add(key, person)
        try:
            if not self._has_kernel(key):
                self._ensure_start(key)
            elif person:
                self._kernels[key].person = person
            yield Lease(self, key)
        finally:
            self._holders.remove(key, person)
            self._reservations.note_change()
            if (kernel := self._kernels.get(key)) is not None:
                kernel.last_used = time.monotonic()

    async def take(self, key: str, on_wait: OnWait | None = None) -> live_kernels.Kernel:
        """Return the session's kernel; without a `lease` it may be evicted whenever it is idle.

        If an earlier kernel died, the `loss_notice` of the new one says so.

        Raises:
            KernelStartError: no kernel could be started.
            PoolFullError: there is no room for a kernel, and nobody has a lease.
        """
        # A kernel takes no code before its variables are back.
        if self._has_kernel(key) and key not in self._starts:
            kernel = self._kernels[key]
            kernel.last_used = time.monotonic()
            return kernel
        start = self._ensure_start(key)
        if on_wait is not None:
            await self._report_wait(key, start, on_wait)
        # The cancellation of one caller must not take the kernel from the others.
        return await asyncio.shield(start)

    async def _report_wait(self, key: str, start: asyncio.Future[Any], on_wait: OnWait) -> None:
        """Call `on_wait` with each new reason for the wait, until the start ends."""
        reported_reason = ""
        try:
            while not (await asyncio.wait({start}, timeout=_REPORT_SECONDS))[0]:
                starts_ahead = self._admissions.starts_ahead(key)
                reason = self._reservations.wait_reason(key) or (
                    run_words.starting_python(starts_ahead) if starts_ahead else ""
                )
                if reason != reported_reason:
                    reported_reason = reason
                    on_wait(reason)
        finally:
            if reported_reason:
                on_wait("")

    def _has_kernel(self, key: str) -> bool:
        kernel = self._kernels.get(key)
        is_alive = kernel is not None and kernel.is_alive
        return is_alive and key not in self._file_work

    def _ensure_start(self, key: str) -> asyncio.Task[live_kernels.Kernel]:
        """Start a session's kernel, or return the start under way."""
        start = self._starts.get(key)
        if start is None:
            file_work = self._file_work.get(key)
            start = asyncio.create_task(
                self._start(key, file_work=file_work), name=f"start kernel of {key}"
            )
            self._starts[key] = start
            start.add_done_callback(functools.partial(self._on_started, key))
        return start

    def _on_started(self, key: str, start: asyncio.Task[live_kernels.Kernel]) -> None:
        self._starts.pop(key, None)
        self._unlock_if_unused(key)
        self._spares.refill_soon()
        if not start.cancelled() and (error := start.exception()) is not None:
            # Callers get the exception; it is also logged, in case no caller waits any more.
            _log.warning("no kernel could be started: %s", error)

    async def _start(
        self, key: str, *, file_work: asyncio.Task[None] | None
    ) -> live_kernels.Kernel:
        if file_work is not None:
            # Otherwise the files of the new kernel would be deleted with the old ones.
            await asyncio.wait({file_work})
        # The files change their owner only after the former kernel's last process has ended.
        await self._shutdowns.wait_for(key)
        if (former_kernel := self._kernels.get(key)) is not None:
            await self.end_kernel(key, former_kernel.loss_reason)
        kernel = await self._obtain_kernel(key)
        if not await self.snapshots.restore(kernel):
            await self.end_kernel(key)
            kernel = await self._obtain_kernel(key)
            await self.snapshots.note_failed_restore(kernel)
        if former_kernel is not None:
            kernel.loss_notice = variable_words.new_python(reason=former_kernel.loss_reason)
        return kernel

    async def _obtain_kernel(self, key: str) -> live_kernels.Kernel:
        """Take a spare or start a kernel, and attach the session's files."""
        person = self._holders.person(key)
        room = await self._reservations.reserve(key, person, self._spares)
        kernel = room.spare
        try:
            if kernel is None:
                async with self._admissions.place(key, person):
                    kernel = await self._launch()
            try:
                workspace = self._workspaces.get(key)
                await self.locks.acquire(workspace)
                await self._machine_setup.attach(kernel, workspace, key)
            except BaseException:
                await self._shutdowns.end(kernel)
                raise
            kernel.last_used = time.monotonic()
            kernel.person = person
            self._kernels[key] = kernel
        finally:
            self._reservations.free(person)
        return kernel

    async def _launch(self) -> live_kernels.Kernel:
        await self._machine_setup.ensure_fork_server()
        return await launchers.launch(
            self._machine_setup.host_context, grace_seconds=self._grace_seconds
        )

    def _has_sessions(self) -> bool:
        return any((self._kernels, self._starts, self._file_work, self._shutdowns))

    async def _launch_spare(self) -> live_kernels.Kernel:
        async with self._admissions.place(""):
            return await self._launch()

    def _start_saving(self, key: str) -> asyncio.Task[None] | None:
        return self.snapshots.start_saving(self._kernels[key])

    async def end_kernel(self, key: str, reason: str = "") -> None:
        """End a session's kernel, if it has one, and unlock the session for other processes.

        `reason` is a sentence for people; it is empty if a person asked for the end.
        """
        kernel = self._kernels.pop(key, None)
        if kernel is None:
            return
        _log.info("a kernel ended: %s", reason or "as asked")
        kernel.kill_with_reason(values.Ending.STOPPED, reason or run_words.SESSION_ENDED)
        await self._shutdowns.end(kernel, key)
        if key not in self._kernels and key not in self._starts:
            await self.snapshots.tidy(kernel.workspace)
        if reason and self.on_loss is not None:
            await self.on_loss(key, kernel, reason)
        self._unlock_if_unused(key)

    def _unlock_if_unused(self, key: str) -> None:
        """Unlock a session for other processes, unless this one still works for it."""
        if not any(key in tasks for tasks in (self._kernels, self._starts, self._file_work)):
            self.locks.release(workspaces.Workspaces.name_of(key))

    async def reap(self, idle_seconds: float | None = None) -> int:
        """End kernels that died or were idle for too long, and return how many ended.

        `idle_seconds` replaces the limit of the settings.
        """
        await self._spares.maintain(
            last_used=self._reservations.last_used(), is_needed=self._has_sessions()
        )
        default_seconds = self.settings.kernels.idle_seconds
        cutoff = time.monotonic() - (default_seconds if idle_seconds is None else idle_seconds)
        reaps = [self._reap_if_idle(key, kernel, cutoff) for key, kernel in self._kernels.items()]
        # All at once: an end takes time, in which a person may start to use the next idle kernel.
        results = await asyncio.gather(*reaps, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                _log.error("a kernel was not ended", exc_info=result)
        return results.count(True)

    async def _reap_if_idle(self, key: str, kernel: live_kernels.Kernel, cutoff: float) -> bool:
        is_idle = kernel.last_used < cutoff and key not in self._holders
        is_due = not kernel.is_busy and (is_idle or not kernel.is_alive)
        if self._kernels.get(key) is not kernel or not is_due:
            return False
        if kernel.is_alive and self.snapshots.save_if_due(kernel):
            return False  # Its variables are being saved; the next call ends it.
        await self.end_kernel(
            key, run_words.STOPPED_WHEN_IDLE if kernel.is_alive else kernel.loss_reason
        )
        return True

    async def end_spares(self) -> None:
        """End all spare kernels, and start no more."""
        await self._spares.close()

    async def save_variables(self, key: str) -> None:
        """Save the variables of an unused live session, if code ran since the last save."""
        await self.snapshots.save(self._kernels[key])

    async def saved_variables(self, key: str) -> session_variables.SavedVariables | None:
        """Return which variables a session's next kernel will restore; None if there are none."""
        snapshot = await self.snapshots.find(await self._workspaces.ensure(key))
        return snapshot.summary if snapshot is not None else None

    async def release(self, key: str) -> None:
        """End a session's kernel and delete its saved variables, at a person's request."""
        await self.run_without_kernel(key, self._delete_variables)

    async def forget(self, key: str) -> None:
        """End a session's kernel and delete its files; a start meanwhile waits for the end."""
        await self.run_without_kernel(key, self._delete_session)

    async def run_without_kernel(self, key: str, work: FileWork) -> None:
        """End a session's kernel and run work on its files; concurrent calls run in order."""
        # Later starts wait for this task, so it must wait only for earlier tasks.
        tasks = (self._file_work.get(key), self._starts.get(key))
        earlier_tasks = {task for task in tasks if task is not None}
        task = asyncio.create_task(
            self._run_file_work(key, earlier_tasks, work), name=f"file work of {key}"
        )
        self._file_work[key] = task
        task.add_done_callback(functools.partial(self._on_file_work_ended, key))
        await asyncio.shield(task)

    async def _run_file_work(
        self, key: str, earlier_tasks: Collection[asyncio.Task[Any]], work: FileWork
    ) -> None:
        """Wait for the session's earlier tasks, end its kernel, and run the work."""
        if earlier_tasks:
            await asyncio.wait(earlier_tasks)
        workspace = self._workspaces.get(key)
        # Another process may have a kernel of this session.
        await self.locks.acquire(workspace)
        await self.end_kernel(key)
        await work(workspace)

    def _on_file_work_ended(self, key: str, task: asyncio.Task[None]) -> None:
        if self._file_work[key] is task:
            del self._file_work[key]
        self._unlock_if_unused(key)

    async def _delete_variables(self, workspace: workspaces.Workspace) -> None:
        await self.snapshots.forget(workspace)
        await self._machine_setup.forget(workspace)

    async def _delete_session(self, workspace: workspaces.Workspace) -> None:
        await self._delete_variables(workspace)
        await workspace.remove()
        # The locked directory is deleted; the session's next kernel locks a new one.
        self.locks.release(workspace.name)

    async def _close(self) -> None:
        for task in (starts := list(self._starts.values())):
            task.cancel()
        await asyncio.gather(*starts, return_exceptions=True)
        kernels = list(self._kernels.values())
        self._kernels.clear()
        ends = [self._spares.close(), *map(self._shutdowns.end, kernels), *self._file_work.values()]
        results = await asyncio.gather(*ends, return_exceptions=True)
        for result in [*results, *await self._shutdowns.wait_for_all()]:
            if isinstance(result, BaseException):
                _log.error("a kernel was not ended", exc_info=result)
        self.locks.close()
