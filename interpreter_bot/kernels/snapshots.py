"""Snapshots of sessions' variables: saved from idle sessions, restored into their next kernel.

A kernel writes and reads snapshots itself, in a directory of its session. The bot unpickles
nothing, and treats a kernel's reports as hostile (`snapshot_manifests`). The pointer to the current
generation is signed together with the session's name (`snapshot_generations`), so a session never
uses another session's snapshot. The signed record also names the kernel and its number of
executions, so that an older state never passes for the present one.

When the bot ends, it saves all changed sessions within a bounded time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

from interpreter_bot import errors, kernel_calls, settings, values
from interpreter_bot.kernels import (
    live_kernels,
    snapshot_generations,
    snapshot_manifests,
)
from interpreter_bot.kernels.files import workspace_io, workspaces
from interpreter_bot.wording import variable_words

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 30.0
# Least pause before a cheap save: code that follows sooner would only interrupt the save.
_MIN_IDLE_SECONDS: Final = 1.0
# Sessions that take longer to save are saved during at most a twentieth of the time, or when idle.
_QUICK_SAVE_SECONDS: Final = 2.0
_MAX_BUSY_KERNELS_PER_CORE: Final = 2
# A whole save may take this multiple of the time for writing, because it also reads data back.
_MAX_WRITING_FACTOR: Final = 3
_WRITING_GRACE_SECONDS: Final = 5.0
# The kernel itself only forks; a child process saves.
_FORK_SECONDS: Final = 10.0
# Longest pause between two looks for the manifest.
_MAX_POLL_SECONDS: Final = 0.05
# Time to save the variables of one session, and to restore them.
_SAVE_SECONDS: Final = 60.0
_SLOT_SECONDS: Final = 5.0
_MAX_FAILURES_LISTED: Final = 4


class Snapshots:
    """All snapshots of one pool. Use `open`.

    Attributes:
        generations: the saved variables on disk.
        on_saved: called for each session whose variables were saved.
        busy_count: number of kernels that run code or start, as counted by the watchdog.
    """

    def __init__(self, config: settings.Settings, key: snapshot_generations.SnapshotKey) -> None:
        self._config = config.snapshots
        self._idle_seconds = config.kernels.freeze_seconds or _IDLE_SECONDS
        self._key = key
        self.generations = snapshot_generations.Generations(config.snapshots, key)
        self.busy_count = 0
        self.on_saved: Callable[[workspaces.Workspace], None] = lambda _: None
        self._save_tasks: dict[str, asyncio.Task[None]] = {}
        cores = os.cpu_count() or 1
        self._slots = asyncio.Semaphore(cores)
        self._max_busy_kernels = _MAX_BUSY_KERNELS_PER_CORE * cores
        # By workspace: deletions and changes of the current generation exclude each other.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @classmethod
    async def open(cls, config: settings.Settings, *, is_used: bool) -> Snapshots:
        """Read or create the key that signs snapshots; `is_used` is false if no files are kept.

        Raises:
            SettingsError: the key cannot be used.
        """
        if not (is_used and config.sandbox.enabled and config.snapshots.bytes):
            return cls(config, snapshot_generations.SnapshotKey())
        return cls(config, await asyncio.to_thread(snapshot_generations.load_key, config))

    @property
    def is_used(self) -> bool:
        """Whether variables are saved at all."""
        return bool(self._key.secret)

    def is_due(self, kernel: live_kernels.Kernel) -> bool:
        """Return whether an idle session should be saved now."""
        idle_seconds = time.monotonic() - kernel.last_used
        if idle_seconds < min(_MIN_IDLE_SECONDS, self._idle_seconds) or not self._is_unsaved(
            kernel
        ):
            return False
        return idle_seconds >= self._idle_seconds or self._is_cheap(kernel)

    def _is_cheap(self, kernel: live_kernels.Kernel) -> bool:
        """Return whether a session can be saved after each execution without harm."""
        config = self._config
        return (
            config.checkpoints > 0
            and self.busy_count
            <= self._max_busy_kernels  # else saving would slow down people's code
            and kernel.is_saved_quickly(_QUICK_SAVE_SECONDS)
            and (kernel.provisioner.meter().counted_bytes() or 0) <= config.checkpoint_bytes
        )

    def save_if_due(self, kernel: live_kernels.Kernel) -> bool:
        """Start to save a session if a save is due; return whether anything is still unsaved."""
        if self.is_due(kernel):
            self._start_saving(kernel, _SAVE_SECONDS)
        return kernel.id in self._save_tasks or self._is_unsaved(kernel)

    def start_saving(self, kernel: live_kernels.Kernel) -> asyncio.Task[None] | None:
        """Start to save a session; None if nothing is new, or it cannot be saved."""
        if self._is_unsaved(kernel):
            self._start_saving(kernel, _SAVE_SECONDS)
        return self._save_tasks.get(kernel.id)

    async def save(
        self, kernel: live_kernels.Kernel, *, max_wait_seconds: float | None = None
    ) -> None:
        """Save a session now if anything is new; with a bounded wait, only if that is cheap."""
        may_save = max_wait_seconds is None or self._is_cheap(kernel)
        save_task = self.start_saving(kernel) if may_save else self._save_tasks.get(kernel.id)
        if save_task is not None:
            await asyncio.wait({save_task}, timeout=max_wait_seconds)

    def interrupt(self, kernel: live_kernels.Kernel) -> bool:
        """Cancel the save of a session; return whether there was one."""
        save_task = self._save_tasks.get(kernel.id)
        return save_task is not None and save_task.cancel()

    async def save_all(self, kernels: Iterable[live_kernels.Kernel], seconds: float) -> None:
        """Save all changed sessions before the bot ends, in at most that time."""
        for kernel in kernels:
            if self._is_unsaved(kernel):
                self._start_saving(kernel, seconds / _MAX_WRITING_FACTOR)
        if self._save_tasks:
            await asyncio.wait(self._save_tasks.values(), timeout=seconds)
        if unfinished := list(self._save_tasks.values()):
            _log.warning("there was no time to save %d sessions", len(unfinished))
            for task in unfinished:
                task.cancel()
            await asyncio.wait(unfinished)

    async def find(self, workspace: workspaces.Workspace) -> snapshot_generations.Snapshot | None:
        """Return a session's snapshot; None if there is no valid one, or it cannot be read."""
        try:
            return await self._find(workspace)
        except errors.BotError:
            _log.exception("the snapshot of session %s cannot be read", workspace.name)
            return None

    async def _find(
        self, workspace: workspaces.Workspace | None
    ) -> snapshot_generations.Snapshot | None:
        if not self.is_used or workspace is None:
            return None
        return await workspace_io.in_thread(self.generations.find, workspace)

    async def tidy(self, workspace: workspaces.Workspace | None) -> None:
        """Delete unneeded files of saved variables, of a session without a kernel."""
        if workspace is None:
            return
        work = self.generations.prune if self.is_used else snapshot_generations.delete_all
        async with self.lock(workspace):
            try:
                await workspace_io.in_thread(work, workspace)
            except errors.BotError:
                _log.exception("variables of session %s cannot be tidied", workspace.name)

    def lock(self, workspace: workspaces.Workspace) -> asyncio.Lock:
        """Return the lock to hold while a session's saved variables change."""
        return self._locks.setdefault(workspace.name, asyncio.Lock())

    async def restore(self, kernel: live_kernels.Kernel) -> bool:
        """Restore saved variables into a session's new kernel; return whether it is still alive.

        `restored_variables` of the kernel lists the restored ones, `restore_notice` the others.
        """
        try:
            await self.tidy(kernel.workspace)
            snapshot = await self._find(kernel.workspace)
        except errors.BotError:
            _log.exception("the saved variables of a session cannot be read")
            _keep_saved_variables(kernel, variable_words.NOT_READ_NOW)
            return True
        kernel.snapshot_numbers.add(snapshot.number if snapshot is not None else 0)
        if snapshot is None:
            await self._drop_unreadable(kernel)
            return True
        code = kernel_calls.restore_variables(snapshot.number)
        finished, answer = await kernel.run_bot_code(code, seconds=_SAVE_SECONDS)
        if not kernel.is_alive:
            # If the bot ended it, the snapshot is not to blame.
            if finished.ending is not values.Ending.STOPPED:
                await self._note_death(snapshot)
            return False
        if finished.ending is not values.Ending.OK:
            _log.warning("variables were not restored: %s", finished)
            _keep_saved_variables(kernel, finished.reason)
            return True
        try:
            await self._note_restored(kernel, snapshot, answer)
        except errors.BotError:
            _log.exception("it is unknown which variables were restored")
            _keep_saved_variables(kernel, "")
        return True

    async def _drop_unreadable(self, kernel: live_kernels.Kernel) -> None:
        """Delete variables that are damaged or of another version, and make the kernel say so."""
        if kernel.workspace is None or not self.is_used:
            return
        try:
            async with self.lock(kernel.workspace):
                was_dropped = await workspace_io.in_thread(
                    self.generations.drop_unreadable, kernel.workspace
                )
        except errors.BotError:
            _log.exception("it is unknown whether variables were saved")
            return
        if was_dropped:
            kernel.restore_notice = variable_words.SAVED_VARIABLES_UNREADABLE

    async def note_failed_restore(self, kernel: live_kernels.Kernel) -> None:
        """Make a kernel tell people that the former one crashed while restoring variables."""
        try:
            is_saved = await self._find(kernel.workspace) is not None
        except errors.BotError:
            _log.exception("it is not known what is saved of a session")
            is_saved = True
        if is_saved:
            _keep_saved_variables(kernel, variable_words.CRASHED_READING)
        else:
            kernel.snapshot_numbers.add(0)
            kernel.restore_notice = variable_words.SAVED_VARIABLES_UNREADABLE

    async def forget(self, workspace: workspaces.Workspace) -> None:
        """Delete the snapshot of a session without a kernel."""
        await workspace_io.in_thread(snapshot_generations.delete_all, workspace)

    async def _note_restored(
        self, kernel: live_kernels.Kernel, snapshot: snapshot_generations.Snapshot, answer: str
    ) -> None:
        """Record which variables a kernel restored; `answer` lists those that failed."""
        failures, summary = snapshot_manifests.read_failures(answer), snapshot.summary
        kernel.restored_variables = dataclasses.replace(
            summary,
            kept_count=max(summary.kept_count - len(failures), 0),
            lost=(*failures, *summary.lost),
            lost_count=summary.lost_count + len(failures),
        )
        if failures:
            failure_list = ", ".join(
                f"{name} ({reason})" for name, reason in failures[:_MAX_FAILURES_LISTED]
            )
            kernel.restore_notice = variable_words.partly_restored(failure_list)
        try:
            await workspace_io.in_thread(
                snapshot_generations.mark_snapshot_used, snapshot.workspace
            )
        except errors.BotError:
            _log.exception("the use of saved variables could not be recorded")

    async def _note_death(self, snapshot: snapshot_generations.Snapshot) -> None:
        try:
            await workspace_io.in_thread(self.generations.note_death, snapshot)
        except errors.BotError:
            _log.exception("a crash while restoring variables could not be recorded")

    def _is_unsaved(self, kernel: live_kernels.Kernel) -> bool:
        return (
            self.is_used
            and kernel.workspace is not None
            and kernel.is_alive
            and not kernel.is_busy
            and kernel.is_savable
            and kernel.run_count > kernel.run_count_at_attempt
            and kernel.id not in self._save_tasks
        )

    def _start_saving(self, kernel: live_kernels.Kernel, seconds: float) -> None:
        kernel_id = kernel.id
        # Recorded now: a save that fails would fail again until more code has run.
        kernel.run_count_at_attempt = kernel.run_count
        task = asyncio.create_task(self._save(kernel, seconds), name="save variables")
        self._save_tasks[kernel_id] = task
        task.add_done_callback(lambda _: self._save_tasks.pop(kernel_id))

    async def _save(self, kernel: live_kernels.Kernel, seconds: float) -> None:
        """Save a session; the former snapshot stays current until the new one is complete."""
        workspace = kernel.workspace
        async with self._saving_slot():
            if workspace is None or not kernel.is_alive or kernel.is_busy:
                # The bot's own code may be running; try again later.
                kernel.run_count_at_attempt = 0
                return
            run_count, started_at = kernel.run_count, time.monotonic()
            # A new number each time, as a child of an earlier save may still be writing.
            number = time.time_ns()
            try:
                try:
                    if manifest := await self._write(kernel, workspace, number, seconds):
                        record = snapshot_generations.PointerRecord(
                            number=number, kernel=kernel.id, runs=run_count
                        )
                        await self._activate_or_prune(kernel, workspace, record)
                        kernel.record_disk_space(is_disk_full=manifest.is_disk_full)
                finally:
                    kernel.record_save_duration(started_at)
                    # Prune even after an interruption: unfinished files count as the session's disk
                    # usage.
                    await self._activate_or_prune(kernel, workspace)
            except Exception:
                # Catch everything: nobody awaits this task.
                _log.exception("variables were not saved")

    async def _activate_or_prune(
        self,
        kernel: live_kernels.Kernel,
        workspace: workspaces.Workspace,
        record: snapshot_generations.PointerRecord | None = None,
    ) -> None:
        """Make a live kernel's generation current, or delete files that no generation needs."""
        in_thread, known_numbers = workspace_io.in_thread, kernel.snapshot_numbers
        async with self.lock(workspace):
            # If the kernel has died, the next one may be using these files.
            if kernel.is_alive and record is not None:
                if await in_thread(self.generations.activate, workspace, record, known_numbers):
                    kernel.run_count_at_save = record.runs
                self.on_saved(workspace)
            elif kernel.is_alive:
                await in_thread(self.generations.prune, workspace, known_numbers)

    @contextlib.asynccontextmanager
    async def _saving_slot(self) -> AsyncIterator[None]:
        """Wait for one of the bounded slots; a slow save frees its slot after some seconds."""
        await self._slots.acquire()
        with contextlib.ExitStack() as slot:
            slot.callback(self._slots.release)
            # Closing a slot again at the end does nothing.
            timer = asyncio.get_running_loop().call_later(_SLOT_SECONDS, slot.close)
            slot.callback(timer.cancel)
            yield

    async def _write(
        self,
        kernel: live_kernels.Kernel,
        workspace: workspaces.Workspace,
        number: int,
        seconds: float,
    ) -> snapshot_manifests.Manifest | None:
        """Let a kernel write a generation; None if it failed, or if code runs again."""
        run_count = kernel.run_count
        code = kernel_calls.save_variables(number, seconds=seconds, max_bytes=self._config.bytes)
        in_thread, started_at = workspace_io.in_thread, time.monotonic()
        try:
            finished, _ = await kernel.run_bot_code(code, seconds=_FORK_SECONDS)
            if finished.ending is not values.Ending.OK:
                _log.warning("variables were not saved: %s", finished)
                return None
            execution_count = kernel.execution_count
            while kernel.is_alive and kernel.execution_count == execution_count:
                if await in_thread(snapshot_manifests.exists, workspace, number):
                    return await in_thread(snapshot_manifests.read, workspace, number)
                waited_seconds = time.monotonic() - started_at
                if waited_seconds > _MAX_WRITING_FACTOR * seconds + _WRITING_GRACE_SECONDS:
                    _log.warning("variables were not saved in time")
                    return None
                await asyncio.sleep(min(waited_seconds / 20, _MAX_POLL_SECONDS))
            # Other code of the bot has interrupted this save; try again later.
            kernel.run_count_at_attempt = 0
            return None
        finally:
            if kernel.is_alive and kernel.run_count == run_count:
                # Before a kernel runs anything, it ends the child that saves: code of a pickled
                # variable may still run there, whatever the manifest says.
                await kernel.run_bot_code("", seconds=_FORK_SECONDS)


def _keep_saved_variables(kernel: live_kernels.Kernel, reason: str) -> None:
    """Make a kernel tell people why it restored nothing, and never replace the saved ones."""
    kernel.is_savable = False
    kernel.restore_notice = variable_words.not_restored(reason)
