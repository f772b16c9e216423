"""Snapshots of a session's variables: saved by one kernel, restored by another.

They are written and tried out in forked children (`snapshot_writers`). A child has all variables
as they were at the fork, so what it does wrong, or takes long for, is not the kernel's; the next
cell ends it.
"""

from __future__ import annotations

import contextlib
import gc
import io
import linecache
import os
import pathlib
import platform
import re
import signal
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from . import snapshot_files, snapshot_readers, snapshot_writers, syscalls, variable_pickler

# What IPython itself defines while it runs cells.
_HISTORY = re.compile(r"_+|_i+|_[iod]h|_i?\d+|_exit_code|In|Out|__\w+__")
_MAX_NAME_CHARACTERS = 200
# Of the time for saving: what all may take, with reading back what was written;
# `kernels/snapshots` waits so.
_LONGEST = 3
_NICENESS = 5
_MAX_DESCRIPTORS = 1 << 16
# Of processes that one started of the other; a storm of forks might never end.
_MAX_DESCENTS = 10
# That the bot reads.
_MAX_FAILURES = 200

Namespace = dict[str, Any]


def names_of(namespace: Namespace, hidden: Mapping[str, Any]) -> list[str]:
    """Return the names of a shell's variables that are saved.

    Args:
        namespace: all that is defined there.
        hidden: what every session begins with.
    """
    return [
        name
        for name in list(namespace)
        if type(name) is str
        and len(name) <= _MAX_NAME_CHARACTERS
        and name.isidentifier()
        and not _HISTORY.fullmatch(name)
        and not (name in hidden and namespace[name] is hidden[name])
    ]


def begin(
    namespace: Namespace,
    names: list[str],
    directory: str,
    number: int,
    *,
    seconds: float,
    max_bytes: int,
) -> int:
    """Begin to save variables as they are now; the manifest is there at the end, which says how.

    Args:
        namespace: the session's.
        names: of its variables.
        directory: of its snapshots.
        number: of the generation; it must be new.
        seconds: after which no further variable is begun.
        max_bytes: that all pickles and buffers may have.

    Returns:
        The process that does it, for `end`; it leads a group of processes.
    """
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            _leave_kernel(_LONGEST * seconds)
            snapshot_writers.SnapshotWriter(
                *(namespace, names, directory, number), seconds=seconds, max_bytes=max_bytes
            ).save()
        except Exception as error:
            # Whatever it is, the bot is told: nobody else is there. Code may have taken all
            # descriptors.
            os.closerange(3, _MAX_DESCRIPTORS)
            os.makedirs(os.path.join(directory, str(number)), mode=0o700, exist_ok=True)
            snapshot_writers.write_manifest(
                *(directory, number),
                problem=variable_pickler.reason(error),
                is_disk_full=snapshot_files.is_disk_full(error),
            )
        finally:
            _end_with_others()
    with contextlib.suppress(OSError):
        # Whichever of the two comes first; the child may be gone already.
        os.setpgid(child, child)
    return child


def end(child: int) -> None:
    """End what `begin` began, whether it is done or not, without waiting until it is gone."""
    # Its number and its group are its own until it is waited for.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def is_gone(child: int) -> bool:
    """Return whether a process of `begin` that was ended is gone; if so, nothing is left of it."""
    try:
        return os.waitpid(child, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        # Code may have waited for all children there are.
        return True


def _leave_kernel(seconds: float) -> None:
    """Leave everything that belongs to the kernel; its streams lead to its sockets."""
    # What it finds is the kernel's to end: a file would be written by both.
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    # The session's may wait for all children there are, or let none be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Ends this process even where a library never returns to Python.
    signal.setitimer(signal.ITIMER_REAL, seconds)
    sys.stdout = sys.stderr = io.StringIO()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    if nowhere > 2:
        os.close(nowhere)
    os.nice(_NICENESS)
    with contextlib.suppress(OSError):
        # Where the system has no such thing, what leaves the group of processes is not ended.
        syscalls.adopt_orphans()


def _end_with_others() -> NoReturn:
    """End this process with what variables started while they were saved."""
    try:
        children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
        for _ in range(_MAX_DESCENTS):
            # Those that the last ones left behind.
            found = children.read_text().split()
            for child in found:
                os.kill(int(child), signal.SIGKILL)
            for _ in found:
                os.waitpid(-1, 0)
    finally:
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(0)


def restore(namespace: Namespace, directory: str, number: int) -> dict[str, str]:
    """Bring variables back, in a kernel that has run nothing yet.

    Args:
        namespace: the session's.
        directory: of its snapshots.
        number: of the generation.

    Returns:
        What did not come back although it had been kept, and why.

    Raises:
        OSError: there is no such generation.
        ValueError: its files are none of ours.
    """
    index = snapshot_files.read_index(directory, number)
    is_other_python = tuple(index.python) != platform.python_version_tuple()[:2]
    reader = snapshot_readers.SnapshotReader(
        directory, number, namespace, is_other_python=is_other_python
    )
    for record in index.records:
        for _ in reader.read(record):
            pass
        reader.run_sources(record)
    for file_name, text in index.cells.items():
        lines = text.splitlines(keepends=True)
        linecache.cache[file_name] = (len(text), None, lines, file_name)
    return dict(snapshot_writers.shortened(reader.failed, _MAX_FAILURES))
