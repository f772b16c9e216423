"""Generations of a session's saved variables on disk, and which of them is current. All block.

Each has a directory of its own, in one that belongs to the session's kernels; large buffers lie
beside them and are shared. A file where no code reaches says which one is current, signed with the
session's name and the key of the data directory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import logging
import os
import pathlib
import secrets
from collections.abc import Collection, Container, Iterator
from typing import Final

import pydantic

from interpreter_bot import private_files, session_variables, settings
from interpreter_bot.kernels import snapshot_manifests
from interpreter_bot.kernels.files import (
    checkpoints,
    directory_contents,
    file_copies,
    safe_open,
    workspace_io,
    workspaces,
)

_log = logging.getLogger(__name__)

_KEY_FILE: Final = "snapshot-key"
_POINTER: Final = "snapshot"
# Python may have died of something else the first time.
_MAX_DEATHS: Final = 2
_MAX_FILES: Final = 10_000
_NO_LIMIT: Final = 1 << 60


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotKey:
    """The key of all snapshots of a data directory; empty if nothing is saved."""

    secret: bytes = dataclasses.field(default=b"", repr=False)

    def sign(self, name: str, content: str) -> str:
        """Sign what is noted of a workspace."""
        return hmac.new(self.secret, f"{name} {content}".encode(), hashlib.sha256).hexdigest()


def load_key(config: settings.Settings) -> SnapshotKey:
    """Read the key, or make it. Blocks.

    Raises:
        SettingsError: its file cannot be used.
    """
    return SnapshotKey(private_files.read_or_create(config.paths.data / _KEY_FILE, _new).encode())


def stored_or_new_key(config: settings.Settings) -> str:
    """Return the key as it lies on disk, or a new one, which lies nowhere. Blocks.

    Raises:
        SettingsError: its file cannot be used.
    """
    return private_files.read(config.paths.data / _KEY_FILE) or _new()


def _new() -> str:
    return secrets.token_hex(32)


class PointerRecord(pydantic.BaseModel):
    """Which generation of a session is current.

    Attributes:
        number: of the generation: when it was begun, in nanoseconds since the epoch.
        kernel: id of the kernel that saved it.
        runs: how many pieces of code had run there.
        deaths: how often Python died of reading it.
        digest: of its manifest.
    """

    model_config = pydantic.ConfigDict(frozen=True, strict=True, extra="forbid")

    number: int
    kernel: str
    runs: int
    deaths: int = 0
    digest: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The current generation of a session.

    Attributes:
        workspace: of the session.
        number: of the generation.
        summary: what is in it, and since when.
        deaths: how often Python died of reading it.
        blobs: names of the large buffers that it needs.
    """

    workspace: workspaces.Workspace
    number: int
    summary: session_variables.SavedVariables
    deaths: int
    blobs: Collection[str]


