"""Archives of sessions in a store that all machines share, so that a session can move.

A session's archive is a manifest with names, sizes and digests of its files and current variables.
It is signed with the snapshot key, which is the same on all machines. A manifest of a later epoch
replaces all manifests of earlier epochs, whenever they were written, so a machine that was away
overwrites nothing. A session is archived in the background after each save and each change of its
files. Another machine fetches the whole session before it is first used there.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import logging
import os
import pathlib
import shutil
import weakref
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from typing import BinaryIO, Final, TypeAlias

import cachetools

from interpreter_bot import cancellation, errors, private_files, schedules
from interpreter_bot.kernels import (
    archive_manifests,
    pools,
    shared_object_stores,
    snapshot_generations,
)
from interpreter_bot.kernels.files import (
    directory_contents,
    file_copies,
    safe_open,
    workspace_io,
    workspaces,
)
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_MAX_PARALLEL: Final = 4
_RETRY_SECONDS: Final = 5.0
_MAX_RETRY_SECONDS: Final = 300.0
_MAX_REMEMBERED_FILES: Final = 200_000  # some 60 MB
_FLUSH_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 24 * 3600.0
# Files up to this size are read into memory; larger ones are read twice.
_SMALL_BYTES: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 4 * 1024 * 1024
# Sizes of files may add up to this multiple of the limit, as files may have holes.
_MAX_SPARSE_FACTOR: Final = 4

_ArchivedFiles: TypeAlias = dict[bytes, tuple[directory_contents.Identity, archive_manifests.File]]
"""Each file's identity and manifest entry when it was last archived, by its path in `f/` (files) or
`v/` (variables)."""


@dataclasses.dataclass(frozen=True, slots=True)
class _SessionState:
    """Content of a session, as its manifest will list it."""

    files: Collection[directory_contents.Entry]
    variables: Collection[directory_contents.Entry]
    pointer: str
    packages: str


class SessionArchives:
    """The archives of a pool's sessions. Use `open`."""

    def __init__(
        self,
        pool: pools.Pool,
        store: shared_object_stores.SharedStore,
        key: snapshot_generations.SnapshotKey,
    ) -> None:
        self._pool = pool
        self._store = store
        self._key = key
        self._epochs: dict[str, int] = {}
        # By session.
        self._archived_files: cachetools.LRUCache[str, _ArchivedFiles] = cachetools.LRUCache(
            _MAX_REMEMBERED_FILES, lambda files: min(len(files), _MAX_REMEMBERED_FILES)
        )
        self._changed_workspaces: dict[str, workspaces.Workspace] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_MAX_PARALLEL)
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        pool: pools.Pool,
        store: shared_object_stores.SharedStore,
        key: snapshot_generations.SnapshotKey,
    ) -> AsyncIterator[SessionArchives]:
        """While the context is open, archive the pool's sessions, once their epochs are noted."""
        archives = cls(pool, store, key)
        pool.snapshots.on_saved = archives._archive_soon
        sweep = functools.partial(archive_manifests.sweep, store)
        sweep_job = schedules.PeriodicJob("sweep the store", _SWEEP_SECONDS, sweep)
        async with schedules.run_periodically(sweep_job):
            yield archives

    def note_epoch(self, key: str, epoch: int) -> None:
        """Record in which epoch a session came to this machine."""
        self._epochs[workspaces.Workspaces.name_of(key)] = epoch

    async def note_change(self, key: str) -> None:
        """Archive a session soon, as its files changed."""
        self._archive_soon(await self._pool.workspace(key))

    def _archive_soon(self, workspace: workspaces.Workspace) -> None:
        name = workspace.name
        if name not in self._epochs:
            return
        self._changed_workspaces[name] = workspace
        if name not in self._tasks:
            task = asyncio.create_task(
                self._archive_until_current(name), name=f"archive session {name}"
            )
            self._tasks[name] = task
            task.add_done_callback(functools.partial(self._on_archived, name))

    def _on_archived(self, name: str, task: asyncio.Task[None]) -> None:
        # A task that was cancelled before it started has not removed itself.
        if self._tasks.get(name) is task:
            del self._tasks[name]

    async def _archive_until_current(self, name: str) -> None:
        """Archive a session until no change is left."""
        try:
            await self._archive_changes(name)
        finally:
            # Not left to the done callback, which runs later: a change in between would start no
            # new task.
            self._tasks.pop(name, None)

    async def _archive_changes(self, name: str) -> None:
        wait_seconds = _RETRY_SECONDS
        while (workspace := self._changed_workspaces.pop(name, None)) is not None:
            try:
                async with self._slots:
                    if await asyncio.to_thread(workspace.directory.is_dir):
                        await self._archive(workspace)
            except (errors.BotError, OSError) as error:
                _log.warning("archiving session %s failed and will be retried: %r", name, error)
                self._changed_workspaces.setdefault(name, workspace)
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(2 * wait_seconds, _MAX_RETRY_SECONDS)

    async def archive(self, key: str) -> bool:
        """Archive a session now; return whether it was completely archived within a minute."""
        workspace = await self._pool.workspace(key)
        self._archive_soon(workspace)
        epoch = self._epochs.get(workspace.name, 0)
        arrived_epoch, _ = await asyncio.to_thread(archive_manifests.read_arrival, workspace)
        return bool(epoch) and await self.flush(key) and (epoch == 1 or arrived_epoch >= epoch)

    async def flush(self, key: str | None = None) -> bool:
        """Wait up to a minute until one session or all are archived; return whether they are."""
        names = set(self._tasks) if key is None else {workspaces.Workspaces.name_of(key)}
        tasks = [task for name, task in self._tasks.items() if name in names]
        if not tasks:
            return True
        _, unfinished = await asyncio.wait(tasks, timeout=_FLUSH_SECONDS)
        if unfinished:
            _log.error("%d sessions were not archived in time", len(unfinished))
        return not unfinished

    async def close(self) -> None:
        """Archive the remaining changes, and end."""
        await self.flush()
        unfinished = list(self._tasks.values())
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished)

    async def _archive(self, workspace: workspaces.Workspace) -> None:
        name, epoch = workspace.name, self._epochs[workspace.name]
        if (
            epoch > 1
            and (await asyncio.to_thread(archive_manifests.read_arrival, workspace))[0] < epoch
        ):
            # The files here are older than another machine's, which have not been fetched yet.
            return
        session_snapshots = self._pool.snapshots
        with contextlib.ExitStack() as stack:
            async with session_snapshots.lock(workspace):
                state = await workspace_io.in_thread(self._scan, workspace)
                stack.enter_context(session_snapshots.generations.pin(workspace, state.pointer))
            uploads = _Uploads(self._store, self._archived_files.get(name, {}))
            files = await uploads.add(workspace.directory, state.files, b"f/")
            variables = await uploads.add(workspace.variables, state.variables, b"v/")
        if len(variables) < len(state.variables):
            # Meanwhile the session was forgotten or undone, or its code changed its variables.
            raise shared_object_stores.ContentChangedError
        manifest = archive_manifests.Manifest(
            session=name,
            files=files,
            variables=variables,
            pointer=state.pointer,
            packages=state.packages,
        )
        if (await asyncio.to_thread(archive_manifests.read_arrival, workspace))[0] < epoch == 1:
            # Before the manifest is written: if this machine dies in between, it must not look
            # like another machine's.
            record_arrival = archive_manifests.record_arrival
            await asyncio.to_thread(record_arrival, workspace, epoch, is_restored=False)
        if await archive_manifests.write(self._store, manifest, epoch, self._key):
            self._archived_files[name] = uploads.archived_files
        if uploads.is_partial:
            raise shared_object_stores.ContentChangedError

    def _scan(self, workspace: workspaces.Workspace) -> _SessionState:
        """Scan a session for the files and variables that can be archived."""
        limits = self._pool.settings.limits
        with workspace_io.root_descriptor(workspace.directory) as root:
            entries = directory_contents.scan(root, limits.workspace_files).entries
        remaining_bytes, files = _MAX_SPARSE_FACTOR * limits.workspace_bytes, []
        for entry in entries:
            remaining_bytes -= entry.info.size_bytes
            if not entry.refusal and remaining_bytes >= 0:
                files.append(entry)
        snapshot = self._pool.snapshots.generations.find(workspace)
        variables: list[directory_contents.Entry] = []
        if snapshot is not None:
            with workspace_io.root_descriptor(workspace.variables) as root:
                variables = snapshot_generations.list_entries(root, snapshot)
        pointer = "" if snapshot is None else snapshot_generations.read_pointer(workspace)
        return _SessionState(files, variables, pointer, _read_text(workspace.packages_file))

    async def fetch_session(self, key: str, epoch: int) -> bool:
        """Fetch a session from the store, once in each epoch, if another machine had it.

        Returns:
            Whether it was fetched in this epoch.

        Raises:
            KernelError: it cannot be fetched now; the session must not be used before a retry.
            WorkspaceFullError: the disk is too full for it.
        """
        workspace = await self._pool.workspace(key)
        async with self._locks.setdefault(workspace.name, asyncio.Lock()):
            arrived_epoch, is_restored = await asyncio.to_thread(
                archive_manifests.read_arrival, workspace
            )
            if arrived_epoch >= epoch:
                return is_restored
            stored_manifest = await archive_manifests.read_latest(self._store, workspace.name)
            # If this machine has had the session in that epoch or later, its own files are newer.
            is_restored = (
                stored_manifest is not None
                and archive_manifests.epoch_of(stored_manifest[0]) > arrived_epoch
            )
            if stored_manifest is not None and is_restored:
                await self._fetch(key, workspace, *stored_manifest)
            record_arrival = archive_manifests.record_arrival
            await asyncio.to_thread(record_arrival, workspace, epoch, is_restored=is_restored)
            if not is_restored:
                self._archive_soon(workspace)
            return is_restored

    async def _fetch(
        self, key: str, workspace: workspaces.Workspace, version: str, data: bytes
    ) -> None:
        manifest = archive_manifests.parse_signed(workspace.name, version, data, self._key)
        if manifest.is_empty:
            # The session may have been forgotten elsewhere, so delete the earlier files here.
            await self._pool.forget(key)
            await self._pool.workspace(key)
            return
        staged_files = [*_staged_files(workspace, manifest)]
        slots = asyncio.Semaphore(_MAX_PARALLEL)
        disk = await asyncio.to_thread(shutil.disk_usage, workspace.directory)
        needed_bytes = sum(file.size_bytes for file, _ in staged_files)
        if needed_bytes + self._pool.settings.limits.disk_reserve_bytes > disk.free:
            raise errors.WorkspaceFullError(host_words.NO_ROOM_FOR_FILES)

        async def download(file: archive_manifests.File, path: pathlib.Path) -> None:
            async with slots:
                await workspace_io.in_thread(path.parent.mkdir, parents=True, exist_ok=True)
                await self._store.download(file.sha256, file.size_bytes, path)
                times = (file.changed_ns, file.changed_ns)
                await workspace_io.in_thread(os.utime, path, ns=times)

        async def replace_content(_: workspaces.Workspace) -> None:
            async with self._pool.snapshots.lock(workspace):
                await workspace_io.in_thread(_replace_session, workspace, manifest)

        await workspace_io.in_thread(_make_staging, workspace)
        try:
            async with asyncio.TaskGroup() as downloads:
                for file, path in staged_files:
                    downloads.create_task(download(file, path))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        await self._pool.run_without_kernel(key, replace_content)

    async def forget(self, key: str) -> None:
        """Replace a session's archive with an empty one, so that absent machines delete it, too.

        Raises:
            KernelError: the store cannot be used.
        """
        name = workspaces.Workspaces.name_of(key)
        self._changed_workspaces.pop(name, None)
        if (task := self._tasks.get(name)) is not None:
            task.cancel()
            await asyncio.wait({task})
        self._archived_files.pop(name, None)
        if (epoch := self._epochs.get(name)) is None:
            return
        empty_manifest = archive_manifests.Manifest(
            session=name, files=(), variables=(), pointer="", packages=""
        )
        if await archive_manifests.write(self._store, empty_manifest, epoch, self._key):
            # Count the empty manifest as fetched: it must not delete later files of the session.
            workspace = await self._pool.workspace(key)
            record_arrival = archive_manifests.record_arrival
            await asyncio.to_thread(record_arrival, workspace, epoch, is_restored=False)


