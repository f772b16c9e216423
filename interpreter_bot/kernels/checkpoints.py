"""Checkpoints of a session: what it was before code ran, so that it can go back. Functions block.

One lies where no code reaches: which generation of variables counted then, as that was signed, and
which files there were. Nobody waits for copies of files: they are made beside, once a session is
idle, of those that have changed; what is unchanged needs none to go back. What code replaces before
it was copied cannot come back, which is said, and nothing is changed then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.kernels.files import (
    checkpoint_files,
    directory_contents,
    file_copies,
    safe_open,
    workspace_io,
    workspaces,
)

_MAX_FILES: Final = 2000
_FULL: Final = "The disk of the machine is nearly full, so nothing was changed."
_REPLACED: Final = (
    "{name} was replaced or deleted since, and is not kept as it was, so nothing was changed."
)


@dataclasses.dataclass(frozen=True, slots=True)
class RestorePlan:
    """How the files of a session become what they were.

    Attributes:
        delete: paths of files to be deleted.
        copy_back: names of copies, by the paths where they belong.
    """

    delete: tuple[bytes, ...] = ()
    copy_back: Mapping[bytes, str] = dataclasses.field(default_factory=dict)


def write(
    workspace: workspaces.Workspace, name: str, *, pointer: str, missed_runs: int, most: int
) -> None:
    """Write a checkpoint, unless there are too many files; the oldest ones of too many go.

    Args:
        workspace: of the session.
        name: of the checkpoint.
        pointer: as in `checkpoint_files.Checkpoint`.
        missed_runs: as in `checkpoint_files.Checkpoint`.
        most: how many are kept.

    Raises:
        OSError: it cannot be written.
    """
    entries = _scanned(workspace)
    if entries is None:
        return
    file = checkpoint_files.path(workspace.checkpoints, name)
    workspace.checkpoints.mkdir(mode=0o700, exist_ok=True)
    files = {entry.info.name: checkpoint_files.identity(entry) for entry in entries}
    checkpoint_files.save(file, checkpoint_files.Checkpoint(pointer, files, missed_runs))
    listed = checkpoint_files.listed(workspace.checkpoints)
    for old in listed[: max(len(listed) - most, 0)]:
        old.unlink(missing_ok=True)


def read(workspace: workspaces.Workspace, name: str) -> checkpoint_files.Checkpoint:
    """Read a checkpoint.

    Raises:
        KernelError: there is none of that name (any more).
    """
    checkpoint = checkpoint_files.load(checkpoint_files.path(workspace.checkpoints, name))
    if checkpoint is None:
        raise errors.KernelError(checkpoint_files.GONE)
    return checkpoint


def pointers(workspace: workspaces.Workspace) -> Iterator[str]:
    """Yield what the checkpoints of a session need of its variables, the latest first."""
    for file in reversed(checkpoint_files.listed(workspace.checkpoints)):
        if (checkpoint := checkpoint_files.load(file)) is not None:
            yield checkpoint.pointer


def remove_oldest(workspace: workspaces.Workspace) -> bool:
    """Delete the oldest checkpoint of a session; says whether there was one."""
    oldest = checkpoint_files.listed(workspace.checkpoints)[:1]
    for file in oldest:
        file.unlink(missing_ok=True)
    return bool(oldest)


def remove_since(workspace: workspaces.Workspace, name: str) -> None:
    """Delete a checkpoint, and those that are later."""
    everyone = checkpoint_files.listed(workspace.checkpoints)
    file = checkpoint_files.path(workspace.checkpoints, name)
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
    entries = _scanned(workspace)
    if entries is None or not config.checkpoints:
        return
    directory = checkpoint_files.copies(workspace.checkpoints)
    for own in (workspace.checkpoints, directory):
        own.mkdir(mode=0o700, exist_ok=True)
    needed = {checkpoint_files.copy_name(checkpoint_files.identity(entry)) for entry in entries}
    for file in checkpoint_files.listed(workspace.checkpoints):
        if (checkpoint := checkpoint_files.load(file)) is not None:
            needed.update(map(checkpoint_files.copy_name, checkpoint.files.values()))
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
        for entry in sorted(entries, key=lambda entry: entry.info.size_bytes):
            name = checkpoint_files.copy_name(checkpoint_files.identity(entry))
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
    name = checkpoint_files.copy_name(checkpoint_files.identity(entry))
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
        if (status.st_ino, status.st_size, status.st_mtime_ns) != checkpoint_files.identity(entry):
            os.unlink(partial, dir_fd=copies)
            return 0
        os.rename(partial, name, src_dir_fd=copies, dst_dir_fd=copies)
        return held
    finally:
        os.close(file)


def plan_restore(
    workspace: workspaces.Workspace,
    checkpoint: checkpoint_files.Checkpoint,
    limits: settings.Limits,
) -> RestorePlan:
    """Find out what is to be done to go back; nothing is changed.

    Raises:
        KernelError: it cannot be done.
        WorkspaceFullError: the disk is nearly full.
        OSError: the operating system refuses.
    """
    entries = _scanned(workspace)
    if entries is None:
        raise errors.KernelError(checkpoint_files.GONE)
    present = {entry.info.name: entry for entry in entries}
    identity = checkpoint_files.identity
    same = {
        name for name, entry in present.items() if checkpoint.files.get(name) == identity(entry)
    }
    kept = set()
    with contextlib.suppress(FileNotFoundError):
        kept = set(os.listdir(checkpoint_files.copies(workspace.checkpoints)))
    copy_back = {}
    for name, former in checkpoint.files.items():
        if name not in same:
            if (copy := checkpoint_files.copy_name(former)) not in kept:
                raise errors.KernelError(_REPLACED.format(name=name))
            copy_back[directory_contents.fs_name(name)] = copy
    disk = os.statvfs(workspace.directory)
    held = sum(checkpoint.files[name][1] for name in checkpoint.files.keys() - same)
    if copy_back and disk.f_bavail * disk.f_frsize - held < limits.disk_reserve_bytes:
        raise errors.WorkspaceFullError(_FULL)
    delete = tuple(entry.path for name, entry in present.items() if name not in same)
    return RestorePlan(delete, copy_back)


def apply_plan(
    plan: RestorePlan,
    workspace: workspaces.Workspace,
    limits: settings.Limits,
    *,
    copies_of: workspaces.Workspace | None = None,
) -> None:
    """Change the files of a session, which has no kernel now.

    Args:
        plan: what is to be done.
        workspace: of the session.
        limits: of sessions.
        copies_of: where copies of files are kept, if that is another session.

    Raises:
        WorkspaceFullError: the disk is nearly full.
        OSError: the operating system refuses.
    """
    with workspace_io.opened(workspace.directory) as root:
        for path in plan.delete:
            folder, name = os.path.split(path)
            with contextlib.suppress(FileNotFoundError):
                directory = safe_open.open_directory(root, folder, is_forced=True)
                try:
                    os.unlink(name, dir_fd=directory)
                finally:
                    os.close(directory)
    if plan.copy_back:
        kept = checkpoint_files.copies((copies_of or workspace).checkpoints)
        put_files(plan.copy_back, kept, workspace.directory, limits)


def put_files(
    wanted: Mapping[bytes, str],
    copies: pathlib.Path,
    directory: pathlib.Path,
    limits: settings.Limits,
) -> None:
    """Put copies of files into a directory that no code uses now, instead of what is there.

    Args:
        wanted: names of copies, by the paths where they belong.
        copies: directory of the copies.
        directory: where they belong.
        limits: of sessions.

    Raises:
        WorkspaceFullError: one is too large.
        OSError: the operating system refuses.
    """
    with workspace_io.opened(directory) as root, workspace_io.opened(copies) as source:
        for path, copy in wanted.items():
            file = safe_open.open_file(source, copy.encode())
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


def _scanned(workspace: workspaces.Workspace) -> list[directory_contents.Entry] | None:
    """Return the files of a workspace; None if there are too many."""
    with workspace_io.opened(workspace.directory) as root:
        scan = directory_contents.scan(root, _MAX_FILES)
    return None if scan.is_truncated else [entry for entry in scan.entries if not entry.refusal]
