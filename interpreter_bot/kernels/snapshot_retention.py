"""Retention of snapshots: their sizes, and the deletion of old ones and of too many."""

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
# Sizes are counted to the end.
_UNLIMITED: Final = 1 << 60


@dataclasses.dataclass(frozen=True, slots=True)
class _StoredSnapshot:
    """A session's snapshot, with the time of its last use and its size."""

    workspace: workspaces.Workspace
    has_kernel: bool
    used_at: float
    bytes: int


async def expire(
    saved: snapshots.Snapshots,
    all_workspaces: Iterable[workspaces.Workspace],
    locks: session_locks.SessionLocks,
    config: settings.Snapshots,
) -> int:
    """Delete old snapshots, and the least recently used ones over the limit; return their number.

    Files that no snapshot needs are deleted, too, as are files that a dead process staged. Sessions
    in use are skipped.
    """
    stored = []
    for workspace in all_workspaces:
        try:
            async with locks.locked_if_unused(workspace) as is_unused:
                if is_unused:
                    await saved.tidy(workspace)
                    await workspace_io.in_thread(_remove_old_staging, workspace.staging)
                used_at = await workspace_io.in_thread(snapshot_generations.used_at, workspace)
                if used_at is not None:
                    usage = await workspace.variables_usage(max_bytes=_UNLIMITED)
                    stored.append(_StoredSnapshot(workspace, not is_unused, used_at, usage.bytes))
        except errors.WorkspaceError:
            # The workspace may just have been deleted.
            _log.info("session %s is not tidied", workspace.name, exc_info=True)
    count = 0
    for workspace in await workspace_io.in_thread(_to_expire, stored, config):
        with contextlib.suppress(errors.WorkspaceError):
            async with locks.locked_if_unused(workspace) as is_unused, saved.lock(workspace):
                if is_unused:
                    await saved.forget(workspace)
                    count += 1
    return count


def _remove_old_staging(staging: pathlib.Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        # Undo and arrival stage files before they lock the session, but never for a day.
        if staging.stat().st_mtime < time.time() - _DAY_SECONDS:
            safe_open.remove(staging)


def _to_expire(
    stored: Iterable[_StoredSnapshot], config: settings.Snapshots
) -> list[workspaces.Workspace]:
    """Return the workspaces without a kernel whose snapshot is old or over the limit. Blocks."""
    ordered = sorted(
        stored, key=lambda snapshot: (snapshot.has_kernel, snapshot.used_at), reverse=True
    )
    if not ordered:
        return []
    oldest = time.time() - config.days * _DAY_SECONDS
    disk = shutil.disk_usage(ordered[0].workspace.variables.parent.parent)
    available_bytes = config.disk_share * disk.total
    expired = []
    for snapshot in ordered:
        available_bytes -= snapshot.bytes
        if (snapshot.used_at < oldest or available_bytes < 0) and not snapshot.has_kernel:
            expired.append(snapshot.workspace)
    return expired


async def measure(
    all_workspaces: Iterable[workspaces.Workspace], keys: Collection[str]
) -> Mapping[str, session_variables.SnapshotSize]:
    """Measure the snapshots of the sessions `keys`; sessions without a snapshot are missing."""
    keys_by_name = {workspaces.Workspaces.name_of(key): key for key in keys}
    sizes = {}
    for workspace in all_workspaces:
        if (key := keys_by_name.get(workspace.name)) is None:
            continue
        try:
            used_at = await workspace_io.in_thread(snapshot_generations.used_at, workspace)
            if used_at is not None:
                usage = await workspace.variables_usage(max_bytes=_UNLIMITED)
                sizes[key] = session_variables.SnapshotSize(usage.bytes, used_at)
        except errors.WorkspaceError:
            # The workspace may just have been deleted.
            _log.warning("the snapshot of %s is not counted", workspace.name, exc_info=True)
    return sizes