class _Uploads:
    """Files of a session on their way into the store.

    Attributes:
        archived_files: entries of all stored files.
        is_partial: whether a file is missing or outdated, because it changed during the upload.
    """

    def __init__(
        self, store: shared_object_stores.SharedStore, earlier_files: _ArchivedFiles
    ) -> None:
        self._store = store
        self._earlier_files = earlier_files
        self.archived_files: _ArchivedFiles = {}
        self.is_partial = False

    async def add(
        self, root: pathlib.Path, entries: Iterable[directory_contents.Entry], prefix: bytes
    ) -> tuple[archive_manifests.File, ...]:
        """Store new and changed files, and return the entries of all that still exist."""
        files = []
        for entry in entries:
            name = prefix + entry.path
            stored_file = self._earlier_files.get(name)
            if stored_file is None or stored_file[0] != entry.identity:
                try:
                    stored_file = entry.identity, await self._upload(root, entry.path)
                except errors.FileMissingError:
                    continue
                except shared_object_stores.ContentChangedError:
                    self.is_partial = True
            if stored_file is not None:
                self.archived_files[name] = stored_file
                files.append(stored_file[1])
        return tuple(files)

    async def _upload(self, root: pathlib.Path, path: bytes) -> archive_manifests.File:
        file = await workspace_io.in_thread(_open_file, root, path)
        try:
            status = os.fstat(file.fileno())
            size_bytes = status.st_size
            content: bytes | AsyncIterator[bytes]
            if size_bytes <= _SMALL_BYTES:
                content = await workspace_io.in_thread(file.read, size_bytes)
                size_bytes = len(content)
                digest = hashlib.sha256(content).hexdigest()
            else:
                digest = await workspace_io.in_thread(_hash_file, file, size_bytes)
                content = _read_chunks(file, size_bytes)
            await self._store.upload(content, digest)
        finally:
            await cancellation.in_thread(file.close)
        return archive_manifests.File(
            path=path.hex(), size_bytes=size_bytes, changed_ns=status.st_mtime_ns, sha256=digest
        )


