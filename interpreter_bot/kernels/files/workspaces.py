"""Workspaces: each session's own directory, which its code sees as /mnt/data.

All content is hostile, and may change during a scan. Files are named as by
`directory_contents.display_name`: relative, harmless to print, and unique. Only properties for
provisioning return paths, so that a workspace can be on another machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from typing import Final

import cachetools

from interpreter_bot import cancellation, errors, settings, values
from interpreter_bot.kernels.files import (
    checkpoints,
    directory_contents,
    safe_open,
    workspace_io,
)
from interpreter_bot.text import file_names
from interpreter_bot.wording import file_words

_DATA_NAME = "data"
_VARIABLES_NAME = "variables"
_CHECKPOINTS_NAME = "checkpoints"
_TEMPORARY_NAME = "temporary"
_STAGING_NAME = ".staging"
_REMOVED_PREFIX = ".removed-"
_MAX_SKIPPED_LISTED = 100
_MAX_SNAPSHOT_ENTRIES: Final = 200_000  # some 40 MB
# Enough for the buffers of two generations, and some more files.
_MAX_VARIABLE_FILES = 3000
# Usage is counted up to twice its limits, to tell slightly exceeded limits from far exceeded ones.
_OVERSHOOT_FACTOR = 2


@dataclasses.dataclass(frozen=True, slots=True)
class _FileSnapshot:
    """Snapshot of a workspace's files."""

    identities: Mapping[bytes, directory_contents.Identity]
    is_truncated: bool


def _size_in_cache(snapshot: _FileSnapshot) -> int:
    # The latest one is always kept.
    return min(1 + len(snapshot.identities), _MAX_SNAPSHOT_ENTRIES)


