"""Workspaces: each session's own directory, which its code sees as /mnt/data.

All content is hostile, and may change during a scan. Files go by the names that
`directory_contents.display_name` gives them: relative, harmless to print, and never two files of
one name. No method returns a path (except `directory`, for provisioning), so that a workspace can
move to another machine.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from typing import Final

from interpreter_bot import cancellation, errors, settings, values
from interpreter_bot.kernels.files import (
    checkpoints,
    directory_contents,
    safe_open,
    workspace_io,
)
from interpreter_bot.text import file_names
from interpreter_bot.wording import file_words

_DATA = "data"
_VARIABLES = "variables"
_CHECKPOINTS = "checkpoints"
_TEMPORARY = "temporary"
_STAGING = ".staging"
_REMOVED = ".removed-"
_MAX_SKIPPED = 100
_MAX_MARKED: Final = 200_000  # some 40 MB
# Buffers of two generations, and some files more.
_SAVED_FILES = 3000
_OVERSHOOT = 2  # so that slightly over the limits is distinguished from far over


@dataclasses.dataclass(frozen=True, slots=True)
class _Mark:
    """Snapshot of a workspace's files."""

    identities: Mapping[bytes, directory_contents.Identity]
    is_truncated: bool


class Marks:
    """The latest snapshots of all workspaces, by name; bounded by the files in all of them."""

    def __init__(self) -> None:
        self._marks: collections.OrderedDict[str, _Mark] = collections.OrderedDict()
        self._size = 0

    def keep(self, mark: _Mark) -> str:
        """Keep a snapshot; return its name."""
        name = secrets.token_hex(16)
        self._marks[name] = mark
        self._size += 1 + len(mark.identities)
        while self._size > _MAX_MARKED and len(self._marks) > 1:
            _, oldest = self._marks.popitem(last=False)
            self._size -= 1 + len(oldest.identities)
        return name

    def find(self, name: str) -> _Mark:
        """Return a snapshot.

        Raises:
            WorkspaceError: it is not kept any more.
        """
        if (mark := self._marks.get(name)) is None:
            raise errors.WorkspaceError(file_words.UNKNOWN_CHANGES)
        return mark


