"""Checkpoints of a session: what it was before code ran, so that it can go back. Functions block.

One lies where no code reaches: which generation of variables counted then, as that was signed, and
which files there were. Nobody waits for copies of files: they are made beside, once a session is
idle, of those that have changed; what is unchanged needs none to go back. What code replaces before
it was copied cannot come back, which is said, and nothing is changed then.

Above 300 lines: what is noted, what is copied and what comes back are one list of files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from interpreter_bot import errors, settings
from interpreter_bot.kernels.files import (
    directory_contents,
    file_copies,
    safe_open,
    workspace_io,
    workspaces,
)

_COPIES: Final = "copies"
_MOST_FILES: Final = 2000
_NAME: Final = re.compile(r"[0-9a-zA-Z-]{1,64}")
_GONE: Final = "What was there before that is not kept, so nothing was changed."
_FULL: Final = "The disk of the machine is nearly full, so nothing was changed."
_REPLACED: Final = (
    "{name} was replaced or deleted since, and is not kept as it was, so nothing was changed."
)

Identity: TypeAlias = tuple[int, int, int]
"""Inode, bytes and time of change; a change of the owner alone is none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a session was at one moment.

    Attributes:
        pointer: what was noted of the generation that counted, as it was signed; empty for none.
        files: what there was in the workspace, by the name that is shown.
        missed_runs: how many pieces of code had run by then that this generation knows nothing of.
    """

    pointer: str
    files: Mapping[str, Identity]
    missed_runs: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Return:
    """What is to be done to the files of a session for it to go back.

    Attributes:
        doomed: paths of files to be deleted.
        missing: names of copies, by the paths where they belong.
    """

    doomed: tuple[bytes, ...]
    missing: Mapping[bytes, str]


def write(
    workspace: workspaces.Workspace, name: str, *, pointer: str, missed_runs: int, most: int
) -> None:
    """Write a checkpoint, unless there are too many files; the oldest ones of too many go.

    Args:
        workspace: of the session.
        name: of the checkpoint.
        pointer: as in `Checkpoint`.
        missed_runs: as in `Checkpoint`.
        most: how many are kept.

    Raises:
        OSError: it cannot be written.
    """
    found = _scanned(workspace)
    if found is None:
        return
    file = _file(workspace, name)
    workspace.checkpoints.mkdir(mode=0o700, exist_ok=True)
    said = {"pointer": pointer, "missed_runs": missed_runs}
    said["files"] = {one.info.name: identity(one) for one in found}
    new = file.with_suffix(".new")
    new.write_text(json.dumps(said))
    new.replace(file)
    for old in _all(workspace)[:-most]:
        old.unlink(missing_ok=True)


def read(workspace: workspaces.Workspace, name: str) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        KernelError: there is none of that name (any more).
    """
    if (found := _load(_file(workspace, name))) is None:
        raise errors.KernelError(_GONE)
    return found


def pointers(workspace: workspaces.Workspace) -> Iterator[str]:
    """Yield what the checkpoints of a session need of its variables, the latest first."""
    for file in reversed(_all(workspace)):
        if (found := _load(file)) is not None:
            yield found.pointer


def remove_oldest(workspace: workspaces.Workspace) -> bool:
    """Delete the oldest checkpoint of a session; says whether there was one."""
    oldest = _all(workspace)[:1]
    for file in oldest:
        file.unlink(missing_ok=True)
    return bool(oldest)


def remove_since(workspace: workspaces.Workspace, name: str) -> None:
    """Delete a checkpoint, and those that are later."""
    everyone = _all(workspace)
    file = _file(workspace, name)
    for later in everyone[everyone.index(file) :] if file in everyone else ():
        later.unlink(missing_ok=True)


def forget(workspace: workspaces.Workspace) -> None:
    """Delete all checkpoints of a session."""
    own = workspace.checkpoints.parent
    with contextlib.suppress(FileNotFoundError), workspace_io.opened(own) as parent:
        safe_open.remove_tree(parent, workspace.checkpoints.name)


def keep_files(
    workspace: workspaces.Workspace, limits: settings.Limits, config: settings.Snapshots
) -> None:
    """Copy the files of an idle session that no copy is kept of, the smallest first, as they fit.

    Copies that no checkpoint needs, and that are none of a present file, are deleted.

    Raises:
        OSError: the operating system refuses.
    """
    found = _scanned(workspace)
    if found is None or not config.checkpoints:
        return
    directory = workspace.checkpoints / _COPIES
    for own in (workspace.checkpoints, directory):
        own.mkdir(mode=0o700, exist_ok=True)
    needed = {_copy_name(identity(one)) for one in found}
    for file in _all(workspace):
        if (checkpoint := _load(file)) is not None:
            needed.update(map(_copy_name, checkpoint.files.values()))
    left = config.checkpoint_bytes
    with (
        workspace_io.opened(directory) as copies,
        workspace_io.opened(workspace.directory) as root,
    ):
        present = set(os.listdir(copies))
        for name in present - needed:
            os.unlink(name, dir_fd=copies)
        for name in present & needed:
            left -= os.stat(name, dir_fd=copies).st_blocks * 512
        for entry in sorted(found, key=lambda one: one.info.size_bytes):
            name = _copy_name(identity(entry))
            if name in present:
                continue
            try:
                left -= _keep(root, entry, copies, left, limits.disk_reserve_bytes)
            except errors.WorkspaceFullError:
                return


