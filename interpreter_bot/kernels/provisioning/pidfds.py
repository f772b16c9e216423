"""Processes by descriptors, which mean the same process for ever, as numbers do not."""

from __future__ import annotations

import contextlib
import pathlib
import signal


def pid_of(pidfd: int) -> int:
    """Translate a process descriptor into a pid as we count them."""
    text = pathlib.Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pid:"))


def send_signal(pidfd: int, signum: int) -> None:
    """Signal a process; nothing happens when it is gone, or the descriptor is none (-1)."""
    if pidfd >= 0:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signum)
