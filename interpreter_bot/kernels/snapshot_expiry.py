"""What is saved of sessions is deleted when it is old, or too much."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from interpreter_bot import errors
from interpreter_bot.kernels import snapshots
from interpreter_bot.kernels.files import copies_in_and_out, workspaces


async def expire(
    saved: snapshots.Snapshots,
    everyone: Iterable[workspaces.Workspace],
    in_use: Callable[[], Iterable[str]],
) -> int:
    """Delete snapshots that are old, or too much, the least recently used first.

    What is no part of one goes as well, and all of them where none are taken any more.

    Args:
        saved: the snapshots.
        everyone: the workspaces there are.
        in_use: returns the sessions that have a kernel now; this takes its time.

    Returns:
        How many were deleted.
    """

    def has_kernel(workspace: workspaces.Workspace) -> bool:
        return workspace.name in map(workspaces.Workspaces.name_of, in_use())

    found = []
    for workspace in everyone:
        async with saved.lock(workspace):
            if not (is_in_use := has_kernel(workspace)):
                await saved.tidy_locked(workspace)
        with contextlib.suppress(errors.WorkspaceError):
            # One that is deleted meanwhile; `tidy_locked` says what else is wrong.
            held = await copies_in_and_out.file_work(
                saved.generations.held, workspace, has_kernel=is_in_use
            )
            found += [held] if held is not None else []
    count = 0
    for workspace in await copies_in_and_out.file_work(saved.generations.to_expire, found):
        async with saved.lock(workspace):
            if not has_kernel(workspace):
                await saved.forget(workspace)
                count += 1
    return count