class Workspace:
    """One session's files. The parent of its root belongs to the session, too.

    Coroutines raise WorkspaceError if the operating system refuses. `hosts.ports.Workspace`
    explains those without a docstring.
    """

    def __init__(
        self,
        root: pathlib.Path,
        limits: settings.Limits,
        file_snapshots: cachetools.LRUCache[str, _FileSnapshot],
    ) -> None:
        self._root = root
        self._limits = limits
        self._file_snapshots = file_snapshots

    @property
    def directory(self) -> pathlib.Path:
        """The host directory that becomes /mnt/data. For provisioning only."""
        return self._root

    @property
    def variables(self) -> pathlib.Path:
        """The host directory of the session's saved variables."""
        return self._root.parent / _VARIABLES_NAME

    @property
    def temporary(self) -> pathlib.Path:
        """The host directory of temporary files; for provisioning only."""
        return self._root.parent / _TEMPORARY_NAME

    @property
    def packages_file(self) -> pathlib.Path:
        """The host file with the session's installed packages."""
        return self._root.parent / "packages.json"

    @property
    def checkpoints(self) -> pathlib.Path:
        """The host directory of checkpoints, which no code sees; it may be missing."""
        return self._root.parent / _CHECKPOINTS_NAME

    @property
    def staging(self) -> pathlib.Path:
        """The host directory where replacements of files are prepared; may be missing or stale."""
        return self._root.parent / _STAGING_NAME

    @property
    def name(self) -> str:
        """Stable printable name from `Workspaces.name_of`; it reveals nothing about the session."""
        return self._root.parent.name

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> values.FileInfo:
        upload = workspace_io.Upload(self._root, file_names.safe_name(name), self._limits)
        try:
            await workspace_io.in_thread(upload.begin)
            async for chunk in chunks:
                await workspace_io.in_thread(upload.write, chunk)
            return await workspace_io.in_thread(upload.commit)
        finally:
            await cancellation.in_thread(upload.close)

    async def list(self) -> tuple[values.FileInfo, ...]:
        scan = await workspace_io.in_thread(self._scan)
        return _sort_by_name(entry.info for entry in scan.entries if not entry.refusal)

    @contextlib.asynccontextmanager
    async def read(
        self,
        name: str,
        *,
        start: int = 0,
        max_bytes: int | None = None,
        may_be_sparse: bool = True,
    ) -> AsyncIterator[workspace_io.Content]:
        if max_bytes is None:
            max_bytes = max(self._limits.file_bytes, self._limits.upload_bytes)
        content = workspace_io.Content(self._root, name, max_bytes=max_bytes)
        try:
            await workspace_io.in_thread(content.begin)
            if not may_be_sparse:
                content.refuse_sparse()
            await content.skip(start)
            yield content
        finally:
            await cancellation.in_thread(content.close)

    async def rename(self, name: str, new_name: str) -> str:
        return await workspace_io.in_thread(self._rename, name, new_name)

    async def delete(self, name: str) -> None:
        await workspace_io.in_thread(self._delete, name)

    async def mark_files(self) -> str:
        scan = await workspace_io.in_thread(self._scan)
        identities = {entry.path: entry.identity for entry in scan.entries}
        mark = secrets.token_hex(16)
        self._file_snapshots[mark] = _FileSnapshot(identities, scan.is_truncated)
        return mark

    async def changes_since(self, mark: str) -> values.FileChanges:
        if (snapshot := self._file_snapshots.get(mark)) is None:
            raise errors.WorkspaceError(file_words.UNKNOWN_CHANGES)
        scan = await workspace_io.in_thread(self._scan)
        changed_entries = [e for e in scan.entries if snapshot.identities.get(e.path) != e.identity]
        is_truncated = scan.is_truncated or snapshot.is_truncated
        skipped_files = sorted(
            (entry.info.name, entry.refusal) for entry in changed_entries if entry.refusal
        )
        return values.FileChanges(
            files=_sort_by_name(entry.info for entry in changed_entries if not entry.refusal),
            skipped=tuple(skipped_files[:_MAX_SKIPPED_LISTED]),
            is_truncated=is_truncated or len(skipped_files) > _MAX_SKIPPED_LISTED,
        )

    async def usage(self) -> directory_contents.DirectoryUsage:
        """Measure disk usage, up to twice the limits; takes some milliseconds.

        If `is_uncountable` is set, the figures leave out unreadable or too deeply nested files.
        """
        return await workspace_io.in_thread(self.measure)

    async def variables_usage(self, *, max_bytes: int) -> directory_contents.DirectoryUsage:
        """Measure the disk usage of saved variables; takes some milliseconds."""
        return await workspace_io.in_thread(self.measure_variables, max_bytes)

    def measure(self) -> directory_contents.DirectoryUsage:
        """Measure like `usage`. Blocks."""
        max_bytes, max_files = self._limits.workspace_bytes, self._limits.workspace_files
        with workspace_io.root_descriptor(self._root) as root:
            return directory_contents.measure(
                root, max_bytes=max_bytes, max_files=max_files, overshoot_factor=_OVERSHOOT_FACTOR
            )

    def measure_variables(self, max_bytes: int) -> directory_contents.DirectoryUsage:
        """Measure like `variables_usage`. Blocks."""
        return _measure(self.variables, max_bytes, _MAX_VARIABLE_FILES)

    def measure_temporary(self) -> directory_contents.DirectoryUsage:
        """Measure temporary files, if they are not in a file system of their own. Blocks."""
        max_bytes, max_files = self._limits.temporary_bytes, self._limits.workspace_files
        return _measure(self.temporary, max_bytes, max_files, overshoot_factor=_OVERSHOOT_FACTOR)

    async def checkpoint_bytes(self) -> int:
        return await workspace_io.in_thread(checkpoints.used_bytes, self.checkpoints)

    async def remove(self) -> None:
        """Delete the workspace, if it exists; its kernel must be dead."""
        await workspace_io.in_thread(self._remove)

    def _scan(self) -> directory_contents.Scan:
        with workspace_io.root_descriptor(self._root) as root:
            return directory_contents.scan(root, self._limits.workspace_files)

    def _rename(self, name: str, new_name: str) -> str:
        safe_name = file_names.safe_name(new_name)
        with self._open_folder_of(name) as (folder, old_name):
            try:
                safe_open.move_without_replacing(folder, old_name, folder, safe_name)
            except FileExistsError as error:
                raise errors.FileNameError(file_words.name_taken(safe_name)) from error
        parent, slash, _ = name.rpartition("/")
        return parent + slash + safe_name

    def _delete(self, name: str) -> None:
        with (
            self._open_folder_of(name) as (folder, base_name),
            contextlib.suppress(FileNotFoundError),
        ):
            os.unlink(base_name, dir_fd=folder)

    @contextlib.contextmanager
    def _open_folder_of(self, name: str) -> Iterator[tuple[int, str]]:
        """Open the folder of a regular file; safe even if code changes the path meanwhile."""
        path = directory_contents.parse_display_name(name)
        parent_path, _, base_name = path.rpartition(b"/")
        with workspace_io.root_descriptor(self._root) as root:
            os.close(safe_open.open_file(root, path))
            folder = safe_open.open_directory(root, parent_path)
            try:
                yield folder, os.fsdecode(base_name)
            finally:
                os.close(folder)

    def _remove(self) -> None:
        session_directory = self._root.parent
        removed_name = _REMOVED_PREFIX + secrets.token_hex(16)
        # Rename first: the session may be used again before the last file is deleted.
        with (
            workspace_io.root_descriptor(session_directory.parent) as parent,
            contextlib.suppress(FileNotFoundError),
        ):
            os.rename(session_directory.name, removed_name, src_dir_fd=parent, dst_dir_fd=parent)
            safe_open.remove_tree(parent, removed_name)