def _keep(
    root: int, entry: directory_contents.Entry, copies: int, most_bytes: int, reserve_bytes: int
) -> int:
    """Copy a file, unless it changes meanwhile; returns how many bytes of the disk that takes."""
    name = _copy_name(identity(entry))
    try:
        file = safe_open.open_file(root, entry.path)
    except errors.FileMissingError:
        return 0
    try:
        partial = b"partial"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=copies)
        held = file_copies.copy_file(
            file, copies, partial, most_bytes=most_bytes, reserve_bytes=reserve_bytes
        )
        status = os.fstat(file)
        if (status.st_ino, status.st_size, status.st_mtime_ns) != identity(entry):
            os.unlink(partial, dir_fd=copies)
            return 0
        os.rename(partial, name, src_dir_fd=copies, dst_dir_fd=copies)
        return held
    finally:
        os.close(file)


def plan(
    workspace: workspaces.Workspace, checkpoint: Checkpoint, limits: settings.Limits
) -> Return:
    """Find out what is to be done to go back; nothing is changed.

    Raises:
        KernelError: it cannot be done.
        WorkspaceFullError: the disk is nearly full.
        OSError: the operating system refuses.
    """
    found = _scanned(workspace)
    if found is None:
        raise errors.KernelError(_GONE)
    present = {one.info.name: one for one in found}
    same = {name for name, one in present.items() if checkpoint.files.get(name) == identity(one)}
    kept = set()
    with contextlib.suppress(FileNotFoundError):
        kept = set(os.listdir(workspace.checkpoints / _COPIES))
    missing = {}
    for name, one in checkpoint.files.items():
        if name not in same:
            if (copy := _copy_name(one)) not in kept:
                raise errors.KernelError(_REPLACED.format(name=name))
            missing[directory_contents.fs_name(name)] = copy
    disk = os.statvfs(workspace.directory)
    held = sum(checkpoint.files[name][1] for name in checkpoint.files.keys() - same)
    if missing and disk.f_bavail * disk.f_frsize - held < limits.disk_reserve_bytes:
        raise errors.WorkspaceFullError(_FULL)
    doomed = tuple(one.path for name, one in present.items() if name not in same)
    return Return(doomed, missing)


def carry_out(
    wanted: Return,
    workspace: workspaces.Workspace,
    limits: settings.Limits,
    *,
    copies_of: workspaces.Workspace | None = None,
) -> None:
    """Change the files of a session, which has no kernel now.

    Args:
        wanted: what is to be done.
        workspace: of the session.
        limits: of sessions.
        copies_of: where copies of files are kept, if that is another session.

    Raises:
        WorkspaceFullError: the disk is nearly full.
        OSError: the operating system refuses.
    """
    with workspace_io.opened(workspace.directory) as root:
        for path in wanted.doomed:
            folder, name = os.path.split(path)
            with contextlib.suppress(FileNotFoundError):
                directory = safe_open.open_directory(root, folder, is_forced=True)
                try:
                    os.unlink(name, dir_fd=directory)
                finally:
                    os.close(directory)
        if not wanted.missing:
            return
        with workspace_io.opened((copies_of or workspace).checkpoints / _COPIES) as copies:
            for path, copy in wanted.missing.items():
                file = safe_open.open_file(copies, copy.encode())
                try:
                    _make_way(root, path)
                    file_copies.copy_file(
                        file,
                        root,
                        path,
                        most_bytes=limits.workspace_bytes,
                        # That there is room was found out before anything was deleted.
                        reserve_bytes=0,
                    )
                finally:
                    os.close(file)


def _make_way(root: int, path: bytes) -> None:
    """Delete what has the name of a file that comes back: a folder, or a link."""
    folder, name = os.path.split(path)
    with contextlib.suppress(FileNotFoundError):
        directory = safe_open.open_directory(root, folder, is_forced=True)
        try:
            safe_open.remove_tree(directory, os.fsdecode(name))
        finally:
            os.close(directory)


def identity(entry: directory_contents.Entry) -> Identity:
    """Return what tells whether a file is still the same."""
    inode, size, changed_ns, _ = entry.identity
    return inode, size, changed_ns


def _copy_name(of: Identity) -> str:
    return "-".join(map(str, of))


def _scanned(workspace: workspaces.Workspace) -> list[directory_contents.Entry] | None:
    """Return the files of a workspace; None if there are too many."""
    with workspace_io.opened(workspace.directory) as root:
        found = directory_contents.scan(root, _MOST_FILES)
    return None if found.is_truncated else [one for one in found.entries if not one.refusal]


def _file(workspace: workspaces.Workspace, name: str) -> pathlib.Path:
    if _NAME.fullmatch(name) is None:
        raise errors.KernelError(_GONE)
    return workspace.checkpoints / f"{name}.json"


def _load(file: pathlib.Path) -> Checkpoint | None:
    """Load a checkpoint; None if it is not there, or was not written whole before a power cut."""
    try:
        said = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    files = {path: tuple(one) for path, one in said["files"].items()}
    return Checkpoint(said["pointer"], files, said.get("missed_runs", 0))


def _all(workspace: workspaces.Workspace) -> list[pathlib.Path]:
    """Return the files of all checkpoints, the oldest first."""
    found = {}
    for file in workspace.checkpoints.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            found[file] = file.stat().st_mtime_ns
    return sorted(found, key=found.__getitem__)
