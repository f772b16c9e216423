"""Checkpoints of a session: its states before code ran, to go back to. Functions block.

Checkpoints are in a directory out of reach of code. Each is a file that names a copy of the
session's files and has the signed pointer to the generation of variables that was current. If no
file changed between two checkpoints, they share a copy. If files are too many, too large or cannot
be copied, a checkpoint has only variables, and records why.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import pathlib
import re
import time
from typing import Final

from interpreter_bot import errors
from interpreter_bot.kernels.files import (
    directory_contents,
    file_copies,
    safe_open,
    workspace_io,
)
from interpreter_bot.wording import file_words

_log = logging.getLogger(__name__)

_PARTIAL_FILE_NAME: Final = ".partial"
_NAME_PATTERN: Final = re.compile(r"[0-9a-zA-Z-]{1,64}")
_UNLIMITED: Final = 1 << 60
# Two changes of a file within one tick of Linux's clock get the same time.
_TICK_NS: Final = 20_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """State of a session at one moment.

    Attributes:
        at_ns: time since the epoch; later than that of all earlier checkpoints.
        pointer: signed pointer to the generation of variables that was current; empty for none.
        missed_runs: number of executions between that generation and the checkpoint.
        flaw: sentence that says why it has no files; empty if it has.
        copy_name: of the directory of its files; empty if it has none.
        version: of its files; equal versions mean that no file changed; empty if unknown.
    """

    at_ns: int
    pointer: str
    missed_runs: int
    flaw: str = ""
    copy_name: str = ""
    version: str = ""


def write(
    directory: pathlib.Path,
    name: str,
    files: pathlib.Path,
    *,
    pointer: str,
    missed_runs: int,
    limits: file_copies.CopyLimits,
    max_count: int,
    may_change_unseen: bool = False,
) -> None:
    """Write a checkpoint of `files` into `directory`, and delete the oldest ones over the limits.

    Args:
        directory: of all checkpoints of the session.
        name: of this one.
        files: the session's files.
        pointer, missed_runs: see `Checkpoint`.
        limits: of the copied files, and of the bytes of all checkpoints together.
        max_count: of checkpoints.
        may_change_unseen: a process has mapped files, so that they may change and keep their times.

    Raises:
        KernelError: the name is not valid.
        OSError: it cannot be written.
    """
    final_file, partial_file = _state_file(directory, name), directory / _PARTIAL_FILE_NAME
    directory.mkdir(mode=0o700, exist_ok=True)
    latest_checkpoints = [latest for _, latest in _all_checkpoints(directory)[:1]]
    now_ns = time.time_ns()
    # If the clock was set back, this checkpoint must not count as the oldest and be deleted.
    at_ns = max([now_ns, *(latest.at_ns + 1 for latest in latest_checkpoints)])
    checkpoint = Checkpoint(at_ns, pointer, missed_runs)
    version = ""
    if not may_change_unseen:
        version = _compute_version(files, limits.max_files, before_ns=now_ns - _TICK_NS)
    same_checkpoints = [latest for latest in latest_checkpoints if latest.version == version]
    if version and same_checkpoints:
        copy_name = same_checkpoints[0].copy_name
        checkpoint = dataclasses.replace(checkpoint, copy_name=copy_name, version=version)
    else:
        copy_name = f"files-{checkpoint.at_ns}"
        if flaw := _copy_files(files, directory / copy_name, limits):
            checkpoint = dataclasses.replace(checkpoint, flaw=flaw)
        else:
            checkpoint = dataclasses.replace(checkpoint, copy_name=copy_name, version=version)
    partial_file.write_text(json.dumps(dataclasses.asdict(checkpoint)))
    partial_file.rename(final_file)
    checkpoints = _all_checkpoints(directory)
    _remove(directory, checkpoints[max_count:])
    while used_bytes(directory) > limits.max_bytes and len(checkpoints) > 1:
        _remove(directory, [checkpoints.pop()])


def _copy_files(files: pathlib.Path, target: pathlib.Path, limits: file_copies.CopyLimits) -> str:
    """Copy files; return why not all could be copied."""
    target.mkdir(mode=0o700)
    try:
        return file_copies.copy_tree(files, target, limits)
    except errors.WorkspaceError as error:
        return str(error)
    except OSError:
        _log.exception("the files of a session could not be copied")
        return file_words.COPY_FAILED


def _compute_version(files: pathlib.Path, max_files: int, *, before_ns: int) -> str:
    """Return a hash that differs after each change; empty if a file changed since `before_ns`."""
    try:
        with workspace_io.root_descriptor(files) as root:
            scan = directory_contents.scan(root, max_files)
    except (errors.WorkspaceError, OSError):
        # Copying fails too, and reports why.
        return ""
    if scan.is_truncated or any(entry.identity[-1] > before_ns for entry in scan.entries):
        return ""
    identities = [(entry.path, entry.identity) for entry in scan.entries]
    return hashlib.sha256(repr((identities, scan.folders)).encode()).hexdigest()


def _remove(directory: pathlib.Path, entries: list[tuple[pathlib.Path, Checkpoint]]) -> None:
    """Delete checkpoints, and files that no checkpoint needs, such as those left by a power cut."""
    for file, _ in entries:
        file.unlink()
    needed_paths = set()
    for file, checkpoint in _all_checkpoints(directory):
        needed_paths |= {file, directory / (checkpoint.copy_name or file)}
    for path in set(directory.iterdir()) - needed_paths:
        safe_open.remove(path)


def used_bytes(directory: pathlib.Path) -> int:
    """Measure the disk usage of a session's checkpoints."""
    with contextlib.suppress(FileNotFoundError), workspace_io.root_descriptor(directory) as root:
        return directory_contents.measure(root, max_bytes=_UNLIMITED, max_files=_UNLIMITED).bytes
    return 0


