"""Retention of snapshots: measures them, and deletes old ones and those over the limit."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import pathlib
import shutil
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from interpreter_bot import errors, session_variables
from interpreter_bot.kernels import snapshot_generations, snapshots
from interpreter_bot.kernels.files import safe_open, session_locks, workspace_io, workspaces

_log = logging.getLogger(__name__)

_DAY_SECONDS: Final = 86_400.0
_MAX_DISK_SHARE: Final = 0.2
# No limit: sizes are measured completely.
_UNLIMITED: Final = 1 << 60


@dataclasses.dataclass(frozen=True, slots=True)
class _StoredSnapshot:
    """A session's snapshot, with the time of its last use and its size."""

    workspace: workspaces.Workspace
    has_kernel: bool
    used_at: float
    bytes: int


async def expire(
    session_snapshots: snapshots.Snapshots,
    all_workspaces: Iterable[workspaces.Workspace],
    locks: session_locks.SessionLocks,
    *,
    max_days: float,
    max_disk_share: float = _MAX_DISK_SHARE,
) -> int:
    """Delete old snapshots, and the least recently used ones over the limit; return their number.

    Also deletes files that no snapshot needs, and files that a dead process staged. Skips sessions
    in use.

    Args:
        session_snapshots: the snapshots.
        all_workspaces: the workspaces of all sessions.
        locks: the locks of sessions in use.
        max_days: days since a snapshot was last saved or restored; 0 means no limit.
        max_disk_share: share of the disk for all snapshots.
    """
    stored_snapshots = []
    for workspace in all_workspaces:
        try:
            async with locks.lock_if_unused(workspace) as is_unused:
                if is_unused:
                    await session_snapshots.tidy(workspace)
                    await workspace_io.in_thread(_remove_old_staging, workspace.staging)
                used_at = await workspace_io.in_thread(snapshot_generations.last_used_at, workspace)
                if used_at is not None:
                    usage = await workspace.variables_usage(max_bytes=_UNLIMITED)
                    stored_snapshots.append(
                        _StoredSnapshot(workspace, not is_unused, used_at, usage.bytes)
                    )
        except errors.WorkspaceError:
            # The workspace may just have been deleted.
            _log.info("session %s is not tidied", workspace.name, exc_info=True)
    deleted_count = 0
    for workspace in await workspace_io.in_thread(
        _choose_expired, stored_snapshots, max_days, max_disk_share
    ):
        with contextlib.suppress(errors.WorkspaceError):
            async with (
                locks.lock_if_unused(workspace) as is_unused,
                session_snapshots.lock(workspace),
            ):
                if is_unused:
                    await session_snapshots.forget(workspace)
                    deleted_count += 1
    return deleted_count


def _remove_old_staging(staging: pathlib.Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        # Undoing and fetching stage files before they lock the session, but never for as long as a
        # day.
        if staging.stat().st_mtime < time.time() - _DAY_SECONDS:
            safe_open.remove(staging)


def _choose_expired(
    stored_snapshots: Iterable[_StoredSnapshot], max_days: float, max_disk_share: float
) -> list[workspaces.Workspace]:
    """Return the workspaces without a kernel whose snapshot is old or over the limit. Blocks."""
    latest_first = sorted(
        stored_snapshots, key=lambda snapshot: (snapshot.has_kernel, snapshot.used_at), reverse=True
    )
    if not latest_first:
        return []
    min_used_at = time.time() - (max_days or math.inf) * _DAY_SECONDS
    disk = shutil.disk_usage(latest_first[0].workspace.variables.parent.parent)
    available_bytes = max_disk_share * disk.total
    expired_workspaces = []
    for snapshot in latest_first:
        available_bytes -= snapshot.bytes
        if (snapshot.used_at < min_used_at or available_bytes < 0) and not snapshot.has_kernel:
            expired_workspaces.append(snapshot.workspace)
    return expired_workspaces


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
            used_at = await workspace_io.in_thread(snapshot_generations.last_used_at, workspace)
            if used_at is not None:
                usage = await workspace.variables_usage(max_bytes=_UNLIMITED)
                sizes[key] = session_variables.SnapshotSize(usage.bytes, used_at)
        except errors.WorkspaceError:
            # The workspace may just have been deleted.
            _log.warning("the snapshot of %s is not counted", workspace.name, exc_info=True)
    return sizes
