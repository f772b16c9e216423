"""Locks on sessions: only one of the processes that share a data directory has a session's kernel.

A lock is a file lock on the session's directory, so it ends with the process that holds it. Kernels
can open directories below it, but not the directory itself.
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
# The process that holds the lock may be saving variables.
_MAX_WAIT_SECONDS: Final = 45.0


class SessionLocks:
    """Locks that this process holds."""

    def __init__(self) -> None:
        self._descriptors_by_name: dict[str, int] = {}

    async def acquire(self, workspace: workspaces.Workspace) -> None:
        """Lock a session, unless it is locked already; wait while another process has the lock.

        The session's directories are created if missing.

        Raises:
            KernelStartError: another process held the lock for too long.
            WorkspaceError: the session's directory cannot be used.
        """
        if workspace.name in self._descriptors_by_name:
            await workspace_io.in_thread(workspaces.make_directories, workspace)
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while workspace.name not in self._descriptors_by_name:
            descriptor = await _try_to_lock(workspace, creates_missing=True)
            if descriptor is not None:
                self._descriptors_by_name[workspace.name] = descriptor
            elif time.monotonic() > deadline:
                raise errors.KernelStartError(variable_words.USED_ELSEWHERE)
            else:
                await asyncio.sleep(_POLL_SECONDS)

    def release(self, name: str) -> None:
        """Unlock the session with this workspace name, if it is locked."""
        if (descriptor := self._descriptors_by_name.pop(name, None)) is not None:
            os.close(descriptor)

    @contextlib.asynccontextmanager
    async def lock_if_unused(self, workspace: workspaces.Workspace) -> AsyncIterator[bool]:
        """Lock a session while the context is open, if it is unused; yield whether it is locked.

        Raises:
            WorkspaceError: the session's directory cannot be used.
        """
        is_ours = workspace.name in self._descriptors_by_name
        descriptor = None if is_ours else await _try_to_lock(workspace, creates_missing=False)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def close(self) -> None:
        for name in tuple(self._descriptors_by_name):
            self.release(name)


async def _try_to_lock(workspace: workspaces.Workspace, *, creates_missing: bool) -> int | None:
    """Lock a session's directory, and return the descriptor; None if another process holds it."""
    descriptors: list[int] = []
    try:
        await workspace_io.in_thread(_lock, workspace, descriptors, creates_missing=creates_missing)
    except asyncio.CancelledError:
        # The thread has finished all the same, and nothing else closes its descriptor.
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return descriptors[0] if descriptors else None


def _lock(
    workspace: workspaces.Workspace, descriptors: list[int], *, creates_missing: bool
) -> None:
    """Lock a session's directory if it is free, and append the descriptor. Blocks."""
    if creates_missing:
        workspaces.make_directories(workspace)
    path = workspace.directory.parent
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If the directory was replaced meanwhile, a lock on the old one has no effect.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            descriptors.append(descriptor)
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
