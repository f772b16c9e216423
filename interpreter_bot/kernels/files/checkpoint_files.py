"""Checkpoints as they lie on disk: what each says of a session's files, and copies of those files.

They are in a directory where no code reaches, a file for each and a copy for each file that was
different at one of them. Functions block.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from interpreter_bot import errors
from interpreter_bot.kernels.files import directory_contents

GONE: Final = "The files from before are no longer kept, so nothing was changed."
_NOT_KEPT: Final = "{name} is not kept as it was then."
_COPIES: Final = "copies"
_NAME: Final = re.compile(r"[0-9a-zA-Z-]{1,64}")

Identity: TypeAlias = tuple[int, int, int]
"""Inode, bytes and time of change; a change of the owner alone is none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a session was at one moment.

    Attributes:
        pointer: to the generation of variables that was current, as signed; empty for none.
        files: what there was in the workspace, by the name that is shown.
        missed_runs: how many pieces of code had run by then that this generation knows nothing of.
    """

    pointer: str
    files: Mapping[str, Identity]
    missed_runs: int = 0


def identity(entry: directory_contents.Entry) -> Identity:
    """Return what tells whether a file is still the same."""
    inode, size, changed_ns, _ = entry.identity
    return inode, size, changed_ns


def copies(directory: pathlib.Path) -> pathlib.Path:
    """Return where copies of files are, below the directory of checkpoints."""
    return directory / _COPIES


def copy_name(of: Identity) -> str:
    """Return what the copy of a file is called."""
    return "-".join(map(str, of))


def path(directory: pathlib.Path, name: str) -> pathlib.Path:
    """Return where a checkpoint is written; a KernelError if none can have that name."""
    if _NAME.fullmatch(name) is None:
        raise errors.KernelError(GONE)
    return directory / f"{name}.json"


def load(file: pathlib.Path) -> Checkpoint | None:
    """Load a checkpoint; None if it is not there, or was not written whole before a power cut."""
    try:
        content = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    files = {path: tuple(parts) for path, parts in content["files"].items()}
    return Checkpoint(content["pointer"], files, content.get("missed_runs", 0))


def save(file: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, as a whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    content = {
        "pointer": checkpoint.pointer,
        "files": dict(checkpoint.files),
        "missed_runs": checkpoint.missed_runs,
    }
    new = file.with_suffix(".new")
    new.write_text(json.dumps(content))
    new.replace(file)


def listed(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return the files of all checkpoints, the oldest first."""
    found = {}
    for file in directory.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            found[file] = file.stat().st_mtime_ns
    return sorted(found, key=found.__getitem__)


def with_copy(directory: pathlib.Path, name: str) -> dict[str, int]:
    """Return the names of checkpoints that have a copy of a file, and its bytes there."""
    try:
        present = set(os.listdir(copies(directory)))
    except FileNotFoundError:
        return {}
    found = {}
    for file in listed(directory):
        one = checkpoint.files.get(name) if (checkpoint := load(file)) is not None else None
        if one is not None and copy_name(one) in present:
            found[file.stem] = one[1]
    return found


def copy_of(directory: pathlib.Path, checkpoint: str, name: str) -> str:
    """Return what the copy of a file as it was at a checkpoint is called; it may be gone.

    Raises:
        FileMissingError: the checkpoint is not kept, or knew no such file.
    """
    found = load(path(directory, checkpoint)) if _NAME.fullmatch(checkpoint) else None
    if found is None or name not in found.files:
        raise errors.FileMissingError(_NOT_KEPT.format(name=name))
    return copy_name(found.files[name])