class Workspace:
    """One session's files. The directory above its root belongs to it alone as well.

    What is awaited raises WorkspaceError where the operating system refuses.
    """

    def __init__(self, root: pathlib.Path, limits: settings.Limits, marks: Marks) -> None:
        self._root = root
        self._limits = limits
        self._marks = marks

    @property
    def directory(self) -> pathlib.Path:
        """The host directory that becomes /mnt/data. For provisioning only."""
        return self._root

    @property
    def variables(self) -> pathlib.Path:
        """The host directory that holds snapshots of its session's variables."""
        return self._root.parent / _VARIABLES

    @property
    def temporary(self) -> pathlib.Path:
        """The host directory of its temporary files; for provisioning only."""
        return self._root.parent / _TEMPORARY

    @property
    def packages_file(self) -> pathlib.Path:
        """The host file that says what was installed for its session."""
        return self._root.parent / "packages.json"

    @property
    def checkpoints(self) -> pathlib.Path:
        """The host directory of its checkpoints, which no code sees; it may be missing."""
        return self._root.parent / _CHECKPOINTS

    @property
    def staging(self) -> pathlib.Path:
        """A host directory for what is to replace its files; it may be missing, or a leftover."""
        return self._root.parent / _STAGING

    @property
    def name(self) -> str:
        """Stable printable name from `Workspaces.name_of`; tells nothing about the session."""
        return self._root.parent.name

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> values.FileInfo:
        """Store a file that a person sent, under its `file_names.safe_name`.

        It appears whole or not at all. If the name is taken, the new file gets a number ("data
        (2).csv"): nothing is ever replaced.

        Returns:
            The file under the name it got.

        Raises:
            FileTooLargeError: it is over `upload_bytes`.
            WorkspaceFullError: it does not fit.
        """
        upload = workspace_io.Upload(self._root, file_names.safe_name(name), self._limits)
        try:
            await workspace_io.file_work(upload.begin)
            async for chunk in chunks:
                await workspace_io.file_work(upload.write, chunk)
            return await workspace_io.file_work(upload.commit)
        finally:
            await cancellation.in_thread(upload.close)

    async def list(self) -> tuple[values.FileInfo, ...]:
        """List the regular files by name, among at most `workspace_files` entries."""
        scan = await workspace_io.file_work(self._scan)
        return _sorted(entry.info for entry in scan.entries if not entry.refusal)

    @contextlib.asynccontextmanager
    async def read(
        self,
        name: str,
        *,
        start: int = 0,
        most_bytes: int | None = None,
        may_be_sparse: bool = True,
        checkpoint: str = "",
    ) -> AsyncIterator[workspace_io.Content]:
        """Open a file: `async with workspace.read(name) as content`, then iterate for chunks.

        Args:
            name: as listed.
            start: the first byte that is given; beyond the end there are none.
            most_bytes: a larger file is refused; by default the largest one can make.
            may_be_sparse: whether a file of next to nothing but holes is given, in full.
            checkpoint: the file as it was then, if that is kept; empty for as it is now.

        Raises:
            FileMissingError: there is no such regular file.
            FileTooLargeError: it is larger than `most_bytes`, or sparse.
        """
        if most_bytes is None:
            most_bytes = max(self._limits.file_bytes, self._limits.upload_bytes)
        content = workspace_io.Content(self._root, name, most_bytes=most_bytes)
        if checkpoint:
            path = directory_contents.fs_name(name)
            kept = await workspace_io.file_work(checkpoints.copies_of, self.checkpoints, path)
            if checkpoint not in kept:
                raise errors.FileMissingError(file_words.earlier_gone(name))
            files = checkpoints.files_of(self.checkpoints, checkpoint)
            content = workspace_io.Content(files, name, most_bytes=most_bytes, may_be_linked=True)
        try:
            await workspace_io.file_work(content.begin)
            if not may_be_sparse:
                content.refuse_sparse()
            await content.skip(start)
            yield content
        finally:
            await cancellation.in_thread(content.close)

    async def kept(self, name: str) -> Mapping[str, int]:
        """Return which checkpoints have a copy of a file as it was then, and its bytes."""
        path = directory_contents.fs_name(name)
        return await workspace_io.file_work(checkpoints.copies_of, self.checkpoints, path)

    async def rename(self, name: str, new_name: str) -> str:
        """Give a file the `file_names.safe_name` of another name, in its folder; return its name.

        Raises:
            FileMissingError: there is no such regular file.
            FileNameError: something has that name already.
        """
        return await workspace_io.file_work(self._rename, name, new_name)

    async def delete(self, name: str) -> None:
        """Delete a file; a FileMissingError if there is none."""
        await workspace_io.file_work(self._delete, name)

    async def mark(self) -> str:
        """Take a snapshot of the present files; return its name, for `changes_since`."""
        scan = await workspace_io.file_work(self._scan)
        identities = {entry.path: entry.identity for entry in scan.entries}
        return self._marks.keep(_Mark(identities, is_truncated=scan.is_truncated))

    async def changes_since(self, mark: str) -> values.FileChanges:
        """Return what was created or written since a mark. Bounded as `list` is.

        Raises:
            WorkspaceError: also where the mark is not kept any more.
        """
        former = self._marks.find(mark)
        scan = await workspace_io.file_work(self._scan)
        new = [e for e in scan.entries if former.identities.get(e.path) != e.identity]
        truncated = scan.is_truncated or former.is_truncated
        skipped = sorted((entry.info.name, entry.refusal) for entry in new if entry.refusal)
        return values.FileChanges(
            files=_sorted(entry.info for entry in new if not entry.refusal),
            skipped=tuple(skipped[:_MAX_SKIPPED]),
            is_truncated=truncated or len(skipped) > _MAX_SKIPPED,
        )

    async def usage(self) -> directory_contents.DirectoryUsage:
        """Measure its disk usage, up to twice its limits. Quick, so call it often.

        Decisions by the figures should heed `is_uncountable` too: something is nested so deeply, or
        not permitted to be read, that they leave it out.
        """
        return await workspace_io.file_work(self.measure)

    async def variables_usage(self, *, most_bytes: int) -> directory_contents.DirectoryUsage:
        """Measure what its saved variables use of the disk; quick as well."""
        return await workspace_io.file_work(self.measure_variables, most_bytes)

    def measure(self) -> directory_contents.DirectoryUsage:
        """Measure as `usage` does; blocks.

        Raises:
            OSError: it cannot be read.
        """
        most_bytes, most_files = self._limits.workspace_bytes, self._limits.workspace_files
        with workspace_io.opened(self._root) as root:
            return directory_contents.measure(
                root, most_bytes=most_bytes, most_files=most_files, overshoot=_OVERSHOOT
            )

    def measure_variables(self, most_bytes: int) -> directory_contents.DirectoryUsage:
        """Measure as `variables_usage` does; blocks.

        Raises:
            OSError: it cannot be read.
        """
        # There is none where the session had no kernel since there are such directories.
        return _measured(self.variables, most_bytes, _SAVED_FILES)

    def measure_temporary(self) -> directory_contents.DirectoryUsage:
        """Measure its temporary files, if it has no file system of its own for them; blocks.

        Raises:
            OSError: they cannot be read.
        """
        most_bytes, most_files = self._limits.temporary_bytes, self._limits.workspace_files
        return _measured(self.temporary, most_bytes, most_files, overshoot=_OVERSHOOT)

    async def checkpoint_bytes(self) -> int:
        """Measure what its checkpoints use of the disk."""
        return await workspace_io.file_work(checkpoints.held_bytes, self.checkpoints)

    async def remove(self) -> None:
        """Delete the workspace and everything in it; its kernel should be dead. Missing is fine."""
        await workspace_io.file_work(self._remove)

    def _scan(self) -> directory_contents.Scan:
        with workspace_io.opened(self._root) as root:
            return directory_contents.scan(root, self._limits.workspace_files)

    def _rename(self, name: str, new_name: str) -> str:
        wanted = file_names.safe_name(new_name)
        with self._folder_of(name) as (folder, old):
            try:
                safe_open.place(folder, old, folder, wanted)
            except FileExistsError as error:
                raise errors.FileNameError(file_words.name_taken(wanted)) from error
        before, slash, _ = name.rpartition("/")
        return before + slash + wanted

    def _delete(self, name: str) -> None:
        with self._folder_of(name) as (folder, own), contextlib.suppress(FileNotFoundError):
            os.unlink(own, dir_fd=folder)

    @contextlib.contextmanager
    def _folder_of(self, name: str) -> Iterator[tuple[int, str]]:
        """Open the folder that a regular file is in; what code puts in its place is never left."""
        path = directory_contents.fs_name(name)
        above, _, own = path.rpartition(b"/")
        with workspace_io.opened(self._root) as root:
            os.close(safe_open.open_file(root, path))
            folder = safe_open.open_directory(root, above)
            try:
                yield folder, os.fsdecode(own)
            finally:
                os.close(folder)

    def _remove(self) -> None:
        own = self._root.parent
        doomed = _REMOVED + secrets.token_hex(16)
        # Renamed first: the session may come back before the last file is deleted.
        with (
            workspace_io.opened(own.parent) as parent,
            contextlib.suppress(FileNotFoundError),
        ):
            os.rename(own.name, doomed, src_dir_fd=parent, dst_dir_fd=parent)
            safe_open.remove_tree(parent, doomed)


