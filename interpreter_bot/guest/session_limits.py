"""Sizes of disk and processor as code sees them: the session's limits, not the machine's.

This is no wall, but lets programs choose buffer sizes and thread counts that fit.
"""

from __future__ import annotations

import math
import os
from typing import Any

_MAX_COUNTED_FILES = 20_000
_TEMPORARY_DIRECTORIES = ("/tmp/", "/dev/shm/")


def install(home: str, *, workspace_bytes: int, cpu_cores: float) -> None:
    """Let `shutil.disk_usage`, `os.statvfs` and `os.cpu_count` return the session's limits."""
    original_statvfs, real_home = os.statvfs, os.path.realpath(home)
    cores = max(min(math.ceil(cpu_cores), os.cpu_count() or 1), 1)

    def statvfs(path: Any) -> os.statvfs_result:
        status = original_statvfs(path)
        if _is_temporary(path, real_home) or not status.f_frsize:
            return status
        workspace = original_statvfs(home)
        total_blocks = workspace_bytes // status.f_frsize
        used_blocks = _measure_used_bytes(home) // status.f_frsize
        available_blocks = workspace.f_bavail * workspace.f_frsize // status.f_frsize
        free_blocks = max(min(total_blocks - used_blocks, available_blocks), 0)
        fields = list(status)
        fields[2:5] = [total_blocks, free_blocks, free_blocks]
        return os.statvfs_result(fields)

    def cpu_count() -> int:
        return cores

    for name, function in (("statvfs", statvfs), ("cpu_count", cpu_count)):
        # The importable name, by which variables with this function are pickled.
        function.__module__, function.__qualname__ = "os", name
        setattr(os, name, function)
    if hasattr(os, "process_cpu_count"):
        os.process_cpu_count = cpu_count


def _is_temporary(path: Any, home: str) -> bool:
    if isinstance(path, int):
        path = os.readlink(f"/proc/self/fd/{path}")
    real_path = f"{os.path.realpath(os.fsdecode(path))}/"
    # Without mounts, the workspaces may be in /tmp themselves.
    return not real_path.startswith(f"{home}/") and real_path.startswith(_TEMPORARY_DIRECTORIES)


def _measure_used_bytes(home: str) -> int:
    """Return the size of the workspace in bytes, counting a bounded number of files."""
    used_bytes, remaining_files = 0, _MAX_COUNTED_FILES
    for directory, _, names in os.walk(home):
        for name in names:
            try:
                used_bytes += os.lstat(os.path.join(directory, name)).st_blocks * 512
            except OSError:
                # The file was deleted in the meantime.
                continue
            remaining_files -= 1
        if remaining_files < 0:
            break
    return used_bytes
