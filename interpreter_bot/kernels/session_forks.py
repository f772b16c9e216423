"""Forks of sessions: one that begins as a copy of another, or goes back to a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import logging

from interpreter_bot import cancellation, errors, session_variables
from interpreter_bot.kernels import pools, snapshot_generations
from interpreter_bot.kernels.files import (
    checkpoints,
    file_copies,
    safe_open,
    workspace_io,
    workspaces,
)
from interpreter_bot.wording import session_words, variable_words

_log = logging.getLogger(__name__)

# A person waits for these.
_MOST_WAIT_SECONDS = 1.0
_MAX_NOTE_SECONDS = 2.0
_MAX_CHECKPOINT_FILES = 2000


class SessionForks:
    """Makes the forks of a pool's sessions.

    Args:
        pool: of the sessions.
    """

    def __init__(self, pool: pools.Pool) -> None:
        self._pool = pool

    async def fork(
        self, key: str, new_key: str, *, checkpoint: str = ""
    ) -> session_variables.RestoredState:
        """Let a new session begin with the files and variables of another one.

        Args:
            key: of that one.
            new_key: of the new one.
            checkpoint: as it was there; empty for as it is now.

        Raises:
            KernelError: code runs in that one, or the checkpoint is not kept.
            SessionExistsError: the new one exists already.
            WorkspaceError: it cannot be done; of the new one nothing is left.
        """
        source, target = await self._pool.workspace(key), await self._pool.workspace(new_key)
        if new_key in self._pool.sessions or await target.list():
            raise errors.SessionExistsError
        launched, work = self._pool.live.get(key), workspace_io.file_work
        former = None
        if checkpoint:
            former = await work(checkpoints.read, source.checkpoints, checkpoint)
        elif launched is not None and launched.kernel.is_alive:
            await self._pool.snapshots.save(launched)
            if launched.kernel.is_busy:
                raise errors.KernelError(session_words.BUSY)
        files = source.directory
        if former is not None and not former.flaw:
            files = checkpoints.files_of(source.checkpoints, checkpoint)

        def copy() -> str:
            is_ours = files != source.directory
            limits = self._copy_limits
            flaw = file_copies.copy_tree(files, target.directory, limits, is_ours=is_ours)
            self._copy_variables(source, target, former)
            return flaw

        flaw = ""

        async def let_copy(_: workspaces.Workspace) -> None:
            nonlocal flaw
            async with self._pool.snapshots.lock(source):
                flaw = await work(copy)

        try:
            # So that nobody else tidies the new one meanwhile.
            await self._pool.let_go(new_key, let_copy)
        except BaseException:
            await cancellation.shielded(self._pool.forget(new_key))
            raise
        state = _restored(await self._pool.saved_variables(new_key), former)
        flaws = filter(None, dict.fromkeys((state.files_flaw, flaw)))
        return dataclasses.replace(state, files_flaw=" ".join(flaws))

    def _copy_variables(
        self,
        source: workspaces.Workspace,
        target: workspaces.Workspace,
        former: checkpoints.Checkpoint | None,
    ) -> None:
        with contextlib.suppress(FileNotFoundError):
            # Variables may need what was installed.
            target.packages_file.write_bytes(source.packages_file.read_bytes())
        if self._pool.snapshots.is_used:
            is_copied = self._pool.snapshots.generations.copy(
                source,
                target,
                pointer=None if former is None else former.pointer,
                reserve_bytes=self._pool.settings.limits.disk_reserve_bytes,
            )
            if former is not None and former.pointer and not is_copied:
                raise errors.KernelError(variable_words.THEN_GONE)

    async def note_checkpoint(self, key: str, name: str) -> None:
        """Remember what a session is before code runs, for `go_back`.

        Its variables are saved first, where that is cheap and quickly done; else those count that
        were saved last, and it is remembered how much ran since.

        Args:
            key: of the session, which has a kernel.
            name: for it.
        """
        launched, saved = self._pool.live.get(key), self._pool.snapshots
        most = self._pool.settings.snapshots.checkpoints
        if launched is None or launched.workspace is None or not (saved.is_used and most):
            return
        # Code that runs would end that.
        await saved.save(launched, max_wait_seconds=_MOST_WAIT_SECONDS)
        try:
            async with saved.lock(launched.workspace):
                missed_runs = launched.kernel.runs - launched.kernel.runs_when_saved
                await workspace_io.file_work(self._note, launched.workspace, name, missed_runs)
        except errors.BotError:
            _log.exception("a checkpoint could not be written")

    def _note(self, workspace: workspaces.Workspace, name: str, missed_runs: int) -> None:
        pointer = snapshot_generations.read_pointer(workspace)
        if missed_runs and not pointer:
            # It would be a state without any variables, which never was.
            return
        checkpoints.write(
            workspace.checkpoints,
            name,
            workspace.directory,
            pointer=pointer,
            missed_runs=missed_runs,
            limits=dataclasses.replace(
                self._copy_limits,
                max_bytes=self._pool.settings.snapshots.checkpoint_bytes,
                max_files=_MAX_CHECKPOINT_FILES,
                max_seconds=_MAX_NOTE_SECONDS,
            ),
            max_count=self._pool.settings.snapshots.checkpoints,
        )

    @property
    def _copy_limits(self) -> file_copies.CopyLimits:
        limits = self._pool.settings.limits
        return file_copies.CopyLimits(
            max_bytes=limits.workspace_bytes,
            max_files=limits.workspace_files,
            reserve_bytes=limits.disk_reserve_bytes,
        )

    async def go_back(
        self, key: str, name: str, *, is_whole: bool
    ) -> session_variables.RestoredState:
        """Let a session be again what it was at a checkpoint; its kernel ends.

        Args:
            key: of the session.
            name: of the checkpoint.
            is_whole: only where all variables and files of that time come back, as they were.

        Returns:
            What its next kernel begins with; the variables may be those of a moment before.

        Raises:
            KernelError: there is no such checkpoint, it cannot be gone back to, or code runs;
                nothing is changed then.
            WorkspaceError: the operating system refuses.
        """
        launched, saved = self._pool.live.get(key), self._pool.snapshots
        workspace, work = await self._pool.workspace(key), workspace_io.file_work
        checkpoint = await work(checkpoints.read, workspace.checkpoints, name)
        snapshot, has_flaws = None, bool(checkpoint.flaw)
        if checkpoint.pointer:
            snapshot = await work(saved.generations.find, workspace, checkpoint.pointer)
            if snapshot is None:
                raise errors.KernelError(variable_words.THEN_GONE)
            summary = snapshot.summary
            lost_count = summary.lost_count + summary.partly_count
            has_flaws = has_flaws or bool(lost_count or checkpoint.missed_runs)
        if is_whole and has_flaws:
            raise errors.KernelError(variable_words.THEN_PARTLY_SAVED)
        if launched is not None and not saved.interrupt(launched) and launched.kernel.is_busy:
            raise errors.KernelError(session_words.BUSY)

        def change() -> None:
            if not checkpoint.flaw:
                file_copies.replace_content(workspace.directory, workspace.staging)
                safe_open.remove(workspace.staging)
            saved.generations.go_back(workspace, checkpoint.pointer)
            checkpoints.remove_since(workspace.checkpoints, name)

        async def go(_: workspaces.Workspace) -> None:
            async with saved.lock(workspace):
                await work(change)

        if not checkpoint.flaw:
            # Before anything changes: there may be no room for it.
            await work(self._stage, workspace, name)
        await self._pool.let_go(key, go)
        return _restored(None if snapshot is None else snapshot.summary, checkpoint)

    def _stage(self, workspace: workspaces.Workspace, name: str) -> None:
        """Copy the files of a checkpoint to where they can replace the present ones."""
        safe_open.remove(workspace.staging)
        workspace.staging.mkdir(mode=0o700)
        files = checkpoints.files_of(workspace.checkpoints, name)
        with contextlib.ExitStack() as unless_done:
            unless_done.callback(safe_open.remove, workspace.staging)
            flaw = file_copies.copy_tree(files, workspace.staging, self._copy_limits, is_ours=True)
            if flaw:
                raise errors.WorkspaceError(flaw)
            unless_done.pop_all()


def _restored(
    saved: session_variables.SavedVariables | None, former: checkpoints.Checkpoint | None
) -> session_variables.RestoredState:
    if former is None:
        return session_variables.RestoredState(saved)
    missed_runs = former.missed_runs if saved is not None else 0
    return session_variables.RestoredState(saved, missed_runs, former.flaw)
