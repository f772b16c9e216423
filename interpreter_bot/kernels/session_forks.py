"""Forks of sessions: one that begins as a copy of another, or goes back to a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import logging

from interpreter_bot import cancellation, errors, session_variables
from interpreter_bot.kernels import checkpoints, pools, snapshot_generations
from interpreter_bot.kernels.files import (
    checkpoint_files,
    directory_contents,
    file_copies,
    workspace_io,
    workspaces,
)

_log = logging.getLogger(__name__)

_BUSY = "Something is still running here. Try again when it is done."
# A person waits for it.
_MOST_WAIT_SECONDS = 1.0
_NOT_WHOLE = "Some variables from then were not saved, so nothing was changed."
_GONE = "The variables from then are no longer kept, so nothing was changed."


class SessionForks:
    """Makes the forks of a pool's sessions.

    Args:
        pool: of the sessions.
        config: the settings in effect.
    """

    def __init__(self, pool: pools.Pool) -> None:
        self._pool = pool

    async def fork(
        self, key: str, new_key: str, *, checkpoint: str = ""
    ) -> session_variables.SavedVariables | None:
        """Let a new session begin with the files and variables of another one.

        Args:
            key: of that one.
            new_key: of the new one.
            checkpoint: as it was there; empty for as it is now.

        Returns:
            The variables that it begins with; None if there are none.

        Raises:
            KernelError: code runs in that one, or the checkpoint is not kept.
            SessionExistsError: the new one exists already.
            WorkspaceError: it cannot be done; of the new one nothing is left.
        """
        source, target = await self._pool.workspace(key), await self._pool.workspace(new_key)
        if new_key in self._pool.sessions or await target.list():
            raise errors.SessionExistsError
        launched, work = self._pool.live.get(key), workspace_io.file_work
        former = await work(checkpoints.read, source, checkpoint) if checkpoint else None
        if former is None and launched is not None and launched.kernel.is_alive:
            await self._pool.snapshots.save(launched)
            if launched.kernel.is_busy:
                raise errors.KernelError(_BUSY)

        async def copy(_: workspaces.Workspace) -> None:
            async with self._pool.snapshots.lock(source):
                await work(self._copy, source, target, former)

        try:
            # So that nobody else tidies the new one meanwhile.
            await self._pool.let_go(new_key, copy)
        except BaseException:
            await cancellation.shielded(self._pool.forget(new_key))
            raise
        saved = await self._pool.saved_variables(new_key)
        if saved is None or former is None:
            return saved
        return dataclasses.replace(saved, missed_runs=former.missed_runs)

    def _copy(
        self,
        source: workspaces.Workspace,
        target: workspaces.Workspace,
        former: checkpoint_files.Checkpoint | None,
    ) -> None:
        limits = self._pool.settings.limits
        plan = checkpoints.RestorePlan()
        if former is not None:
            plan = checkpoints.plan_restore(source, former, limits)
        doomed = set(plan.delete)
        with (
            workspace_io.opened(source.directory) as root,
            workspace_io.opened(target.directory) as copies,
        ):
            found = directory_contents.scan(root, limits.workspace_files).entries
            file_copies.copy_files(
                root,
                copies,
                [one for one in found if not one.refusal and one.path not in doomed],
                most_bytes=limits.workspace_bytes,
                reserve_bytes=limits.disk_reserve_bytes,
            )
        plan = dataclasses.replace(plan, delete=())
        checkpoints.apply_plan(plan, target, limits, copies_of=source)
        with contextlib.suppress(FileNotFoundError):
            # Variables may need what was installed.
            target.packages_file.write_bytes(source.packages_file.read_bytes())
        if self._pool.snapshots.is_used:
            is_copied = self._pool.snapshots.generations.copy(
                source,
                target,
                pointer=None if former is None else former.pointer,
                reserve_bytes=limits.disk_reserve_bytes,
            )
            if former is not None and former.pointer and not is_copied:
                raise errors.KernelError(_GONE)

    async def note_checkpoint(self, key: str, name: str) -> None:
        """Remember what a session is before code runs, for `go_back`.

        Its variables are saved first, where that is cheap and quickly done; else those count that
        were saved last, and it is remembered how much ran since.

        Args:
            key: of the session, which has a kernel.
            name: for it.
        """
        launched, saved = self._pool.live.get(key), self._pool.snapshots
        if launched is None or launched.workspace is None or not (saved.is_used and self._most):
            return
        kernel, workspace = launched.kernel, launched.workspace
        # Code that runs would end that.
        await saved.save(launched, max_wait_seconds=_MOST_WAIT_SECONDS)
        missed_runs = kernel.runs - kernel.runs_when_saved
        try:
            # Not under the lock: files may be copied meanwhile, and the person waits for this.
            await workspace_io.file_work(self._note, workspace, name, missed_runs)
        except errors.BotError:
            _log.exception("a checkpoint could not be written")

    @property
    def _most(self) -> int:
        return self._pool.settings.snapshots.checkpoints

    def _note(self, workspace: workspaces.Workspace, name: str, missed_runs: int) -> None:
        pointer = snapshot_generations.read_pointer(workspace)
        if missed_runs and not pointer:
            # It would be a state without any variables, which never was.
            return
        checkpoints.write(
            workspace, name, pointer=pointer, missed_runs=missed_runs, most=self._most
        )

    async def go_back(
        self, key: str, name: str, *, is_whole: bool
    ) -> session_variables.SavedVariables | None:
        """Let a session be again what it was at a checkpoint; its kernel ends.

        Args:
            key: of the session.
            name: of the checkpoint.
            is_whole: only where all variables of that time come back, as they were.

        Returns:
            The variables that its next kernel begins with, which may be those of a moment before;
            None if there were none.

        Raises:
            KernelError: there is no such checkpoint, it cannot be gone back to, or code runs;
                nothing is changed then.
            WorkspaceError: the operating system refuses.
        """
        launched, saved = self._pool.live.get(key), self._pool.snapshots
        workspace, work = await self._pool.workspace(key), workspace_io.file_work
        checkpoint = await work(checkpoints.read, workspace, name)
        snapshot = None
        if checkpoint.pointer:
            snapshot = await work(saved.generations.find, workspace, checkpoint.pointer)
            if snapshot is None:
                raise errors.KernelError(_GONE)
            held = snapshot.summary
            if is_whole and (held.lost_count or held.partly_count or checkpoint.missed_runs):
                raise errors.KernelError(_NOT_WHOLE)
        limits = self._pool.settings.limits
        await work(checkpoints.plan_restore, workspace, checkpoint, limits)
        if launched is not None and not saved.interrupt(launched) and launched.kernel.is_busy:
            raise errors.KernelError(_BUSY)

        def change() -> None:
            # Once more: code may have gone on in the background until its kernel was closed.
            plan = checkpoints.plan_restore(workspace, checkpoint, limits)
            checkpoints.apply_plan(plan, workspace, limits)
            saved.generations.go_back(workspace, checkpoint.pointer)
            checkpoints.remove_since(workspace, name)

        async def go(_: workspaces.Workspace) -> None:
            async with saved.lock(workspace):
                await work(change)

        await self._pool.let_go(key, go)
        if snapshot is None:
            return None
        return dataclasses.replace(snapshot.summary, missed_runs=checkpoint.missed_runs)
