"""Branches of sessions: one that begins as a copy of another, and one that goes back."""

from __future__ import annotations

import contextlib
import logging

from interpreter_bot import cancellation, errors, session_variables
from interpreter_bot.kernels import checkpoints, pools, snapshot_generations
from interpreter_bot.kernels.files import (
    copies_in_and_out,
    directory_contents,
    file_copies,
    workspaces,
)

_log = logging.getLogger(__name__)

_BUSY = "Code runs in this conversation. Please try again when it has ended."
# A person waits for it.
_MOST_WAIT_SECONDS = 1.0
_NOT_WHOLE = "Not all variables of that time could be kept, so nothing was changed."
_GONE = "The variables of that time are not kept any more, so nothing was changed."


class Branches:
    """Makes the branches of a pool's sessions.

    Args:
        pool: of the sessions.
        config: the settings in effect.
    """

    def __init__(self, pool: pools.Pool) -> None:
        self._pool = pool

    async def fork(self, key: str, new_key: str) -> None:
        """Let a new session begin with the files and variables of another one.

        Raises:
            KernelError: code runs in that one.
            SessionExistsError: the new one exists already.
            WorkspaceError: it cannot be done; of the new one nothing is left.
        """
        source, target = await self._pool.workspace(key), await self._pool.workspace(new_key)
        if new_key in self._pool.sessions or await target.list():
            raise errors.SessionExistsError
        if (launched := self._pool.live.get(key)) is not None and launched.kernel.is_alive:
            await self._pool.snapshots.save(launched)
            if launched.kernel.is_busy:
                raise errors.KernelError(_BUSY)

        async def copy(_: workspaces.Workspace) -> None:
            async with self._pool.snapshots.lock(source):
                await copies_in_and_out.file_work(self._copy, source, target)

        try:
            # So that nobody else tidies the new one meanwhile.
            await self._pool.let_go(new_key, copy)
        except BaseException:
            await cancellation.shielded(self._pool.forget(new_key))
            raise

    def _copy(self, source: workspaces.Workspace, target: workspaces.Workspace) -> None:
        limits = self._pool.settings.limits
        with (
            copies_in_and_out.opened(source.directory) as root,
            copies_in_and_out.opened(target.directory) as copies,
        ):
            found = directory_contents.scan(root, limits.workspace_files).entries
            file_copies.copy_files(
                root,
                copies,
                [one for one in found if not one.refusal],
                most_bytes=limits.workspace_bytes,
                reserve_bytes=limits.disk_reserve_bytes,
            )
        with contextlib.suppress(FileNotFoundError):
            # Variables may need what was installed.
            target.packages_file.write_bytes(source.packages_file.read_bytes())
        if self._pool.snapshots.is_used:
            self._pool.snapshots.generations.copy(
                source, target, reserve_bytes=limits.disk_reserve_bytes
            )

    async def note_checkpoint(self, key: str, name: str) -> None:
        """Remember what a session is before code runs, for `go_back`, if its variables are saved.

        Args:
            key: of the session, which has a kernel.
            name: for it.
        """
        launched, saved = self._pool.live.get(key), self._pool.snapshots
        if launched is None or launched.workspace is None or not (saved.is_used and self._most):
            return
        kernel, workspace = launched.kernel, launched.workspace
        # Code that runs now would end that, and there were nothing to go back to.
        await saved.saved(launched, seconds=_MOST_WAIT_SECONDS)
        if kernel.runs != kernel.kept_runs:
            return
        try:
            # Not under the lock: files may be copied meanwhile, and the person waits for this.
            await copies_in_and_out.file_work(self._note, workspace, name)
        except errors.BotError:
            _log.exception("a checkpoint could not be written")

    @property
    def _most(self) -> int:
        return self._pool.settings.snapshots.checkpoints

    def _note(self, workspace: workspaces.Workspace, name: str) -> None:
        pointer = snapshot_generations.read_pointer(workspace)
        checkpoints.write(workspace, name, pointer=pointer, most=self._most)

    async def go_back(
        self, key: str, name: str, *, is_whole: bool
    ) -> session_variables.SavedVariables | None:
        """Let a session be again what it was at a checkpoint; its kernel ends.

        Args:
            key: of the session.
            name: of the checkpoint.
            is_whole: only where all variables of that time come back.

        Returns:
            The variables that its next kernel begins with; None if there were none.

        Raises:
            KernelError: there is no such checkpoint, it cannot be gone back to, or code runs;
                nothing is changed then.
            WorkspaceError: the operating system refuses.
        """
        launched, saved = self._pool.live.get(key), self._pool.snapshots
        workspace, work = await self._pool.workspace(key), copies_in_and_out.file_work
        checkpoint = await work(checkpoints.read, workspace, name)
        snapshot = None
        if checkpoint.pointer:
            snapshot = await work(saved.generations.find, workspace, checkpoint.pointer)
            if snapshot is None:
                raise errors.KernelError(_GONE)
            if is_whole and (snapshot.summary.lost_count or snapshot.summary.partly_count):
                raise errors.KernelError(_NOT_WHOLE)
        limits = self._pool.settings.limits
        await work(checkpoints.plan, workspace, checkpoint, limits)
        if launched is not None and not saved.interrupt(launched) and launched.kernel.is_busy:
            raise errors.KernelError(_BUSY)

        def change() -> None:
            # Once more: code may have gone on in the background until its kernel was closed.
            wanted = checkpoints.plan(workspace, checkpoint, limits)
            checkpoints.carry_out(wanted, workspace, limits)
            saved.generations.go_back(workspace, checkpoint.pointer)
            checkpoints.remove_since(workspace, name)

        async def go(_: workspaces.Workspace) -> None:
            async with saved.lock(workspace):
                await work(change)

        await self._pool.let_go(key, go)
        return snapshot.summary if snapshot is not None else None