class Generations:
    """All generations of all sessions.

    Args:
        config: their limits.
        key: signs which of them are current.
    """

    def __init__(self, config: settings.Snapshots, key: SnapshotKey) -> None:
        self._config = config
        self._key = key
        self._pinned: dict[str, str] = {}

    def find(self, workspace: workspaces.Workspace, pointer: str | None = None) -> Snapshot | None:
        """Return the current generation, if there is a valid one.

        Args:
            workspace: of the session.
            pointer: to the one that was current at a checkpoint, as it was signed.

        Raises:
            BotError, OSError: nobody knows, as it cannot be read now.
        """
        record = self._record(workspace, pointer)
        if record is None:
            return None
        manifest = snapshot_manifests.read(workspace, record.number)
        if manifest is None or _digest(manifest) != record.digest:
            return None
        summary = snapshot_manifests.summary(
            manifest, kernel=record.kernel, runs=record.runs, at=record.number / 1e9
        )
        return Snapshot(workspace, record.number, summary, record.deaths, manifest.blobs.keys())

    def has_other_format(self, workspace: workspaces.Workspace) -> bool:
        """Return whether another version of the bot saved the current generation.

        Raises:
            BotError, OSError: nobody knows, as it cannot be read now.
        """
        content = read_pointer(workspace).rpartition("\n")[0]
        if not content:
            return False
        try:
            record = PointerRecord.model_validate_json(content)
        except pydantic.ValidationError:
            return True
        return snapshot_manifests.has_other_format(workspace, record.number)

    def _record(
        self, workspace: workspaces.Workspace, pointer: str | None = None
    ) -> PointerRecord | None:
        """Return what is noted of the current generation, or a former one; None for none."""
        text = read_pointer(workspace) if pointer is None else pointer
        content, _, signature = text.rpartition("\n")
        if not content:
            return None
        signed = self._key.sign(workspace.name, content)
        if not hmac.compare_digest(signed.encode(), signature.encode()):
            _log.error("the snapshot of session %s is not its own", workspace.name)
            return None
        try:
            return PointerRecord.model_validate_json(content)
        except pydantic.ValidationError:
            _log.warning("the snapshot of session %s is of another version", workspace.name)
            return None

    def activate(
        self, workspace: workspaces.Workspace, record: PointerRecord, known: set[int]
    ) -> bool:
        """Make a generation current, if it is complete; returns whether it is.

        Args:
            workspace: of the session.
            record: what to note of it.
            known: the generations that its kernel began with or wrote, 0 for none. Another one is
                of another kernel, and stays. The one that is current then is added.
        """
        manifest = snapshot_manifests.read(workspace, record.number)
        problem = "no valid manifest" if manifest is None else manifest.problem
        if manifest is None or problem:
            _log.warning("nothing was saved of session %s: %s", workspace.name, problem)
            return False
        if not self._is_known(workspace, known):
            _log.warning("another Python has saved session %s meanwhile", workspace.name)
            return False
        if not (manifest.kept_count or manifest.lost_count):
            # A session that deleted all it had is not to get it back.
            _pointer(workspace).unlink(missing_ok=True)
            known.add(0)
            return True
        self._point(workspace, record.model_copy(update={"digest": _digest(manifest)}))
        known.add(record.number)
        return True

    def _is_known(self, workspace: workspaces.Workspace, known: Container[int]) -> bool:
        record = self._record(workspace)
        return (record.number if record is not None else 0) in known

    def _point(self, workspace: workspaces.Workspace, record: PointerRecord) -> None:
        content = record.model_dump_json()
        point(workspace, f"{content}\n{self._key.sign(workspace.name, content)}")

    def note_death(self, snapshot: Snapshot) -> None:
        """Count that Python died of a snapshot, and give up one that it died of repeatedly."""
        record = self._record(snapshot.workspace)
        if record is None or record.number != snapshot.number:
            return
        if record.deaths + 1 >= _MAX_DEATHS:
            _pointer(snapshot.workspace).unlink(missing_ok=True)
            self.prune(snapshot.workspace)
            return
        self._point(snapshot.workspace, record.model_copy(update={"deaths": record.deaths + 1}))

    def prune(
        self, workspace: workspaces.Workspace, known: Container[int] | None = None
    ) -> Snapshot | None:
        """Delete what the current generation does not need; everything, if there is none.

        What another version saved stays until a kernel has said that it is not restored.

        Args:
            workspace: of the session.
            known: as in `activate`; if another one is current, nothing is deleted.

        Returns:
            The current one, unless that is another one.

        Raises:
            BotError, OSError: it cannot be done now. Nothing is deleted that may be needed.
        """
        if known is not None and not self._is_known(workspace, known):
            return None
        snapshot = self.find(workspace)
        if snapshot is None and self.has_other_format(workspace):
            return None
        if snapshot is None:
            _pointer(workspace).unlink(missing_ok=True)
        needed = self._needed(workspace, snapshot)
        while _delete_others(workspace, needed) > self._max_bytes:
            if not checkpoints.remove_oldest(workspace.checkpoints):
                break
            needed = self._needed(workspace, snapshot)
        return snapshot

    def drop_other_format(self, workspace: workspaces.Workspace) -> bool:
        """Delete what another version saved; returns whether there was anything."""
        if not self.has_other_format(workspace):
            return False
        _pointer(workspace).unlink(missing_ok=True)
        self.prune(workspace)
        return True

    @property
    def _max_bytes(self) -> int:
        return self._config.bytes + self._config.checkpoint_bytes

    def _needed(self, workspace: workspaces.Workspace, snapshot: Snapshot | None) -> list[Snapshot]:
        """Return the current generation, that of each checkpoint, and a pinned one."""
        pointers = {*checkpoints.pointers(workspace.checkpoints)}
        pointers.add(self._pinned.get(workspace.name, ""))
        earlier = [self.find(workspace, pointer) for pointer in pointers - {""}]
        return [needed for needed in (snapshot, *earlier) if needed is not None]

    @contextlib.contextmanager
    def pinned(self, workspace: workspaces.Workspace, pointer: str) -> Iterator[None]:
        """Keep the files of a generation while they are read, though it may not count any more."""
        self._pinned[workspace.name] = pointer
        try:
            yield
        finally:
            del self._pinned[workspace.name]

    def go_back(self, workspace: workspaces.Workspace, pointer: str) -> None:
        """Make the generation current again that was at a checkpoint; none if that is empty."""
        if pointer:
            point(workspace, pointer)
        else:
            _pointer(workspace).unlink(missing_ok=True)

    def copy(
        self,
        source: workspaces.Workspace,
        target: workspaces.Workspace,
        *,
        pointer: str | None = None,
        reserve_bytes: int,
    ) -> bool:
        """Let a session that has nothing saved begin with the current generation of another one.

        It is signed anew for the session; that it is what was signed for the other one is found
        out on the copy, of which no kernel has heard.

        Args:
            source: the other one.
            target: the session.
            pointer: as in `find`.
            reserve_bytes: of the disk, which are left free.

        Returns:
            Whether there was something that it begins with.

        Raises:
            BotError, OSError: it cannot be done now.
        """
        record, snapshot = self._record(source, pointer), self.find(source, pointer)
        if record is None or snapshot is None:
            return False
        with (
            workspace_io.opened(source.variables) as root,
            workspace_io.opened(target.variables) as copies,
        ):
            limits = file_copies.CopyLimits(self._max_bytes, _MAX_FILES, reserve_bytes)
            file_copies.copy_entries(root, copies, entries(root, snapshot), limits)
        manifest = snapshot_manifests.read(target, snapshot.number)
        if manifest is None or _digest(manifest) != record.digest:
            return False
        self._point(target, record.model_copy(update={"deaths": 0}))
        return True


