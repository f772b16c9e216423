"""Snapshots of a session's variables: saved by one kernel, restored by another.

They are written and tried out in forked children. A child has all variables as they were at the
fork, so what it does wrong, or takes long for, is not the kernel's; the next cell ends it. It reads
what it wrote; a variable that does not come back there is left out, the first one that fails only:
what follows it often fails for its lack. What no child came to in the last attempt is left out.

Above 300 lines: what the children write, try and tell only makes sense together.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import itertools
import json
import linecache
import os
import platform
import re
import signal
import sys
import time
import types
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from . import (
    snapshot_children,
    snapshot_files,
    snapshot_readers,
    snapshot_writers,
    variable_pickler,
)

FORMAT = 1
# What IPython itself defines while it runs cells.
_HISTORY = re.compile(r"_+|_i+|_[iod]h|_i?\d+|_exit_code|In|Out|__\w+__")
_NAME_CHARACTERS = 200
_MOST_ATTEMPTS = 10
# Of the time for saving: what the child that was at a variable may take to finish it.
_GRACE_SHARE = 0.25
# Of the same: for reading again without the variables that did not come back the last time.
_LAST_CHECKS_SHARE = 0.5
# Of the same: what all may take, with reading back what was written; `kernels/snapshots` waits so.
_LONGEST = 3
_NICENESS = 5
# What the bot reads of it; the rest of the entries is counted.
_MANIFEST_BYTES = 256 * 1024
_LISTED = (200, 50, 10, 0)
_LISTED_CHARACTERS = 40

_DIED = "saving it ended Python"
_MISSING = "its file was cut off, changed or damaged"
_UNREADABLE = "reading it back ended Python"
_UNTRIED = "it was not tried"

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
        and len(name) <= _NAME_CHARACTERS
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
    most_bytes: int,
    key: bytes = b"",
) -> int:
    """Begin to save variables as they are now.

    At the end a file `<number>.ended` appears; without a manifest there is no such generation then.
    `<number>.full` says that this is for a full disk, else `<number>.unsaved` why.

    Args:
        namespace: the session's.
        names: of its variables.
        directory: of its snapshots.
        number: of the generation; it must be new.
        seconds: after which no further variable is begun.
        most_bytes: that all pickles and buffers may have.
        key: encrypts all of it, if there is one.

    Returns:
        The process that does it, for `end`; it leads a group of processes.
    """
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            _leave_kernel(_LONGEST * seconds)
            _save_and_check(namespace, names, directory, number, seconds, most_bytes, key)
        except Exception as error:
            # Whatever it is, the bot is told: nobody else is there.
            if snapshot_files.is_disk_full(error):
                os.close(os.open(f"{os.path.join(directory, str(number))}.full", os.O_CREAT))
            else:
                why = json.dumps(variable_pickler.reason(error)).encode()
                snapshot_files.write_document(directory, f"{number}.unsaved", why, key)
        finally:
            try:
                os.close(os.open(f"{os.path.join(directory, str(number))}.ended", os.O_CREAT))
            finally:
                os._exit(0)
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
    # The session's may wait for all children there are, or let none be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Ends this process even where a library never returns to Python.
    signal.setitimer(signal.ITIMER_REAL, seconds)
    sys.stdout = sys.stderr = io.StringIO()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.nice(_NICENESS)


def _save_and_check(
    namespace: Namespace,
    names: list[str],
    directory: str,
    number: int,
    seconds: float,
    most_bytes: int,
    key: bytes,
) -> None:
    deadline = time.monotonic() + seconds
    end = deadline + seconds * _GRACE_SHARE
    lost: dict[str, str] = {}

    def write(tell: snapshot_children.Tell) -> None:
        files = snapshot_files.Writer(directory, number, most_bytes, key)
        writer = snapshot_writers.SnapshotWriter(namespace, names, files, tell)
        writer.write(lost, deadline, end)

    def check(tell: snapshot_children.Tell, skipped: Container[str] = ()) -> Any:
        return _check(directory, number, key, skipped, tell)

    for attempt in range(1, _MOST_ATTEMPTS + 1):
        most_seconds = end - time.monotonic()
        # Both in one child: to fork many variables takes longer than to read them.
        written, checked = snapshot_children.ask((write, most_seconds), (check, seconds))
        # The next one replaces what this one wrote, and is to come as far.
        left = deadline - time.monotonic()
        is_last = left < written.seconds + checked.seconds or attempt == _MOST_ATTEMPTS
        if not written.is_done:
            # What was lost before that will be again.
            lost |= {one["lost"]: one["why"] for one in written.messages if "lost" in one}
            if not any("anew" in one for one in written.messages):
                lost |= _ended_at(written, _DIED)
            if not is_last:
                continue
            if not _ended(written) and set(names) - lost.keys():
                # What was saved earlier is worth more.
                raise RuntimeError("no variable was reached")
            (checked,) = snapshot_children.ask((check, seconds))
        failed = _failures(checked)
        if failed and not is_last:
            name, why = next(iter(failed.items()))
            lost[name] = why
            continue
        messages = [*written.messages, *checked.messages]
        if failed:
            _check_again(check, messages, failed, seconds * _LAST_CHECKS_SHARE)
        untold = snapshot_writers.TOO_LATE if written.is_late else _UNTRIED
        ended = _ended(written)
        lost = {name: untold for name in names if name not in ended} | lost
        _write_manifest(directory, number, messages, lost, failed, key)
        return


def _check_again(
    check: Callable[..., Any],
    messages: list[snapshot_children.Message],
    failed: dict[str, str],
    seconds: float,
) -> None:
    """Read once more without what failed, as `restore` will, until nothing else fails.

    What shared a part with that has it no more, and may fail for it. Where the time is over before
    that, what is behind the first of those that failed last fails as well.

    Args:
        check: reads without those it is told.
        messages: of who wrote, and of the check before; takes those of further ones.
        failed: then; takes what fails.
        seconds: that all of it may take.
    """
    deadline = time.monotonic() + seconds
    more = dict(failed)
    while more and (left := deadline - time.monotonic()) > 0:
        (checked,) = snapshot_children.ask((functools.partial(check, skipped=failed), left))
        if not checked.at:
            break
        messages += checked.messages
        more = _failures(checked)
        failed |= more
    kept = [message["kept"] for message in messages if "kept" in message]
    for name in itertools.dropwhile(lambda name: name not in more, kept if more else ()):
        failed.setdefault(name, snapshot_writers.TOO_LATE)


def _ended_at(told: snapshot_children.Told, died: str) -> dict[str, str]:
    """Return what a child was at when it ended, and why it did.

    Raises:
        OSError: the system refused something, which is no variable's fault.
        RuntimeError: it was at nothing yet.
    """
    why = told.error or (snapshot_writers.TOO_LATE if told.is_late else died)
    if told.errno is not None:
        raise OSError(told.errno, why)
    if not told.at:
        raise RuntimeError(f"nothing was begun: {why}")
    return {told.at: why}


def _failures(checked: snapshot_children.Told) -> dict[str, str]:
    """Return what a check says that did not come back, or what it ended at, and why."""
    failed = {one["failed"]: one["why"] for one in checked.messages if "failed" in one}
    return failed if checked.is_done else failed | _ended_at(checked, _UNREADABLE)


def _ended(written: snapshot_children.Told) -> set[str]:
    """Return the variables that were written, or found not to be kept."""
    told = (message.get("kept", message.get("lost")) for message in written.messages)
    return {name for name in told if name}


def _check(
    directory: str, number: int, key: bytes, skipped: Container[str], tell: snapshot_children.Tell
) -> snapshot_readers.SnapshotReader:
    """Read a generation into a namespace of its own, as another kernel will; return who has it."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    variable_pickler.forget_classes()
    reader = snapshot_readers.SnapshotReader(
        directory, number, module.__dict__, key=key, skipped=skipped, is_check=True
    )
    at = ""
    for name in itertools.chain(reader.variables(), [""]):
        if at in reader.failed:
            tell({"failed": at, "why": reader.failed[at]})
        elif at in reader.partly:
            tell({"unread": reader.partly[at], "of": at})
        if at := name:
            tell({"at": at})
    return reader