def _measured(
    directory: pathlib.Path, most_bytes: int, most_files: int, *, overshoot: int = 1
) -> directory_contents.DirectoryUsage:
    with contextlib.suppress(FileNotFoundError), workspace_io.opened(directory) as root:
        return directory_contents.measure(
            root, most_bytes=most_bytes, most_files=most_files, overshoot=overshoot
        )
    return directory_contents.DirectoryUsage(0, 0, is_partial=False, is_over=False)


class Workspaces:
    """All workspaces, in one `directory` that only the bot may read."""

    def __init__(self, directory: pathlib.Path, limits: settings.Limits) -> None:
        self.directory = directory
        self._limits = limits
        self._marks = Marks()

    @staticmethod
    def name_of(session_key: str) -> str:
        """Return the name of a session's workspace: 32 hex digits of a hash, for any key."""
        return hashlib.sha256(session_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    async def of(self, session_key: str) -> Workspace:
        """Return a session's workspace, created if missing, readable only by the bot."""
        workspace = self.named(session_key)
        await workspace_io.file_work(make, workspace)
        return workspace

    def named(self, session_key: str) -> Workspace:
        """Return a session's workspace, which may be missing; see `make`."""
        return self._at(self.name_of(session_key))

    async def existing(self) -> tuple[Workspace, ...]:
        """List the existing workspaces, by name."""
        names = await workspace_io.file_work(self._names)
        return tuple(self._at(name) for name in names if re.fullmatch("[0-9a-f]{32}", name))

    async def sweep(self) -> None:
        """Clean up what a dead bot left half done. For the start, before anything else."""
        for workspace in await self.existing():
            await workspace_io.file_work(workspace_io.sweep, workspace.directory)
        await workspace_io.file_work(self._remove_leftovers)

    def _at(self, name: str) -> Workspace:
        return Workspace(self.directory / name / _DATA, self._limits, self._marks)

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(self.directory))
        return []

    def _remove_leftovers(self) -> None:
        for name in self._names():
            if name.startswith(_REMOVED):
                with workspace_io.opened(self.directory) as parent:
                    safe_open.remove_tree(parent, name)


def make(workspace: Workspace) -> None:
    """Create a workspace if it is missing, readable only by the bot. Blocks."""
    own = workspace.directory.parent
    own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for directory in (own, workspace.directory, workspace.variables):
        directory.mkdir(mode=0o700, exist_ok=True)


def _sorted(infos: Iterator[values.FileInfo]) -> tuple[values.FileInfo, ...]:
    return tuple(sorted(infos, key=lambda info: info.name))
