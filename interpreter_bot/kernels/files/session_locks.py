"""Locks on sessions: of all processes with the same data directory, one has a session's kernel.

It is the system's lock on the session's own directory, so it ends with the process that holds it,
however that ends. No kernel has that directory, only what lies in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator
from typing import Final

from interpreter_bot import errors
from interpreter_bot.kernels.files import workspace_io, workspaces
from interpreter_bot.wording import variable_words

_POLL_SECONDS: Final = 0.05
# Whoever has it may be saving its variables.
_MAX_SECONDS: Final = 45.0


class SessionLocks:
    """The sessions that this process has."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    async def take(self, workspace: workspaces.Workspace) -> None:
        """Have a session; waits for a process that has it now. One that is had already stays so.

        Its directories are made if they are missing.

        Raises:
            KernelStartError: it is another one's for too long.
            WorkspaceError: its directory cannot be used.
        """
        if workspace.name in self._descriptors:
            await workspace_io.file_work(workspaces.make, workspace)
        give_up = time.monotonic() + _MAX_SECONDS
        while workspace.name not in self._descriptors:
            taken = await _locked(workspace, is_made=True)
            if taken is not None:
                self._descriptors[workspace.name] = taken
            elif time.monotonic() > give_up:
                raise errors.KernelStartError(variable_words.USED_ELSEWHERE)
            else:
                await asyncio.sleep(_POLL_SECONDS)

    def leave(self, name: str) -> None:
        """Let others have the session of a workspace."""
        if (descriptor := self._descriptors.pop(name, None)) is not None:
            os.close(descriptor)

    @contextlib.asynccontextmanager
    async def unused(self, workspace: workspaces.Workspace) -> AsyncIterator[bool]:
        """Keep all from beginning to use a session; says whether nobody does, and waits for nobody.

        Raises:
            WorkspaceError: its directory cannot be used.
        """
        is_ours = workspace.name in self._descriptors
        taken = None if is_ours else await _locked(workspace, is_made=False)
        try:
            yield taken is not None
        finally:
            if taken is not None:
                os.close(taken)

    def close(self) -> None:
        """Let others have all sessions."""
        for name in tuple(self._descriptors):
            self.leave(name)


async def _locked(workspace: workspaces.Workspace, *, is_made: bool) -> int | None:
    """Lock a session's directory; returns what holds the lock, None if another process does."""
    taken: list[int] = []
    try:
        await workspace_io.file_work(_lock, workspace, taken, is_made=is_made)
    except asyncio.CancelledError:
        # It was done all the same, and nobody would end it.
        for descriptor in taken:
            os.close(descriptor)
        raise
    return taken[0] if taken else None


def _lock(workspace: workspaces.Workspace, taken: list[int], *, is_made: bool) -> None:
    """Do that in a thread, and add what holds the lock; make the directories before, if asked."""
    if is_made:
        workspaces.make(workspace)
    path = workspace.directory.parent
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # One that was deleted meanwhile is nobody's.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            taken.append(descriptor)
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
