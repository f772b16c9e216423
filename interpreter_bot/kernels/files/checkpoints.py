"""Checkpoints of a session: what it was before code ran, so that it can go back. Functions block.

Each is a directory where no code reaches: a copy of the session's files, and which generation of
variables counted then, as that was signed. Files that are the same in two of them in a row are
stored once. Files that are too large, too many or cannot be copied are not kept: then a checkpoint
holds the variables alone, and says why.
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
_NO_LIMIT: Final = 1 << 60


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a session was at one moment.

    Attributes:
        at_ns: when, since the epoch.
        pointer: to the generation of variables that was current, as signed; empty for none.
        missed_runs: how many pieces of code had run by then that this generation knows nothing of.
        flaw: why its files are not kept, a sentence; empty if they are.
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
    """Write a checkpoint; the oldest ones of too many, or too large ones, go.

    Args:
        directory: of the session's checkpoints.
        name: of the checkpoint.
        files: directory of the session's files.
        pointer: as in `Checkpoint`.
        missed_runs: as in `Checkpoint`.
        limits: of its files; all checkpoints together have the same limit of bytes.
        max_count: how many are kept.

    Raises:
        KernelError: none can have that name.
        OSError: it cannot be written.
    """
    place, partial = _place(directory, name), directory / _PARTIAL
    directory.mkdir(mode=0o700, exist_ok=True)
    safe_open.remove(partial)
    (partial / _FILES).mkdir(mode=0o700, parents=True)
    earlier = (former / _FILES for former, checkpoint in _kept(directory) if not checkpoint.flaw)
    try:
        flaw = file_copies.copy_tree(files, partial / _FILES, limits, base=next(earlier, None))
    except errors.WorkspaceError as error:
        flaw = str(error)
    except OSError:
        _log.exception("the files of a session could not be copied")
        flaw = file_words.COPY_FAILED
    if flaw:
        safe_open.remove(partial / _FILES)
    state = Checkpoint(time.time_ns(), pointer, missed_runs, flaw)
    (partial / _STATE).write_text(json.dumps(dataclasses.asdict(state)))
    safe_open.remove(place)
    partial.rename(place)
    kept = [place for place, _ in _kept(directory)[:max_count]]
    # Also what is no checkpoint, for its power was cut.
    for surplus in set(directory.iterdir()).difference(kept):
        safe_open.remove(surplus)
    while held_bytes(directory) > limits.max_bytes and len(kept) > 1:
        safe_open.remove(kept.pop())


def held_bytes(directory: pathlib.Path) -> int:
    """Measure what the checkpoints of a session use of the disk; what they share counts once."""
    with contextlib.suppress(FileNotFoundError), workspace_io.opened(directory) as root:
        return directory_contents.measure(root, most_bytes=_NO_LIMIT, most_files=_NO_LIMIT).bytes
    return 0


def read(directory: pathlib.Path, name: str) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        KernelError: there is none of that name (any more).
    """
    checkpoint = _load(_place(directory, name))
    if checkpoint is None:
        raise errors.KernelError(file_words.BEFORE_GONE)
    return checkpoint


def files_of(directory: pathlib.Path, name: str) -> pathlib.Path:
    """Return where the files of a checkpoint lie; a KernelError if none can have that name."""
    return _place(directory, name) / _FILES


def pointers(directory: pathlib.Path) -> list[str]:
    """Return what the checkpoints of a session need of its variables."""
    return [checkpoint.pointer for _, checkpoint in _kept(directory)]


def copies_of(directory: pathlib.Path, path: bytes) -> dict[str, int]:
    """Return the names of checkpoints that have a copy of a file, and its bytes there."""
    sizes = {}
    for place, checkpoint in _kept(directory):
        if checkpoint.flaw:
            continue
        with (
            contextlib.suppress(errors.FileMissingError, FileNotFoundError),
            workspace_io.opened(place / _FILES) as root,
        ):
            file = safe_open.open_file(root, path, may_be_linked=True)
            sizes[place.name] = os.fstat(file).st_size
            os.close(file)
    return sizes


def remove_oldest(directory: pathlib.Path) -> bool:
    """Delete the oldest checkpoint of a session; says whether there was one."""
    kept = _kept(directory)
    for place, _ in kept[-1:]:
        safe_open.remove(place)
    return bool(kept)


def remove_since(directory: pathlib.Path, name: str) -> None:
    """Delete a checkpoint, and those that are later."""
    kept = [place for place, _ in _kept(directory)]
    place = _place(directory, name)
    for later in kept[: kept.index(place) + 1] if place in kept else ():
        safe_open.remove(later)


def _place(directory: pathlib.Path, name: str) -> pathlib.Path:
    if _NAME.fullmatch(name) is None:
        raise errors.KernelError(file_words.BEFORE_GONE)
    return directory / name


def _kept(directory: pathlib.Path) -> list[tuple[pathlib.Path, Checkpoint]]:
    """Return all checkpoints and where they lie, the latest first."""
    kept = []
    for file in directory.glob(f"*/{_STATE}"):
        if _NAME.fullmatch(file.parent.name) and (checkpoint := _load(file.parent)) is not None:
            kept.append((file.parent, checkpoint))
    return sorted(kept, key=lambda item: item[1].at_ns, reverse=True)


def _load(place: pathlib.Path) -> Checkpoint | None:
    """Load a checkpoint; None if it is not there, or was not written whole before a power cut."""
    try:
        return Checkpoint(**json.loads((place / _STATE).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
