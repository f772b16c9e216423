"""Locks by which a process shows others that it still uses a file or directory."""

from __future__ import annotations

import fcntl
import os
import pathlib


def is_locked(path: pathlib.Path) -> bool:
    """Return whether another process holds a lock on a file or directory; blocks briefly."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
