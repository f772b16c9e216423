"""Snapshots of sessions' variables: taken of idle sessions, brought back into their next kernel.

A kernel writes and reads them itself, in a directory of its session that only it sees; nothing is
unpickled here, and what it reports is hostile (`snapshot_manifests`). Which generation is current
is signed with the session's name (`snapshot_generations`): a snapshot that was put into another
session's place is not used. The signed record also holds the kernel, and how many pieces of code
had run there, so that an older state never passes for the present one.

The end of the bot saves what is newer, in one span of time; a turn's first code waits a moment.
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

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import (
    launchers,
    live_kernels,
    snapshot_generations,
    snapshot_manifests,
)
from interpreter_bot.kernels.files import workspace_io, workspaces
from interpreter_bot.wording import variable_words

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 30.0
# After code, if saving is cheap: code that follows at once would only interrupt it.
_PAUSE_SECONDS: Final = 1.0
_BUSY_PER_CORE: Final = 2
# A kernel may take so many times the time for writing, as it reads back what it wrote.
_MAX_WRITING_TIMES: Final = 3
_LATE_SECONDS: Final = 5.0
# To fork, which is all that a kernel does itself.
_BEGIN_SECONDS: Final = 10.0
# At most between two looks for the manifest; a quick save is noticed quickly.
_MAX_POLL_SECONDS: Final = 0.05
_SLOT_SECONDS: Final = 5.0
_MAX_SHOWN: Final = 4


class Snapshots:
    """All snapshots of one pool. Use `open`.

    Attributes:
        generations: what lies on disk, and which of it is current.
        on_saved: is called for each session whose variables were saved.
        busy_count: how many kernels run code now, or are about to, as the watchdog counted.
    """

    def __init__(self, config: settings.Settings, key: snapshot_generations.SnapshotKey) -> None:
        self._config = config.snapshots
        self._idle_seconds = config.kernels.freeze_seconds or _IDLE_SECONDS
        self._key = key
        self.generations = snapshot_generations.Generations(config.snapshots, key)
        self.busy_count = 0
        self.on_saved: Callable[[workspaces.Workspace], None] = lambda _: None
        self._saving: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(cores := os.cpu_count() or 1)  # dear to ask at each tick
        self._max_busy = _BUSY_PER_CORE * cores
        # By workspace: what is deleted there, and which generation is current, change together.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @classmethod
    async def open(cls, config: settings.Settings, *, is_used: bool) -> Snapshots:
        """Read the key that signs snapshots, or make it.

        Args:
            config: the settings in effect.
            is_used: whether files of sessions outlive this process at all.

        Raises:
            SettingsError: the key cannot be used.
        """
        if not (is_used and config.sandbox.enabled and config.snapshots.enabled):
            return cls(config, snapshot_generations.SnapshotKey())
        return cls(config, await asyncio.to_thread(snapshot_generations.load_key, config))

    @property
    def is_used(self) -> bool:
        """Whether any are taken."""
        return bool(self._key.secret)

    def is_due(self, launched: launchers.LaunchedKernel) -> bool:
        """Return whether an idle session is to be saved now."""
        idle_seconds = time.monotonic() - launched.kernel.last_used
        if idle_seconds < min(_PAUSE_SECONDS, self._idle_seconds) or not self._is_unsaved(launched):
            return False
        return idle_seconds >= self._idle_seconds or self._is_cheap(launched)

    def _is_cheap(self, launched: launchers.LaunchedKernel) -> bool:
        """Return whether a session can be saved after each piece of code."""
        limits = self._config
        return (
            limits.checkpoints > 0
            and self.busy_count <= self._max_busy  # else people's code would share cores with this
            and launched.kernel.is_saved_quickly(limits.checkpoint_seconds)
            and (launched.provisioner.usage().counted_bytes() or 0) <= limits.checkpoint_bytes
        )

    def checkpoint(self, launched: launchers.LaunchedKernel) -> bool:
        """Begin to save a session if that is due; returns whether it is not saved yet."""
        if self.is_due(launched):
            self._begin(launched, self._config.seconds)
        return launched.kernel.id in self._saving or self._is_unsaved(launched)

    def begin_saving(self, launched: launchers.LaunchedKernel) -> asyncio.Task[None] | None:
        """Begin to save what is new in a session; None if nothing is, or it cannot be saved."""
        if self._is_unsaved(launched):
            self._begin(launched, self._config.seconds)
        return self._saving.get(launched.kernel.id)

    async def save(
        self, launched: launchers.LaunchedKernel, *, max_wait_seconds: float | None = None
    ) -> None:
        """Save a session now, if there is anything new; with a limited wait only if it is cheap."""
        is_wanted = max_wait_seconds is None or self._is_cheap(launched)
        saving = self.begin_saving(launched) if is_wanted else self._saving.get(launched.kernel.id)
        if saving is not None:
            await asyncio.wait({saving}, timeout=max_wait_seconds)

    def interrupt(self, launched: launchers.LaunchedKernel) -> bool:
        """Give up saving a session; returns whether it was being saved."""
        saving = self._saving.get(launched.kernel.id)
        return saving is not None and saving.cancel()

    async def save_all(self, everyone: Iterable[launchers.LaunchedKernel]) -> None:
        """Save all sessions that have anything new, as the bot is about to end."""
        seconds = self._config.end_seconds
        for launched in everyone:
            if self._is_unsaved(launched):
                self._begin(launched, seconds / _MAX_WRITING_TIMES)
        if self._saving:
            await asyncio.wait(self._saving.values(), timeout=seconds)
        if late := list(self._saving.values()):
            _log.warning("there was no time to save %d sessions", len(late))
            for task in late:
                task.cancel()
            await asyncio.wait(late)

    async def find(self, workspace: workspaces.Workspace) -> snapshot_generations.Snapshot | None:
        """Return a session's snapshot, if there is a valid one that can be read."""
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
        return await workspace_io.file_work(self.generations.find, workspace)

    async def _find_tidied(
        self, workspace: workspaces.Workspace | None
    ) -> snapshot_generations.Snapshot | None:
        """Do both in one file operation, as a person waits."""
        if workspace is None or not self.is_used:
            await self.tidy(workspace)
            return await self._find(workspace)
        try:
            async with self.lock(workspace):
                return await workspace_io.file_work(self.generations.prune, workspace)
        except errors.BotError:
            _log.exception("a session's variables cannot be tidied")
            return await self._find(workspace)

    async def tidy(self, workspace: workspaces.Workspace | None) -> None:
        """Delete what no snapshot needs of a session without a kernel: unfinished, or put there."""
        if workspace is None:
            return
        work = self.generations.prune if self.is_used else snapshot_generations.forget
        async with self.lock(workspace):
            try:
                await workspace_io.file_work(work, workspace)
            except errors.BotError:
                _log.exception("variables of session %s cannot be tidied", workspace.name)

    def lock(self, workspace: workspaces.Workspace) -> asyncio.Lock:
        """Return the lock under which what is kept of a session changes."""
        return self._locks.setdefault(workspace.name, asyncio.Lock())

    async def restore(self, launched: launchers.LaunchedKernel) -> bool:
        """Bring variables back into a session's new kernel, if any are saved; False if it died.

        Its `restored` then lists what came back, and its `restore_notice` says what did not.
        """
        kernel = launched.kernel
        try:
            snapshot = await self._find_tidied(launched.workspace)
        except errors.BotError:
            _log.exception("it is not known what is saved of a session")
            _give_up(launched, variable_words.NOT_READ_NOW)
            return True
        kernel.generations.add(snapshot.number if snapshot is not None else 0)
        if snapshot is None:
            await self._drop_other_format(launched)
            return True
        code = f"get_ipython().restore_variables({snapshot.number})"
        answer = _Answer()
        finished = await kernel.execute(
            code, show=answer.show, seconds=self._config.seconds, is_own=True
        )
        if not kernel.is_alive:
            # If the bot ended it, the snapshot is not to blame.
            if finished.ending is not values.Ending.STOPPED:
                await self._note_death(snapshot)
            return False
        if finished.ending is not values.Ending.OK:
            _log.warning("variables were not brought back: %s", finished)
            _give_up(launched, finished.reason)
            return True
        try:
            await self._note_restored(kernel, snapshot, answer.json)
        except errors.BotError:
            _log.exception("what came back of variables is not known")
            _give_up(launched, "")
        return True

    async def _drop_other_format(self, launched: launchers.LaunchedKernel) -> None:
        """Let a kernel say once that another version of the bot saved its variables."""
        if launched.workspace is None or not self.is_used:
            return
        try:
            async with self.lock(launched.workspace):
                was_dropped = await workspace_io.file_work(
                    self.generations.drop_other_format, launched.workspace
                )
        except errors.BotError:
            _log.exception("it is not known whether another version saved variables")
            return
        if was_dropped:
            launched.kernel.restore_notice = variable_words.OTHER_VERSION

    async def note_unread(self, launched: launchers.LaunchedKernel) -> None:
        """Let a kernel say that the one before it died of reading what was saved."""
        try:
            is_kept = await self._find(launched.workspace) is not None
        except errors.BotError:
            _log.exception("it is not known what is saved of a session")
            is_kept = True
        if is_kept:
            _give_up(launched, variable_words.CRASHED_READING)
        else:
            launched.kernel.generations.add(0)
            launched.kernel.restore_notice = variable_words.UNREADABLE

    async def forget(self, workspace: workspaces.Workspace) -> None:
        """Delete the snapshot of a session, which has no kernel now."""
        await workspace_io.file_work(snapshot_generations.forget, workspace)

    async def _note_restored(
        self, kernel: live_kernels.Kernel, snapshot: snapshot_generations.Snapshot, shown: str
    ) -> None:
        """Note in a kernel which variables it has back, by what it shows of the others."""
        failures, saved = snapshot_manifests.failures(shown), snapshot.summary
        kernel.restored = dataclasses.replace(
            saved,
            kept=max(saved.kept - len(failures), 0),
            lost=(*failures, *saved.lost),
            lost_count=saved.lost_count + len(failures),
        )
        if failures:
            listed = ", ".join(f"{name} ({why})" for name, why in failures[:_MAX_SHOWN])
            kernel.restore_notice = variable_words.partly_restored(listed)
        try:
            await workspace_io.file_work(snapshot_generations.touch, snapshot.workspace)
        except errors.BotError:
            _log.exception("that variables were brought back could not be noted")

    async def _note_death(self, snapshot: snapshot_generations.Snapshot) -> None:
        try:
            await workspace_io.file_work(self.generations.note_death, snapshot)
        except errors.BotError:
            _log.exception("that Python died of saved variables could not be noted")

    def _is_unsaved(self, launched: launchers.LaunchedKernel) -> bool:
        kernel = launched.kernel
        return (
            self.is_used
            and launched.workspace is not None
            and kernel.is_alive
            and not kernel.is_busy
            and kernel.is_savable
            and kernel.runs > kernel.runs_when_tried
            and kernel.id not in self._saving
        )

    def _begin(self, launched: launchers.LaunchedKernel, seconds: float) -> None:
        kernel_id = launched.kernel.id
        # Even if that fails: it would fail again until code has run.
        launched.kernel.runs_when_tried = launched.kernel.runs
        task = asyncio.create_task(self._save(launched, seconds), name="save variables")
        self._saving[kernel_id] = task
        task.add_done_callback(lambda _: self._saving.pop(kernel_id))

    async def _save(self, launched: launchers.LaunchedKernel, seconds: float) -> None:
        """Save a session; its former snapshot is current until the new one is complete."""
        kernel, workspace = launched.kernel, launched.workspace
        async with self._slot():
            if workspace is None or not kernel.is_alive or kernel.is_busy:
                # The bot's own code, such as a look at variables, may run: it is due again then.
                kernel.runs_when_tried = 0
                return
            runs, begun = kernel.runs, time.monotonic()
            # Never one that a child of long ago may still be writing.
            number = time.time_ns()
            try:
                try:
                    if manifest := await self._write(launched, workspace, number, seconds):
                        record = snapshot_generations.PointerRecord(
                            number=number, kernel=kernel.id, runs=runs
                        )
                        await self._settle(launched, workspace, record)
                        kernel.note_saved(is_disk_full=manifest.is_disk_full)
                finally:
                    kernel.note_save(begun)
                    # Also if it was interrupted: the rest is part of the session's disk use.
                    await self._settle(launched, workspace)
            except Exception:
                # The last net of this task: nobody awaits it.
                _log.exception("variables were not saved")

    async def _settle(
        self,
        launched: launchers.LaunchedKernel,
        workspace: workspaces.Workspace,
        record: snapshot_generations.PointerRecord | None = None,
    ) -> None:
        """Make a live kernel's generation current, or delete what the current one does not need."""
        work, known = workspace_io.file_work, launched.kernel.generations
        async with self.lock(workspace):
            # If the kernel has died, the next one may be using these files.
            if launched.kernel.is_alive and record is not None:
                if await work(self.generations.activate, workspace, record, known):
                    launched.kernel.runs_when_saved = record.runs
                self.on_saved(workspace)
            elif launched.kernel.is_alive:
                await work(self.generations.prune, workspace, known)

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait for a place; after some seconds a slow session no longer takes one up."""
        await self._slots.acquire()
        with contextlib.ExitStack() as slot:
            slot.callback(self._slots.release)
            # Closed early, it has nothing left to do in the end.
            timer = asyncio.get_running_loop().call_later(_SLOT_SECONDS, slot.close)
            slot.callback(timer.cancel)
            yield

    async def _write(
        self,
        launched: launchers.LaunchedKernel,
        workspace: workspaces.Workspace,
        number: int,
        seconds: float,
    ) -> snapshot_manifests.Manifest | None:
        """Let a kernel write a generation; None if it did not, or if somebody uses it again."""
        kernel, runs = launched.kernel, launched.kernel.runs
        code = f"get_ipython().save_variables({number}, {seconds}, {self._config.bytes})"
        work, begun = workspace_io.file_work, time.monotonic()
        try:
            finished = await kernel.execute(code, show=_ignore, seconds=_BEGIN_SECONDS, is_own=True)
            if finished.ending is not values.Ending.OK:
                _log.warning("variables were not saved: %s", finished)
                return None
            executions = kernel.executions
            while kernel.is_alive and kernel.executions == executions:
                if await work(snapshot_manifests.exists, workspace, number):
                    return await work(snapshot_manifests.read, workspace, number)
                waited = time.monotonic() - begun
                if waited > _MAX_WRITING_TIMES * seconds + _LATE_SECONDS:
                    _log.warning("variables were not saved in time")
                    return None
                await asyncio.sleep(min(waited / 20, _MAX_POLL_SECONDS))
            # The bot's own code, such as a look at variables, has ended it: it is due again.
            kernel.runs_when_tried = 0
            return None
        finally:
            if kernel.is_alive and kernel.runs == runs:
                # A kernel ends what saves its variables before it runs anything: code of a variable
                # may go on there, whatever the manifest says.
                await kernel.execute("", show=_ignore, seconds=_BEGIN_SECONDS, is_own=True)


class _Answer:
    """The last JSON that a piece of the bot's own code shows; empty before any.

    Attributes:
        json: as it was shown.
    """

    def __init__(self) -> None:
        self.json = ""

    def show(self, output: values.Output) -> None:
        """Take an output."""
        if isinstance(output, values.Json):
            self.json = output.json


def _give_up(launched: launchers.LaunchedKernel, reason: str) -> None:
    """Let a kernel that got no variables say so, and keep it from replacing what was saved."""
    launched.kernel.is_savable = False
    launched.kernel.restore_notice = variable_words.not_restored(reason)


def _ignore(_: values.Output) -> None:
    """Saving and restoring show nothing to people."""
