"""Forks of sessions, which begin as a copy of another, and the way back to a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib

from interpreter_bot import cancellation, errors, session_variables
from interpreter_bot.kernels import pools, snapshot_generations
from interpreter_bot.kernels.files import (
    checkpoints,
    file_copies,
    safe_open,
    workspace_io,
    workspaces,
)
from interpreter_bot.kernels.metering import session_metering
from interpreter_bot.wording import session_words, variable_words

_log = logging.getLogger(__name__)

# Short, as a person waits.
_MAX_WAIT_SECONDS = 1.0
_MAX_CHECKPOINT_SECONDS = 2.0
_MAX_CHECKPOINT_FILES = 2000


class SessionForks:
    """Copies the sessions of a pool, and takes them back to checkpoints."""

    def __init__(self, pool: pools.Pool) -> None:
        self._pool = pool

    async def fork(
        self, key: str, new_key: str, *, checkpoint: str = ""
    ) -> session_variables.RestoredState:
        """Create session `new_key` with the files and variables of session `key`.

        Files and variables are the present ones, or those of `checkpoint` if it is given.

        Raises:
            KernelError: code runs in the source, or it has no such checkpoint.
            SessionExistsError: the new session exists already.
            WorkspaceError: copying failed; nothing of the new session is left.
        """
        source, target = await self._pool.workspace(key), await self._pool.workspace(new_key)
        if new_key in self._pool.sessions or await target.list():
            raise errors.SessionExistsError
        kernel, in_thread = self._pool.kernels.get(key), workspace_io.in_thread
        past_state = None
        if checkpoint:
            past_state = await in_thread(checkpoints.read, source.checkpoints, checkpoint)
        elif kernel is not None and kernel.is_alive:
            await self._pool.snapshots.save(kernel)
            if kernel.is_busy:
                raise errors.KernelError(session_words.SESSION_BUSY)
        files = source.directory
        if past_state is not None and not past_state.flaw:
            files = source.checkpoints / past_state.copy_name

        def copy() -> str:
            flaw = file_copies.copy_tree(files, target.directory, self._copy_limits)
            self._copy_variables(source, target, past_state)
            return flaw

        flaw = ""

        async def copy_into_target(_: workspaces.Workspace) -> None:
            nonlocal flaw
            async with self._pool.snapshots.lock(source):
                flaw = await in_thread(copy)

        try:
            # The new session counts as in use, so nobody tidies it meanwhile.
            await self._pool.run_without_kernel(new_key, copy_into_target)
        except BaseException:
            await cancellation.shielded(self._pool.forget(new_key))
            raise
        state = _restored_state(await self._pool.saved_variables(new_key), past_state)
        flaws = filter(None, dict.fromkeys((state.files_notice, flaw)))
        return dataclasses.replace(state, files_notice=" ".join(flaws))

    def _copy_variables(
        self,
        source: workspaces.Workspace,
        target: workspaces.Workspace,
        past_state: checkpoints.Checkpoint | None,
    ) -> None:
        with contextlib.suppress(FileNotFoundError):
            # Variables may need the installed packages.
            target.packages_file.write_bytes(source.packages_file.read_bytes())
        if self._pool.snapshots.is_used:
            is_copied = self._pool.snapshots.generations.copy(
                source,
                target,
                pointer=None if past_state is None else past_state.pointer,
                reserve_bytes=self._pool.settings.limits.disk_reserve_bytes,
            )
            if past_state is not None and past_state.pointer and not is_copied:
                raise errors.KernelError(variable_words.OLD_VARIABLES_GONE)

    async def create_checkpoint(self, key: str, name: str) -> None:
        """Write a checkpoint of a session that has a kernel, before code runs.

        Variables are saved first if that is quick. Otherwise the checkpoint refers to the variables
        saved last, and counts the executions since then.
        """
        kernel, session_snapshots = self._pool.kernels.get(key), self._pool.snapshots
        max_checkpoints = self._pool.settings.snapshots.checkpoints
        if (
            kernel is None
            or kernel.workspace is None
            or not (session_snapshots.is_used and max_checkpoints)
        ):
            return
        # The code that runs next would interrupt the save.
        await session_snapshots.save(kernel, max_wait_seconds=_MAX_WAIT_SECONDS)
        try:
            async with session_snapshots.lock(kernel.workspace):
                missed_runs = kernel.run_count - kernel.run_count_at_save
                await workspace_io.in_thread(
                    self._write_checkpoint,
                    kernel.workspace,
                    name,
                    missed_runs,
                    kernel.provisioner.meter(),
                )
        except errors.BotError:
            _log.exception("a checkpoint could not be written")

    def _write_checkpoint(
        self,
        workspace: workspaces.Workspace,
        name: str,
        missed_runs: int,
        processes: session_metering.SessionProcesses,
    ) -> None:
        pointer = snapshot_generations.read_pointer(workspace)
        if missed_runs and not pointer:
            # Without saved variables the checkpoint would restore a state that never existed.
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
                max_seconds=_MAX_CHECKPOINT_SECONDS,
            ),
            max_count=self._pool.settings.snapshots.checkpoints,
            may_change_unseen=processes.has_writable_file_mapping(),
        )

    @property
    def _copy_limits(self) -> file_copies.CopyLimits:
        limits = self._pool.settings.limits
        return file_copies.CopyLimits(
            max_bytes=limits.workspace_bytes,
            max_files=limits.workspace_files,
            reserve_bytes=limits.disk_reserve_bytes,
        )

    async def restore_checkpoint(
        self, key: str, name: str, *, requires_everything: bool = False
    ) -> session_variables.RestoredState:
        """Return a session to checkpoint `name`; its kernel ends.

        With `requires_everything`, refuse unless all variables and files come back as they were.

        Returns:
            What the next kernel starts with; its variables may be slightly older than the
            checkpoint.

        Raises:
            KernelError: there is no such checkpoint, it is incomplete, or code runs; nothing
                has changed.
            WorkspaceError: the operating system refuses.
        """
        kernel, session_snapshots = self._pool.kernels.get(key), self._pool.snapshots
        workspace, in_thread = await self._pool.workspace(key), workspace_io.in_thread
        checkpoint = await in_thread(checkpoints.read, workspace.checkpoints, name)
        snapshot, has_flaws = None, bool(checkpoint.flaw)
        if checkpoint.pointer:
            snapshot = await in_thread(
                session_snapshots.generations.find, workspace, checkpoint.pointer
            )
            if snapshot is None:
                raise errors.KernelError(variable_words.OLD_VARIABLES_GONE)
            summary = snapshot.summary
            lost_count = summary.lost_count + summary.partly_saved_count
            has_flaws = has_flaws or bool(lost_count or checkpoint.missed_runs)
        if requires_everything and has_flaws:
            raise errors.KernelError(variable_words.OLD_VARIABLES_PARTLY_SAVED)
        if kernel is not None and not session_snapshots.interrupt(kernel) and kernel.is_busy:
            raise errors.KernelError(session_words.SESSION_BUSY)

        def replace_state() -> None:
            if not checkpoint.flaw:
                file_copies.replace_content(workspace.directory, workspace.staging)
                safe_open.remove(workspace.staging)
            session_snapshots.generations.use_pointer(workspace, checkpoint.pointer)
            checkpoints.remove_since(workspace.checkpoints, name)

        async def change_files(_: workspaces.Workspace) -> None:
            async with session_snapshots.lock(workspace):
                await in_thread(replace_state)

        if not checkpoint.flaw:
            # Copy first: if the disk has no room, nothing must change.
            await in_thread(
                self._stage_files, workspace, workspace.checkpoints / checkpoint.copy_name
            )
        await self._pool.run_without_kernel(key, change_files)
        return _restored_state(None if snapshot is None else snapshot.summary, checkpoint)

    def _stage_files(self, workspace: workspaces.Workspace, files: pathlib.Path) -> None:
        """Copy the files of a checkpoint to where they can replace the present ones."""
        safe_open.remove(workspace.staging)
        workspace.staging.mkdir(mode=0o700)
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(safe_open.remove, workspace.staging)
            flaw = file_copies.copy_tree(files, workspace.staging, self._copy_limits)
            if flaw:
                raise errors.WorkspaceError(flaw)
            cleanup.pop_all()


def _restored_state(
    summary: session_variables.SavedVariables | None,
    past_state: checkpoints.Checkpoint | None,
) -> session_variables.RestoredState:
    if past_state is None:
        return session_variables.RestoredState(summary)
    missed_runs = past_state.missed_runs if summary is not None else 0
    return session_variables.RestoredState(summary, missed_runs, past_state.flaw)