def read(directory: pathlib.Path, name: str) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        KernelError: there is no checkpoint of that name (any more).
    """
    checkpoint = _load(_state_file(directory, name))
    if checkpoint is None:
        raise errors.KernelError(file_words.EARLIER_FILES_GONE)
    return checkpoint


def pointers(directory: pathlib.Path) -> list[str]:
    """Return the pointers to generations of variables that a session's checkpoints need."""
    return [checkpoint.pointer for _, checkpoint in _all_checkpoints(directory)]


def remove_oldest(directory: pathlib.Path) -> bool:
    """Delete a session's oldest checkpoint; return whether there was one."""
    oldest = _all_checkpoints(directory)[-1:]
    if oldest:
        _remove(directory, oldest)
    return bool(oldest)


def remove_since(directory: pathlib.Path, name: str) -> None:
    """Delete a checkpoint and all later ones."""
    entries, state_file = _all_checkpoints(directory), _state_file(directory, name)
    files = [file for file, _ in entries]
    if state_file in files:
        _remove(directory, entries[: files.index(state_file) + 1])


def _state_file(directory: pathlib.Path, name: str) -> pathlib.Path:
    if _NAME_PATTERN.fullmatch(name) is None:
        raise errors.KernelError(file_words.EARLIER_FILES_GONE)
    return directory / f"{name}.json"


def _all_checkpoints(directory: pathlib.Path) -> list[tuple[pathlib.Path, Checkpoint]]:
    """Return all checkpoints with their files, the latest first."""
    loaded = [(file, _load(file)) for file in directory.glob("*.json")]
    entries = [(file, checkpoint) for file, checkpoint in loaded if checkpoint is not None]
    return sorted(entries, key=lambda item: item[1].at_ns, reverse=True)


def _load(file: pathlib.Path) -> Checkpoint | None:
    """Load a checkpoint; None if it is missing, or incomplete after a power cut."""
    try:
        return Checkpoint(**json.loads(file.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