def _write_manifest(
    directory: str,
    number: int,
    messages: list[snapshot_children.Message],
    lost: dict[str, str],
    failed: dict[str, str],
    key: bytes,
) -> None:
    kept = [one for one in messages if "kept" in one and one["kept"] not in failed]
    details = {
        "python": platform.python_version_tuple()[:2],
        "skipped": list(failed),
        "kept": [one["kept"] for one in kept],
        "cells": {one["cell"]: one["text"] for one in messages if "cell" in one},
    }
    content = json.dumps(details).encode()
    snapshot_files.write_document(directory, f"{number}/details.json", content, key)
    gone = {one["lost"]: one["why"] for one in messages if "lost" in one} | lost | failed
    parts = {one["kept"]: one["partly"] for one in kept}
    for one in messages:
        if one.get("of") in parts:
            parts[one["of"]] = list(dict.fromkeys(parts[one["of"]] + one["unread"]))
    partly = {name: ", ".join(words) for name, words in parts.items() if words}
    for most in _LISTED:
        manifest = {
            "format": FORMAT,
            "kept": _listed((one["kept"] for one in kept), most),
            "kept_count": len(kept),
            "lost": dict(_shortened(gone, most)),
            "lost_count": len(gone),
            "partly": dict(_shortened(partly, most)),
            "partly_count": len(partly),
            "blobs": {name: size for message in kept for name, size in message["blobs"].items()},
        }
        content = json.dumps(manifest, ensure_ascii=False).encode("utf-8", "backslashreplace")
        if len(content) <= _MANIFEST_BYTES:
            break
    snapshot_files.write_document(directory, f"{number}/{snapshot_files.MANIFEST}", content, key)


