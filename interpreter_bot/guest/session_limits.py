"""Sizes of disk and processor as code sees them: the session's limits, not the machine's.

This is no wall, but lets programs choose buffer sizes and thread counts that fit.
"""

from __future__ import annotations

import math
import os
from typing import Any

_MAX_COUNTED_FILES = 20_000
_TEMPORARY = ("/tmp/", "/dev/shm/")


def install(home: str, *, workspace_bytes: int, cpu_cores: float) -> None:
    """Let `shutil.disk_usage`, `os.statvfs` and `os.cpu_count` return the session's limits."""
    statvfs_of, real_home = os.statvfs, os.path.realpath(home)
    cores = max(min(math.ceil(cpu_cores), os.cpu_count() or 1), 1)

    def statvfs(path: Any) -> os.statvfs_result:
        status = statvfs_of(path)
        if _is_temporary(path, real_home) or not status.f_frsize:
            return status
        workspace = statvfs_of(home)
        total = workspace_bytes // status.f_frsize
        used = _used_bytes(home) // status.f_frsize
        available = workspace.f_bavail * workspace.f_frsize // status.f_frsize
        free = max(min(total - used, available), 0)
        fields = list(status)
        fields[2:5] = [total, free, free]
        return os.statvfs_result(fields)

    def cpu_count() -> int:
        return cores

    for name, function in (("statvfs", statvfs), ("cpu_count", cpu_count)):
        # Its importable name, by which a variable that refers to this function is pickled.
        function.__module__, function.__qualname__ = "os", name
        setattr(os, name, function)
    if hasattr(os, "process_cpu_count"):
        os.process_cpu_count = cpu_count


def _is_temporary(path: Any, home: str) -> bool:
    if isinstance(path, int):
        path = os.readlink(f"/proc/self/fd/{path}")
    real = f"{os.path.realpath(os.fsdecode(path))}/"
    # Without mounts, the directory of all workspaces may itself be in /tmp.
    return not real.startswith(f"{home}/") and real.startswith(_TEMPORARY)


def _used_bytes(home: str) -> int:
    """Return the size of the workspace in bytes, counting a bounded number of files."""
    used, remaining = 0, _MAX_COUNTED_FILES
    for directory, _, names in os.walk(home):
        for name in names:
            try:
                used += os.lstat(os.path.join(directory, name)).st_blocks * 512
            except OSError:
                # Deleted meanwhile.
                continue
            remaining -= 1
        if remaining < 0:
            break
    return used