def entries(variables: int, snapshot: Snapshot) -> list[directory_contents.Entry]:
    """Return the files that a generation needs, in an open directory of saved variables."""
    directories = {f"{snapshot.number}", "blobs"}
    return [
        entry
        for entry in directory_contents.scan(variables, _MAX_FILES).entries
        if not entry.refusal
        and os.fsdecode(os.path.dirname(entry.path)) in directories
        and (not entry.path.startswith(b"blobs/") or os.fsdecode(entry.path[6:]) in snapshot.blobs)
    ]


def used_at(workspace: workspaces.Workspace) -> float | None:
    """Return when a session's snapshot was saved or brought back last; None if there is none."""
    try:
        return _pointer(workspace).stat().st_mtime
    except FileNotFoundError:
        return None


def touch(workspace: workspaces.Workspace) -> None:
    """Note that a session's snapshot was used."""
    os.utime(_pointer(workspace))


def _digest(manifest: snapshot_manifests.Manifest) -> str:
    return hashlib.sha256(manifest.model_dump_json().encode()).hexdigest()


def _pointer(workspace: workspaces.Workspace) -> pathlib.Path:
    return workspace.variables.parent / _POINTER


def read_pointer(workspace: workspaces.Workspace) -> str:
    """Return what is noted of the current generation, as it was signed; empty for none."""
    return private_files.read(_pointer(workspace))


def point(workspace: workspaces.Workspace, pointer: str) -> None:
    """Make a generation current, as it was signed."""
    private_files.replace(_pointer(workspace), pointer)


def forget(workspace: workspaces.Workspace) -> None:
    """Delete all that is saved of a session, which has no kernel now."""
    _pointer(workspace).unlink(missing_ok=True)
    safe_open.remove(workspace.checkpoints)
    _delete_others(workspace, ())


def _delete_others(workspace: workspaces.Workspace, needed: Collection[Snapshot]) -> int:
    """Delete all saved variables but some; returns how many bytes are left."""
    numbers = {f"{snapshot.number}" for snapshot in needed}
    blobs = {blob for snapshot in needed for blob in snapshot.blobs}
    with (
        contextlib.suppress(FileNotFoundError),
        workspace_io.opened(workspace.variables) as root,
    ):
        names = os.listdir(root)
        if not names:
            return 0
        for name in names:
            if name not in numbers and (name != "blobs" or not needed):
                safe_open.remove_tree(root, name)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            directory = safe_open.open_directory(root, b"blobs", is_forced=True)
            try:
                for name in set(os.listdir(directory)).difference(blobs):
                    safe_open.remove_tree(directory, name)
            finally:
                os.close(directory)
        return directory_contents.measure(root, most_bytes=_NO_LIMIT, most_files=_NO_LIMIT).bytes
    return 0
