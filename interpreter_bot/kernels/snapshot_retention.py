"""Retention of snapshots: how much is saved of sessions, and its deletion when old or too much."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from interpreter_bot import errors, session_variables
from interpreter_bot.kernels import snapshot_generations, snapshots
from interpreter_bot.kernels.files import session_locks, workspace_io, workspaces

_log = logging.getLogger(__name__)

# Nothing is larger: what is measured for people is counted to its end.
_NO_LIMIT: Final = 1 << 60


async def expire(
    saved: snapshots.Snapshots,
    everyone: Iterable[workspaces.Workspace],
    locks: session_locks.SessionLocks,
) -> int:
    """Delete snapshots that are old, or too much, the least recently used first.

    What is no part of one goes as well, and all of them where none are taken any more. Sessions
    that are in use are left to who uses them, and wait as long as something of them is deleted.

    Args:
        saved: the snapshots.
        everyone: the workspaces there are.
        locks: of this process.

    Returns:
        How many were deleted.
    """
    work, generations, found = workspace_io.file_work, saved.generations, []
    for workspace in everyone:
        try:
            async with locks.unused(workspace) as is_unused:
                if is_unused:
                    await saved.tidy(workspace)
                held = await work(generations.held, workspace, has_kernel=not is_unused)
        except errors.WorkspaceError:
            # One that is deleted meanwhile, at best.
            _log.info("nothing of session %s is tidied", workspace.name, exc_info=True)
        else:
            found += [held] if held is not None else []
    count = 0
    for workspace in await work(generations.to_expire, found):
        with contextlib.suppress(errors.WorkspaceError):
            async with locks.unused(workspace) as is_unused, saved.lock(workspace):
                if is_unused:
                    await saved.forget(workspace)
                    count += 1
    return count


async def measure(
    everyone: Iterable[workspaces.Workspace], keys: Collection[str]
) -> Mapping[str, session_variables.SnapshotSize]:
    """Measure what is saved of sessions; one of which nothing is saved is missing.

    Args:
        everyone: the workspaces there are.
        keys: of the sessions.
    """
    named = {workspaces.Workspaces.name_of(key): key for key in keys}
    sizes = {}
    for workspace in everyone:
        if (key := named.get(workspace.name)) is None:
            continue
        try:
            at = await workspace_io.file_work(snapshot_generations.used_at, workspace)
            if at is not None:
                usage = await workspace.variables_usage(most_bytes=_NO_LIMIT)
                sizes[key] = session_variables.SnapshotSize(usage.bytes, at)
        except errors.WorkspaceError:
            # One that is deleted meanwhile, at best.
            _log.warning("what is saved of %s is not counted", workspace.name, exc_info=True)
    return sizes