def _measure(
    directory: pathlib.Path, max_bytes: int, max_files: int, *, overshoot_factor: int = 1
) -> directory_contents.DirectoryUsage:
    with contextlib.suppress(FileNotFoundError), workspace_io.root_descriptor(directory) as root:
        return directory_contents.measure(
            root, max_bytes=max_bytes, max_files=max_files, overshoot_factor=overshoot_factor
        )
    return directory_contents.DirectoryUsage(0, 0, is_partial=False, is_over_limit=False)


class Workspaces:
    """All workspaces, in one `directory` that only the bot may read."""

    def __init__(self, directory: pathlib.Path, limits: settings.Limits) -> None:
        self.directory = directory
        self._limits = limits
        self._file_snapshots: cachetools.LRUCache[str, _FileSnapshot] = cachetools.LRUCache(
            _MAX_SNAPSHOT_ENTRIES, _size_in_cache
        )

    @staticmethod
    def name_of(session_key: str) -> str:
        """Return the name of a session's workspace: 32 hex digits of a hash, for any key."""
        return hashlib.sha256(session_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    async def ensure(self, session_key: str) -> Workspace:
        """Return a session's workspace, created if missing, readable only by the bot."""
        workspace = self.get(session_key)
        await workspace_io.in_thread(make_directories, workspace)
        return workspace

    def get(self, session_key: str) -> Workspace:
        """Return a session's workspace, which may not exist on disk; see `ensure`."""
        return self._workspace(self.name_of(session_key))

    async def list_all(self) -> tuple[Workspace, ...]:
        names = await workspace_io.in_thread(self._names)
        return tuple(self._workspace(name) for name in names if re.fullmatch("[0-9a-f]{32}", name))

    async def sweep(self) -> None:
        """Remove leftovers of a dead bot. Call it at the start, before anything else."""
        for workspace in await self.list_all():
            await workspace_io.in_thread(workspace_io.sweep, workspace.directory)
        await workspace_io.in_thread(self._remove_leftovers)

    def _workspace(self, name: str) -> Workspace:
        return Workspace(self.directory / name / _DATA_NAME, self._limits, self._file_snapshots)

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(self.directory))
        return []

    def _remove_leftovers(self) -> None:
        for name in self._names():
            if name.startswith(_REMOVED_PREFIX):
                with workspace_io.root_descriptor(self.directory) as parent:
                    safe_open.remove_tree(parent, name)


def make_directories(workspace: Workspace) -> None:
    """Create a workspace if it is missing, readable only by the bot. Blocks."""
    session_directory = workspace.directory.parent
    session_directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for directory in (session_directory, workspace.directory, workspace.variables):
        directory.mkdir(mode=0o700, exist_ok=True)


def _sort_by_name(infos: Iterator[values.FileInfo]) -> tuple[values.FileInfo, ...]:
    return tuple(sorted(infos, key=lambda info: info.name))
