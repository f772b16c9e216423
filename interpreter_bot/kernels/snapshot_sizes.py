"""Sizes of what is saved of sessions, whether a host is there or not."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from interpreter_bot import errors, session_variables
from interpreter_bot.kernels import snapshot_generations
from interpreter_bot.kernels.files import workspace_io, workspaces

_log = logging.getLogger(__name__)

# Nothing is larger: what is measured for people is counted to its end.
_NO_LIMIT: Final = 1 << 60


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
