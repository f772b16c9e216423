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
import time
import weakref
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeAlias

from interpreter_bot import cancellation, errors, private_files, schedules
from interpreter_bot.kernels import (
    archive_manifests,
    checkpoints,
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

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 4
_RETRY_SECONDS: Final = 5.0
_LONGEST_RETRY_SECONDS: Final = 300.0
_MOST_REMEMBERED: Final = 200_000  # some 60 MB
_FULL: Final = "The disk of the machine is too full to bring this conversation's files here."
_FLUSH_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 24 * 3600.0
_STAGING: Final = "archives"

_Digests: TypeAlias = dict[bytes, tuple[directory_contents.Identity, archive_manifests.File]]
"""By path, below `f/` or `v/`: what a file was when it was archived last."""


@dataclasses.dataclass(slots=True)
class _Staged:
    """A manifest, where the content lies that is to be uploaded, and what to remember then."""

    manifest: archive_manifests.Manifest
    content: dict[str, pathlib.Path]
    digests: _Digests


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
        self._staging = pool.settings.paths.data / _STAGING
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
        await asyncio.to_thread(shutil.rmtree, archives._staging, ignore_errors=True)
        await asyncio.to_thread(archives._staging.mkdir, mode=0o700, parents=True)
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
        place = self._staging / f"{name}-{time.monotonic_ns()}"
        try:
            async with self._pool.snapshots.lock(workspace):
                staged = await workspace_io.file_work(self._stage, workspace, place)
            for digest, file in staged.content.items():
                await self._store.upload(file, digest)
            if (await asyncio.to_thread(archive_manifests.arrival, workspace))[0] < epoch == 1:
                # First: else it would pass for another machine's where this one dies in between.
                mark = archive_manifests.mark
                await asyncio.to_thread(mark, workspace, epoch, is_restored=False)
            if await archive_manifests.write(self._store, staged.manifest, epoch, self._key):
                self._remember(name, staged.digests)
        finally:
            await cancellation.in_thread(shutil.rmtree, place, ignore_errors=True)

    def _remember(self, name: str, digests: _Digests) -> None:
        self._digests.pop(name, None)
        self._digests[name] = digests
        while sum(map(len, self._digests.values())) > _MOST_REMEMBERED and len(self._digests) > 1:
            del self._digests[next(iter(self._digests))]

    def _stage(self, workspace: workspaces.Workspace, place: pathlib.Path) -> _Staged:
        """Copy what is new of a session, so that it stays what it is while it is uploaded."""
        place.mkdir(mode=0o700)
        content: dict[str, pathlib.Path] = {}
        limits, known = self._pool.settings.limits, self._digests.get(workspace.name, {})
        digests: _Digests = {}
        with workspace_io.opened(workspace.directory) as root:
            found = directory_contents.scan(root, limits.workspace_files).entries
            files = self._copied(root, found, place, b"f/", (known, digests), content)
        snapshot = self._pool.snapshots.generations.find(workspace)
        variables: list[archive_manifests.File] = []
        if snapshot is not None:
            with workspace_io.opened(workspace.variables) as root:
                entries = snapshot_generations.entries(root, snapshot)
                variables = self._copied(root, entries, place, b"v/", (known, digests), content)
        return _Staged(
            archive_manifests.Manifest(
                session=workspace.name,
                files=tuple(files),
                variables=tuple(variables),
                pointer="" if snapshot is None else snapshot_generations.read_pointer(workspace),
                packages=_text(workspace.packages_file),
            ),
            content,
            digests,
        )

    def _copied(
        self,
        root: int,
        entries: Iterable[directory_contents.Entry],
        place: pathlib.Path,
        kind: bytes,
        digests: tuple[_Digests, _Digests],
        content: dict[str, pathlib.Path],
    ) -> list[archive_manifests.File]:
        known, found = digests
        with workspace_io.opened(place) as copies:
            for entry in entries:
                if entry.refusal:
                    continue
                former = known.get(kind + entry.path)
                if former is not None and former[0] == entry.identity:
                    found[kind + entry.path] = former
                    continue
                copy = f"{len(found)}{kind[:1].decode()}"
                try:
                    file = safe_open.open_file(root, entry.path)
                except errors.FileMissingError:
                    continue
                try:
                    file_copies.copy_file(
                        file,
                        copies,
                        copy.encode(),
                        most_bytes=self._pool.settings.limits.workspace_bytes,
                        reserve_bytes=self._pool.settings.limits.disk_reserve_bytes,
                    )
                finally:
                    os.close(file)
                with (place / copy).open("rb") as opened:
                    sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
                status = (place / copy).stat()
                made = archive_manifests.File(
                    path=entry.path.hex(),
                    size_bytes=status.st_size,
                    changed_ns=status.st_mtime_ns,
                    sha256=sha256,
                )
                found[kind + entry.path] = (entry.identity, made)
                content[sha256] = place / copy
        return [file for path, (_, file) in found.items() if path.startswith(kind)]

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
        place = self._staging / f"{workspace.name}-{time.monotonic_ns()}"
        everything = {one.sha256: one for one in (*manifest.files, *manifest.variables)}
        slots = asyncio.Semaphore(_AT_ONCE)
        disk = await asyncio.to_thread(shutil.disk_usage, self._staging)
        # They are here twice for a moment.
        needed_bytes = 2 * sum(one.size_bytes for one in everything.values())
        if needed_bytes + self._pool.settings.limits.disk_reserve_bytes > disk.free:
            raise errors.WorkspaceFullError(_FULL)

        async def download(one: archive_manifests.File) -> None:
            async with slots:
                await self._store.download(one.sha256, one.size_bytes, place / one.sha256)

        async def put(_: workspaces.Workspace) -> None:
            async with self._pool.snapshots.lock(workspace):
                await workspace_io.file_work(self._put, workspace, manifest, place)

        try:
            await asyncio.to_thread(place.mkdir, mode=0o700)
            await asyncio.gather(*map(download, everything.values()))
            await self._pool.let_go(key, put)
        finally:
            await cancellation.in_thread(shutil.rmtree, place, ignore_errors=True)

    def _put(
        self,
        workspace: workspaces.Workspace,
        manifest: archive_manifests.Manifest,
        place: pathlib.Path,
    ) -> None:
        """Let a session's directory be what a manifest says, out of downloaded files."""
        limits = self._pool.settings.limits
        snapshot_generations.forget(workspace)
        with workspace_io.opened(workspace.directory) as root:
            for name in os.listdir(root):
                safe_open.remove_tree(root, name)
        for directory, files in (
            (workspace.directory, manifest.files),
            (workspace.variables, manifest.variables),
        ):
            for one in files:
                os.utime(place / one.sha256, ns=(one.changed_ns, one.changed_ns))
            wanted = {bytes.fromhex(one.path): one.sha256 for one in files}
            checkpoints.put_files(wanted, place, directory, limits)
        if manifest.packages:
            private_files.replace(workspace.packages_file, manifest.packages)
        if manifest.pointer:
            snapshot_generations.point(workspace, manifest.pointer)

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


def _text(file: pathlib.Path) -> str:
    """Return what a file of ours holds, which is no secret; empty if there is none."""
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return ""
