"""Archives of sessions in a store that all machines share: files and variables, to go on elsewhere.

What lies there of a session is a manifest: names, sizes and digests of its files and of the saved
variables that count, signed with the key of snapshots, which the machines share too. A later epoch
comes before an earlier one whatever its time: a machine that returns from the dead overwrites
nothing. A session is archived in the background whenever it was saved, and whenever its files
change otherwise; it arrives as a whole, before anything of it is used on another machine.
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

_AT_ONCE: Final = 4
_RETRY_SECONDS: Final = 5.0
_LONGEST_RETRY_SECONDS: Final = 300.0
_MAX_REMEMBERED: Final = 200_000  # some 60 MB
_FLUSH_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 24 * 3600.0
# Of files that fit into memory; larger ones are read twice.
_SMALL_BYTES: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 4 * 1024 * 1024
# Of what files seem to hold: a workspace may be full of holes.
_SPARSE_TIMES: Final = 4

_Digests: TypeAlias = dict[bytes, tuple[directory_contents.Identity, archive_manifests.File]]
"""By path, below `f/` or `v/`: what a file was when it was archived last."""


@dataclasses.dataclass(frozen=True, slots=True)
class _SessionState:
    """What there is of a session, as it was scanned."""

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
        # By session: which content each file had when it was last archived.
        self._digests: dict[str, _Digests] = {}
        self._changed: dict[str, workspaces.Workspace] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        pool: pools.Pool,
        store: shared_object_stores.SharedStore,
        key: snapshot_generations.SnapshotKey,
    ) -> AsyncIterator[SessionArchives]:
        """Archive sessions of a pool that are of an epoch, from now on.

        Args:
            pool: of the sessions.
            store: that the machines share.
            key: of their snapshots.
        """
        archives = cls(pool, store, key)
        pool.snapshots.on_saved = archives._note
        sweep = functools.partial(archive_manifests.sweep, store)
        sweeping = schedules.PeriodicJob("sweep the store", _SWEEP_SECONDS, sweep)
        async with schedules.run_periodically(sweeping):
            yield archives

    def attend(self, key: str, epoch: int) -> None:
        """Hear in which epoch a session is here."""
        self._epochs[workspaces.Workspaces.name_of(key)] = epoch

    async def note_change(self, key: str) -> None:
        """Archive a session soon, as its files changed."""
        self._note(await self._pool.workspace(key))

    def _note(self, workspace: workspaces.Workspace) -> None:
        name = workspace.name
        if name not in self._epochs:
            return
        self._changed[name] = workspace
        if name not in self._keeping:
            task = asyncio.create_task(self._keep(name), name=f"archive session {name}")
            self._keeping[name] = task
            task.add_done_callback(functools.partial(self._leave, name))

    def _leave(self, name: str, done: asyncio.Task[None]) -> None:
        # One that was cancelled before it began is still there.
        if self._keeping.get(name) is done:
            del self._keeping[name]

    async def _keep(self, name: str) -> None:
        """Archive a session until nothing of it is new."""
        try:
            await self._keep_on(name)
        finally:
            # At once, and not in a moment: else a change in between would be nobody's.
            self._keeping.pop(name, None)

    async def _keep_on(self, name: str) -> None:
        wait_seconds = _RETRY_SECONDS
        while (workspace := self._changed.pop(name, None)) is not None:
            try:
                async with self._slots:
                    if await asyncio.to_thread(workspace.directory.is_dir):
                        await self._archive(workspace)
            except (errors.BotError, OSError) as error:
                _log.warning("session %s is not archived, which is tried again: %r", name, error)
                self._changed.setdefault(name, workspace)
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(2 * wait_seconds, _LONGEST_RETRY_SECONDS)

    async def archive(self, key: str) -> bool:
        """Archive a session now; say whether all of it is, within a minute."""
        workspace = await self._pool.workspace(key)
        self._note(workspace)
        epoch = self._epochs.get(workspace.name, 0)
        arrived, _ = await asyncio.to_thread(archive_manifests.arrival, workspace)
        return bool(epoch) and await self.flush(key) and (epoch == 1 or arrived >= epoch)

    async def flush(self, key: str | None = None) -> bool:
        """Wait a minute until a session, or all of them, are archived; say whether they are."""
        names = set(self._keeping) if key is None else {workspaces.Workspaces.name_of(key)}
        waited_for = [task for name, task in self._keeping.items() if name in names]
        if not waited_for:
            return True
        _, late = await asyncio.wait(waited_for, timeout=_FLUSH_SECONDS)
        if late:
            _log.error("%d sessions are not archived in time", len(late))
        return not late

    async def close(self) -> None:
        """Archive what is new, and end."""
        await self.flush()
        late = list(self._keeping.values())
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _archive(self, workspace: workspaces.Workspace) -> None:
        name, epoch = workspace.name, self._epochs[workspace.name]
        if epoch > 1 and (await asyncio.to_thread(archive_manifests.arrival, workspace))[0] < epoch:
            # What another machine had is to come here first: this is what was before that.
            return
        saved = self._pool.snapshots
        with contextlib.ExitStack() as stack:
            async with saved.lock(workspace):
                state = await workspace_io.file_work(self._scan, workspace)
                stack.enter_context(saved.generations.pinned(workspace, state.pointer))
            uploads = _Uploads(self._store, self._digests.get(name, {}))
            files = await uploads.add(workspace.directory, state.files, b"f/")
            variables = await uploads.add(workspace.variables, state.variables, b"v/")
        if len(variables) < len(state.variables):
            # The session was forgotten or went back meanwhile, or its code changed them.
            raise shared_object_stores.ContentChangedError
        manifest = archive_manifests.Manifest(
            session=name,
            files=files,
            variables=variables,
            pointer=state.pointer,
            packages=state.packages,
        )
        if (await asyncio.to_thread(archive_manifests.arrival, workspace))[0] < epoch == 1:
            # First: else it would pass for another machine's where this one dies in between.
            mark = archive_manifests.mark
            await asyncio.to_thread(mark, workspace, epoch, is_restored=False)
        if await archive_manifests.write(self._store, manifest, epoch, self._key):
            self._remember(name, uploads.digests)
        if uploads.is_partial:
            raise shared_object_stores.ContentChangedError

    def _remember(self, name: str, digests: _Digests) -> None:
        self._digests.pop(name, None)
        self._digests[name] = digests
        while sum(map(len, self._digests.values())) > _MAX_REMEMBERED and len(self._digests) > 1:
            del self._digests[next(iter(self._digests))]

    def _scan(self, workspace: workspaces.Workspace) -> _SessionState:
        """Scan what there is of a session that can be archived."""
        limits = self._pool.settings.limits
        with workspace_io.opened(workspace.directory) as root:
            found = directory_contents.scan(root, limits.workspace_files).entries
        left_bytes, files = _SPARSE_TIMES * limits.workspace_bytes, []
        for entry in found:
            left_bytes -= entry.info.size_bytes
            if not entry.refusal and left_bytes >= 0:
                files.append(entry)
        snapshot = self._pool.snapshots.generations.find(workspace)
        variables: list[directory_contents.Entry] = []
        if snapshot is not None:
            with workspace_io.opened(workspace.variables) as root:
                variables = snapshot_generations.entries(root, snapshot)
        pointer = "" if snapshot is None else snapshot_generations.read_pointer(workspace)
        return _SessionState(files, variables, pointer, _text(workspace.packages_file))

    async def arrive(self, key: str, epoch: int) -> bool:
        """Bring what another machine had of a session here, once.

        Args:
            key: of the session.
            epoch: in which it is here.

        Returns:
            Whether anything was brought, then or now.

        Raises:
            KernelError: it cannot be had now; it is asked for again then, before anything else.
            WorkspaceFullError: the disk is too full for it.
        """
        workspace = await self._pool.workspace(key)
        async with self._locks.setdefault(workspace.name, asyncio.Lock()):
            arrived, is_restored = await asyncio.to_thread(archive_manifests.arrival, workspace)
            if arrived >= epoch:
                return is_restored
            found = await archive_manifests.latest(self._store, workspace.name)
            # One of ours of an earlier time is no news: here is that, and what came after.
            is_restored = found is not None and archive_manifests.epoch_of(found[0]) > arrived
            if found is not None and is_restored:
                await self._fetch(key, workspace, *found)
            mark = archive_manifests.mark
            await asyncio.to_thread(mark, workspace, epoch, is_restored=is_restored)
            if not is_restored:
                self._note(workspace)
            return is_restored

    async def _fetch(
        self, key: str, workspace: workspaces.Workspace, number: str, data: bytes
    ) -> None:
        manifest = archive_manifests.read(workspace.name, number, data, self._key)
        if manifest.is_empty:
            # It may have been forgotten: nothing of what was here before that is to stay.
            await self._pool.forget(key)
            await self._pool.workspace(key)
            return
        everything = [*_placed(workspace, manifest)]
        slots = asyncio.Semaphore(_AT_ONCE)
        disk = await asyncio.to_thread(shutil.disk_usage, workspace.directory)
        needed_bytes = sum(one.size_bytes for one, _ in everything)
        if needed_bytes + self._pool.settings.limits.disk_reserve_bytes > disk.free:
            raise errors.WorkspaceFullError(host_words.NO_ROOM_FOR_FILES)

        async def download(one: archive_manifests.File, place: pathlib.Path) -> None:
            async with slots:
                await workspace_io.file_work(place.parent.mkdir, parents=True, exist_ok=True)
                await self._store.download(one.sha256, one.size_bytes, place)
                times = (one.changed_ns, one.changed_ns)
                await workspace_io.file_work(os.utime, place, ns=times)

        async def put(_: workspaces.Workspace) -> None:
            async with self._pool.snapshots.lock(workspace):
                await workspace_io.file_work(_put, workspace, manifest)

        await workspace_io.file_work(_make_staging, workspace)
        try:
            async with asyncio.TaskGroup() as downloads:
                for one, place in everything:
                    downloads.create_task(download(one, place))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        await self._pool.run_without_kernel(key, put)

    async def forget(self, key: str) -> None:
        """Delete what is archived of a session, also for a machine that still has it and is away.

        Raises:
            KernelError: the store cannot be used.
        """
        name = workspaces.Workspaces.name_of(key)
        self._changed.pop(name, None)
        if (task := self._keeping.get(name)) is not None:
            task.cancel()
            await asyncio.wait({task})
        self._digests.pop(name, None)
        if (epoch := self._epochs.get(name)) is None:
            return
        empty = archive_manifests.Manifest(
            session=name, files=(), variables=(), pointer="", packages=""
        )
        if await archive_manifests.write(self._store, empty, epoch, self._key):
            # It is here already: else it would take away here what comes after it.
            mark, workspace = archive_manifests.mark, await self._pool.workspace(key)
            await asyncio.to_thread(mark, workspace, epoch, is_restored=False)


class _Uploads:
    """Files of a session on their way into the store.

    Attributes:
        digests: what was stored, now or before.
        is_partial: a file is left out, or as it was before, because it changed all the time.
    """

    def __init__(self, store: shared_object_stores.SharedStore, known: _Digests) -> None:
        self._store = store
        self._known = known
        self.digests: _Digests = {}
        self.is_partial = False

    async def add(
        self, root: pathlib.Path, entries: Iterable[directory_contents.Entry], kind: bytes
    ) -> tuple[archive_manifests.File, ...]:
        """Store those that are not stored; return all but those that are gone by now."""
        files = []
        for entry in entries:
            name = kind + entry.path
            stored = self._known.get(name)
            if stored is None or stored[0] != entry.identity:
                try:
                    stored = entry.identity, await self._upload(root, entry.path)
                except errors.FileMissingError:
                    continue
                except shared_object_stores.ContentChangedError:
                    self.is_partial = True
            if stored is not None:
                self.digests[name] = stored
                files.append(stored[1])
        return tuple(files)

    async def _upload(self, root: pathlib.Path, path: bytes) -> archive_manifests.File:
        file = await workspace_io.file_work(_opened, root, path)
        try:
            status = os.fstat(file.fileno())
            size_bytes = status.st_size
            content: bytes | AsyncIterator[bytes]
            if size_bytes <= _SMALL_BYTES:
                content = await workspace_io.file_work(file.read, size_bytes)
                size_bytes = len(content)
                digest = hashlib.sha256(content).hexdigest()
            else:
                digest = await workspace_io.file_work(_digest, file, size_bytes)
                content = _chunks(file, size_bytes)
            await self._store.upload(content, digest)
        finally:
            await cancellation.in_thread(file.close)
        return archive_manifests.File(
            path=path.hex(), size_bytes=size_bytes, changed_ns=status.st_mtime_ns, sha256=digest
        )


def _opened(root: pathlib.Path, path: bytes) -> BinaryIO:
    with workspace_io.opened(root) as directory:
        return os.fdopen(safe_open.open_file(directory, path), "rb")


def _digest(file: BinaryIO, size_bytes: int) -> str:
    """Hash the first bytes of a file; code may append to it meanwhile."""
    hashed = hashlib.sha256()
    while size_bytes and (chunk := file.read(min(_CHUNK_BYTES, size_bytes))):
        hashed.update(chunk)
        size_bytes -= len(chunk)
    file.seek(0)
    return hashed.hexdigest()


async def _chunks(file: BinaryIO, size_bytes: int) -> AsyncIterator[bytes]:
    while size_bytes:
        chunk = await workspace_io.file_work(file.read, min(_CHUNK_BYTES, size_bytes))
        if not chunk:
            return
        size_bytes -= len(chunk)
        yield chunk


def _placed(
    workspace: workspaces.Workspace, manifest: archive_manifests.Manifest
) -> Iterator[tuple[archive_manifests.File, pathlib.Path]]:
    """Yield the files of a manifest, and where each is brought to before it replaces another."""
    for folder, files in (("files", manifest.files), ("variables", manifest.variables)):
        for file in files:
            yield file, workspace.staging / folder / os.fsdecode(bytes.fromhex(file.path))


def _make_staging(workspace: workspaces.Workspace) -> None:
    safe_open.remove(workspace.staging)
    for folder in ("files", "variables"):
        (workspace.staging / folder).mkdir(mode=0o700, parents=True)


def _put(workspace: workspaces.Workspace, manifest: archive_manifests.Manifest) -> None:
    """Let a session's directory be what a manifest says, out of what was brought here."""
    snapshot_generations.forget(workspace)
    file_copies.replace_content(workspace.directory, workspace.staging / "files")
    file_copies.replace_content(workspace.variables, workspace.staging / "variables")
    safe_open.remove(workspace.staging)
    if manifest.packages:
        private_files.replace(workspace.packages_file, manifest.packages)
    if manifest.pointer:
        snapshot_generations.point(workspace, manifest.pointer)


def _text(file: pathlib.Path) -> str:
    """Return what a file of ours holds, which is no secret; empty if there is none."""
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return ""