def _listed(names: Iterable[str], most: int) -> list[str]:
    return [name[:_LISTED_CHARACTERS] for name in itertools.islice(names, most)]


def _shortened(told: dict[str, str], most: int) -> Iterator[tuple[str, str]]:
    for name, words in itertools.islice(told.items(), most):
        yield name[:_LISTED_CHARACTERS], words[: variable_pickler.REASON_CHARACTERS]


def restore(namespace: Namespace, directory: str, number: int, key: bytes = b"") -> dict[str, str]:
    """Bring variables back, in a kernel that has run nothing yet; what failed is written as well.

    Args:
        namespace: the session's.
        directory: of its snapshots.
        number: of the generation.
        key: that it was written with.

    Returns:
        What did not come back although it had been kept, and why.

    Raises:
        OSError: there is no such generation.
        ValueError: its files are none of ours.
        DamagedError: they were not written with this key.
    """
    details = json.loads(snapshot_files.read_document(directory, f"{number}/details.json", key))
    reader = snapshot_readers.SnapshotReader(
        directory,
        number,
        namespace,
        key=key,
        skipped=details["skipped"],
        is_other_python=tuple(details["python"]) != platform.python_version_tuple()[:2],
    )
    missing = dict.fromkeys(details.get("kept", ()), _MISSING)
    for name in reader.variables():
        missing.pop(name, None)
    reader.failed.update(missing)
    for file_name, text in details["cells"].items():
        lines = text.splitlines(keepends=True)
        linecache.cache[file_name] = (len(text), None, lines, file_name)
    failed = dict(_shortened(reader.failed, _LISTED[0]))
    content = json.dumps(failed, ensure_ascii=False).encode("utf-8", "backslashreplace")
    failures = content[:_MANIFEST_BYTES]
    try:
        snapshot_files.write_document(directory, f"{number}/failed.json", failures, key)
    except OSError as error:
        # Variables are back nevertheless.
        if failed or not snapshot_files.is_disk_full(error):
            raise
    return reader.failed
