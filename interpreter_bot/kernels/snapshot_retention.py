"""Retention of snapshots: how much is saved of sessions, and its deletion when old or too much."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import shutil
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from interpreter_bot import errors, session_variables, settings
from interpreter_bot.kernels import snapshot_generations, snapshots
from interpreter_bot.kernels.files import safe_open, session_locks, workspace_io, workspaces

_log = logging.getLogger(__name__)

_DAY_SECONDS: Final = 86_400.0
# What is measured is counted to its end.
_NO_LIMIT: Final = 1 << 60


@dataclasses.dataclass(frozen=True, slots=True)
class _StoredSnapshot:
    """What is saved of a session, when that was used last, and how large it is."""

    workspace: workspaces.Workspace
    has_kernel: bool
    used_at: float
    bytes: int


async def expire(
    saved: snapshots.Snapshots,
    everyone: Iterable[workspaces.Workspace],
    locks: session_locks.SessionLocks,
    config: settings.Snapshots,
) -> int:
    """Delete snapshots that are old, or too much, the least recently used first.

    What no snapshot needs goes as well, and everything if none are taken any more. Sessions in use
    are left to those who use them, and wait while something of them is deleted. Of others, files
    that were staged by a process that died go too.

    Args:
        saved: the snapshots.
        everyone: the workspaces there are.
        locks: of this process.
        config: how long snapshots are kept, and their share of the disk.

    Returns:
        How many were deleted.
    """
    stored = []
    for workspace in everyone:
        try:
            async with locks.unused(workspace) as is_unused:
                if is_unused:
                    await saved.tidy(workspace)
                    await workspace_io.file_work(_remove_old_staging, workspace.staging)
                used_at = await workspace_io.file_work(snapshot_generations.used_at, workspace)
                if used_at is not None:
                    usage = await workspace.variables_usage(most_bytes=_NO_LIMIT)
                    stored.append(_StoredSnapshot(workspace, not is_unused, used_at, usage.bytes))
        except errors.WorkspaceError:
            # One that is deleted meanwhile, at best.
            _log.info("nothing of session %s is tidied", workspace.name, exc_info=True)
    count = 0
    for workspace in await workspace_io.file_work(_to_expire, stored, config):
        with contextlib.suppress(errors.WorkspaceError):
            async with locks.unused(workspace) as is_unused, saved.lock(workspace):
                if is_unused:
                    await saved.forget(workspace)
                    count += 1
    return count


def _remove_old_staging(staging: pathlib.Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        # Undo and arrival begin to stage before they lock the session; neither takes a day.
        if staging.stat().st_mtime < time.time() - _DAY_SECONDS:
            safe_open.remove(staging)


def _to_expire(
    stored: Iterable[_StoredSnapshot], config: settings.Snapshots
) -> list[workspaces.Workspace]:
    """Return the sessions without a kernel whose snapshot is old or too much. Blocks."""
    ordered = sorted(stored, key=lambda one: (one.has_kernel, one.used_at), reverse=True)
    if not ordered:
        return []
    oldest = time.time() - config.days * _DAY_SECONDS
    disk = shutil.disk_usage(ordered[0].workspace.variables.parent.parent)
    left_bytes = config.disk_share * disk.total
    expired = []
    for snapshot in ordered:
        left_bytes -= snapshot.bytes
        if (snapshot.used_at < oldest or left_bytes < 0) and not snapshot.has_kernel:
            expired.append(snapshot.workspace)
    return expired


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