def _open_file(root: pathlib.Path, path: bytes) -> BinaryIO:
    with workspace_io.root_descriptor(root) as directory:
        return os.fdopen(safe_open.open_file(directory, path), "rb")


def _hash_file(file: BinaryIO, size_bytes: int) -> str:
    """Hash the first `size_bytes` of a file; code may append to it meanwhile."""
    hasher = hashlib.sha256()
    while size_bytes and (chunk := file.read(min(_CHUNK_BYTES, size_bytes))):
        hasher.update(chunk)
        size_bytes -= len(chunk)
    file.seek(0)
    return hasher.hexdigest()


async def _read_chunks(file: BinaryIO, size_bytes: int) -> AsyncIterator[bytes]:
    while size_bytes:
        chunk = await workspace_io.in_thread(file.read, min(_CHUNK_BYTES, size_bytes))
        if not chunk:
            return
        size_bytes -= len(chunk)
        yield chunk


def _staged_files(
    workspace: workspaces.Workspace, manifest: archive_manifests.Manifest
) -> Iterator[tuple[archive_manifests.File, pathlib.Path]]:
    """Yield the files of a manifest, and the path in the staging directory for each."""
    for folder, files in (("files", manifest.files), ("variables", manifest.variables)):
        for file in files:
            yield file, workspace.staging / folder / os.fsdecode(bytes.fromhex(file.path))


def _make_staging(workspace: workspaces.Workspace) -> None:
    safe_open.remove(workspace.staging)
    for folder in ("files", "variables"):
        (workspace.staging / folder).mkdir(mode=0o700, parents=True)


def _replace_session(workspace: workspaces.Workspace, manifest: archive_manifests.Manifest) -> None:
    """Replace a session's files and variables with the staged ones."""
    snapshot_generations.delete_all(workspace)
    file_copies.replace_content(workspace.directory, workspace.staging / "files")
    file_copies.replace_content(workspace.variables, workspace.staging / "variables")
    safe_open.remove(workspace.staging)
    if manifest.packages:
        private_files.replace(workspace.packages_file, manifest.packages)
    if manifest.pointer:
        snapshot_generations.write_pointer(workspace, manifest.pointer)


def _read_text(file: pathlib.Path) -> str:
    """Read a text file of the bot; empty if there is none."""
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return ""
