"""Checkpoints of a session: its state before code ran, so that it can return to it. Functions
block.

A checkpoint is a directory out of reach of code. It has a copy of the session's files, and the
signed pointer to the generation of variables that was current. If files are too many, too large or
cannot be copied, a checkpoint has only variables and says why.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
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

_STATE: Final = "state.json"
_FILES: Final = "files"
_PARTIAL: Final = ".partial"
_NAME: Final = re.compile(r"[0-9a-zA-Z-]{1,64}")
_UNLIMITED: Final = 1 << 60


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """State of a session at one moment.

    Attributes:
        at_ns: time since the epoch.
        pointer: signed pointer to the generation of variables that was current; empty for none.
        missed_runs: number of executions between that generation and the checkpoint.
        flaw: sentence that says why it has no files; empty if it has.
    """

    at_ns: int
    pointer: str
    missed_runs: int
    flaw: str = ""


def write(
    directory: pathlib.Path,
    name: str,
    files: pathlib.Path,
    *,
    pointer: str,
    missed_runs: int,
    limits: file_copies.CopyLimits,
    max_count: int,
) -> None:
    """Write a checkpoint of `files` into `directory`, and delete the oldest ones over the limits.

    `limits` bound the copied files, and the bytes of all checkpoints together.

    Raises:
        KernelError: the name is not valid.
        OSError: it cannot be written.
    """
    final, partial = _checkpoint_directory(directory, name), directory / _PARTIAL
    directory.mkdir(mode=0o700, exist_ok=True)
    safe_open.remove(partial)
    (partial / _FILES).mkdir(mode=0o700, parents=True)
    try:
        flaw = file_copies.copy_tree(files, partial / _FILES, limits)
    except errors.WorkspaceError as error:
        flaw = str(error)
    except OSError:
        _log.exception("the files of a session could not be copied")
        flaw = file_words.COPY_FAILED
    if flaw:
        safe_open.remove(partial / _FILES)
    state = Checkpoint(time.time_ns(), pointer, missed_runs, flaw)
    (partial / _STATE).write_text(json.dumps(dataclasses.asdict(state)))
    safe_open.remove(final)
    partial.rename(final)
    directories = [final for final, _ in _all_checkpoints(directory)[:max_count]]
    # Also delete checkpoints that a power cut left incomplete.
    for surplus in set(directory.iterdir()).difference(directories):
        safe_open.remove(surplus)
    while used_bytes(directory) > limits.max_bytes and len(directories) > 1:
        safe_open.remove(directories.pop())


def used_bytes(directory: pathlib.Path) -> int:
    """Measure the disk usage of a session's checkpoints."""
    with contextlib.suppress(FileNotFoundError), workspace_io.opened(directory) as root:
        return directory_contents.measure(root, max_bytes=_UNLIMITED, max_files=_UNLIMITED).bytes
    return 0


def read(directory: pathlib.Path, name: str) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        KernelError: there is no checkpoint of that name (any more).
    """
    checkpoint = _load(_checkpoint_directory(directory, name))
    if checkpoint is None:
        raise errors.KernelError(file_words.BEFORE_GONE)
    return checkpoint


def files_of(directory: pathlib.Path, name: str) -> pathlib.Path:
    """Return the directory of a checkpoint's files; a KernelError if the name is not valid."""
    return _checkpoint_directory(directory, name) / _FILES


def pointers(directory: pathlib.Path) -> list[str]:
    """Return the pointers to generations of variables that a session's checkpoints need."""
    return [checkpoint.pointer for _, checkpoint in _all_checkpoints(directory)]


def copies_of(directory: pathlib.Path, path: bytes) -> dict[str, int]:
    """Return the names of checkpoints with a copy of a file, and the size of each copy in bytes."""
    sizes = {}
    for path_of_checkpoint, checkpoint in _all_checkpoints(directory):
        if checkpoint.flaw:
            continue
        with (
            contextlib.suppress(errors.FileMissingError, FileNotFoundError),
            workspace_io.opened(path_of_checkpoint / _FILES) as root,
        ):
            file = safe_open.open_file(root, path)
            sizes[path_of_checkpoint.name] = os.fstat(file).st_size
            os.close(file)
    return sizes


def remove_oldest(directory: pathlib.Path) -> bool:
    """Delete a session's oldest checkpoint; return whether there was one."""
    entries = _all_checkpoints(directory)
    for path, _ in entries[-1:]:
        safe_open.remove(path)
    return bool(entries)


def remove_since(directory: pathlib.Path, name: str) -> None:
    """Delete a checkpoint and all later ones."""
    directories = [path for path, _ in _all_checkpoints(directory)]
    path = _checkpoint_directory(directory, name)
    for later in directories[: directories.index(path) + 1] if path in directories else ():
        safe_open.remove(later)


def _checkpoint_directory(directory: pathlib.Path, name: str) -> pathlib.Path:
    if _NAME.fullmatch(name) is None:
        raise errors.KernelError(file_words.BEFORE_GONE)
    return directory / name


def _all_checkpoints(directory: pathlib.Path) -> list[tuple[pathlib.Path, Checkpoint]]:
    """Return all checkpoints with their directories, the latest first."""
    entries = []
    for file in directory.glob(f"*/{_STATE}"):
        if _NAME.fullmatch(file.parent.name) and (checkpoint := _load(file.parent)) is not None:
            entries.append((file.parent, checkpoint))
    return sorted(entries, key=lambda item: item[1].at_ns, reverse=True)


def _load(directory: pathlib.Path) -> Checkpoint | None:
    """Load a checkpoint; None if it is missing, or incomplete after a power cut."""
    try:
        return Checkpoint(**json.loads((directory / _STATE).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
