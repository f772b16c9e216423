"""Generations of a session's saved variables on disk, and the pointer to the current one.

All functions block. Each generation is a subdirectory of a directory that the session's kernels can
write to; generations share the large buffers beside them. The pointer to the current generation is
in a file out of reach of code; it is signed together with the session's name, with the key of the
data directory.
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

_KEY_FILE_NAME: Final = "snapshot-key"
_POINTER_FILE_NAME: Final = "snapshot"
# Drop a snapshot only at the second death: the first may have had another cause.
_MAX_DEATHS: Final = 2
_MAX_FILES: Final = 10_000
_UNLIMITED: Final = 1 << 60


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotKey:
    """The key that signs all snapshots of a data directory; empty if nothing is saved."""

    secret: bytes = dataclasses.field(default=b"", repr=False)

    def sign(self, name: str, content: str) -> str:
        """Sign content that belongs to a workspace."""
        return hmac.new(self.secret, f"{name} {content}".encode(), hashlib.sha256).hexdigest()


def load_key(config: settings.Settings) -> SnapshotKey:
    """Read or create the key. Blocks.

    Raises:
        SettingsError: its file cannot be used.
    """
    return SnapshotKey(
        private_files.read_or_create(config.paths.data / _KEY_FILE_NAME, _new_key).encode()
    )


def stored_or_new_key(config: settings.Settings) -> str:
    """Return the key on disk, or a new one that is not stored. Blocks.

    Raises:
        SettingsError: its file cannot be used.
    """
    return private_files.read(config.paths.data / _KEY_FILE_NAME) or _new_key()


def _new_key() -> str:
    return secrets.token_hex(32)


class PointerRecord(pydantic.BaseModel):
    """Record of the current generation of a session.

    Attributes:
        number: of the generation: its start time in nanoseconds since the epoch.
        kernel: id of the kernel that saved it.
        runs: number of executions in that kernel before the save.
        deaths: number of kernels that died while restoring it.
        digest: of the generation's manifest.
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
        summary: description of its content, and its time.
        blobs: names of the large buffers that it needs.
    """

    workspace: workspaces.Workspace
    number: int
    summary: session_variables.SavedVariables
    blobs: Collection[str]


class Generations:
    """All generations of all sessions."""

    def __init__(self, config: settings.Snapshots, key: SnapshotKey) -> None:
        self._config = config
        self._key = key
        self._pinned_pointers: dict[str, str] = {}

    def find(self, workspace: workspaces.Workspace, pointer: str | None = None) -> Snapshot | None:
        """Return the current generation, or the one of a signed pointer; None if it is not valid.

        Raises:
            BotError, OSError: it cannot be read now.
        """
        record = self._read_record(workspace, pointer)
        if record is None:
            return None
        manifest = snapshot_manifests.read(workspace, record.number)
        if manifest is None or _digest(manifest) != record.digest:
            return None
        summary = snapshot_manifests.summarize(
            manifest, kernel=record.kernel, run_count=record.runs, saved_at=record.number / 1e9
        )
        return Snapshot(workspace, record.number, summary, manifest.blobs.keys())

    def _read_record(
        self, workspace: workspaces.Workspace, pointer: str | None = None
    ) -> PointerRecord | None:
        """Return the record of the current generation or of a signed pointer; None if not valid."""
        text = read_pointer(workspace) if pointer is None else pointer
        content, _, signature = text.rpartition("\n")
        if not content:
            return None
        expected_signature = self._key.sign(workspace.name, content)
        if not hmac.compare_digest(expected_signature.encode(), signature.encode()):
            _log.error("the snapshot of session %s is not its own", workspace.name)
            return None
        try:
            return PointerRecord.model_validate_json(content)
        except pydantic.ValidationError:
            _log.warning("the snapshot of session %s is of another version", workspace.name)
            return None

    def activate(
        self, workspace: workspaces.Workspace, record: PointerRecord, known_numbers: set[int]
    ) -> bool:
        """Make a complete generation current; return whether that was done.

        `known_numbers` are the generations that the kernel restored or wrote; 0 means none. The new
        one is added. If another generation is current, another kernel saved it, and it stays.
        """
        manifest = snapshot_manifests.read(workspace, record.number)
        problem = "no valid manifest" if manifest is None else manifest.problem
        if manifest is None or problem:
            _log.warning("nothing was saved of session %s: %s", workspace.name, problem)
            return False
        if not self._is_current_known(workspace, known_numbers):
            _log.warning("another Python has saved session %s meanwhile", workspace.name)
            return False
        if not (manifest.kept_count or manifest.lost_count):
            # The session deleted all its variables, so it must not get them back.
            _pointer_file(workspace).unlink(missing_ok=True)
            known_numbers.add(0)
            return True
        self._write_signed_pointer(
            workspace, record.model_copy(update={"digest": _digest(manifest)})
        )
        known_numbers.add(record.number)
        return True

    def _is_current_known(
        self, workspace: workspaces.Workspace, known_numbers: Container[int]
    ) -> bool:
        record = self._read_record(workspace)
        return (record.number if record is not None else 0) in known_numbers

    def _write_signed_pointer(self, workspace: workspaces.Workspace, record: PointerRecord) -> None:
        content = record.model_dump_json()
        write_pointer(workspace, f"{content}\n{self._key.sign(workspace.name, content)}")

    def note_death(self, snapshot: Snapshot) -> None:
        """Count the death of a kernel while restoring a snapshot; drop it after repeated deaths."""
        record = self._read_record(snapshot.workspace)
        if record is None or record.number != snapshot.number:
            return
        if record.deaths + 1 >= _MAX_DEATHS:
            _pointer_file(snapshot.workspace).unlink(missing_ok=True)
            self.prune(snapshot.workspace)
            return
        self._write_signed_pointer(
            snapshot.workspace, record.model_copy(update={"deaths": record.deaths + 1})
        )

    def prune(
        self, workspace: workspaces.Workspace, known_numbers: Container[int] | None = None
    ) -> None:
        """Delete files that neither the current generation nor a checkpoint needs.

        Variables that cannot be read stay until a kernel has reported them to people. If
        `known_numbers`, as in `activate`, lacks the current generation, nothing is deleted.

        Raises:
            BotError, OSError: files cannot be read or deleted now; needed files stay.
        """
        if known_numbers is not None and not self._is_current_known(workspace, known_numbers):
            return
        snapshot = self.find(workspace)
        if snapshot is None and read_pointer(workspace):
            return
        needed_snapshots = self._needed_snapshots(workspace, snapshot)
        while _delete_unneeded(workspace, needed_snapshots) > self._max_bytes:
            if not checkpoints.remove_oldest(workspace.checkpoints):
                break
            needed_snapshots = self._needed_snapshots(workspace, snapshot)

    def drop_unreadable(self, workspace: workspaces.Workspace) -> bool:
        """Delete a current generation that cannot be read; return whether there was one."""
        if not read_pointer(workspace) or self.find(workspace) is not None:
            return False
        _pointer_file(workspace).unlink()
        self.prune(workspace)
        return True

    @property
    def _max_bytes(self) -> int:
        return self._config.bytes + self._config.checkpoint_bytes

    def _needed_snapshots(
        self, workspace: workspaces.Workspace, snapshot: Snapshot | None
    ) -> list[Snapshot]:
        """Return the current generation, those of checkpoints, and the pinned one."""
        pointers = {*checkpoints.pointers(workspace.checkpoints)}
        pointers.add(self._pinned_pointers.get(workspace.name, ""))
        earlier_snapshots = [self.find(workspace, pointer) for pointer in pointers - {""}]
        return [candidate for candidate in (snapshot, *earlier_snapshots) if candidate is not None]

    @contextlib.contextmanager
    def pin(self, workspace: workspaces.Workspace, pointer: str) -> Iterator[None]:
        """Keep the files of a generation while they are read, even if another becomes current."""
        self._pinned_pointers[workspace.name] = pointer
        try:
            yield
        finally:
            del self._pinned_pointers[workspace.name]

    def use_pointer(self, workspace: workspaces.Workspace, pointer: str) -> None:
        """Make the generation of a checkpoint's pointer current again; if it is empty, none."""
        if pointer:
            write_pointer(workspace, pointer)
        else:
            _pointer_file(workspace).unlink(missing_ok=True)

    def copy(
        self,
        source: workspaces.Workspace,
        target: workspaces.Workspace,
        *,
        pointer: str | None = None,
        reserve_bytes: int,
    ) -> bool:
        """Copy a session's current generation, or that of a signed pointer, to a new session.

        The digest is checked on the copy, which no kernel can change yet, and the copy is signed
        for the new session. `reserve_bytes` of the disk stay free.

        Returns:
            Whether a generation was copied.

        Raises:
            BotError, OSError: it cannot be copied now.
        """
        record, snapshot = self._read_record(source, pointer), self.find(source, pointer)
        if record is None or snapshot is None:
            return False
        with (
            workspace_io.root_descriptor(source.variables) as source_root,
            workspace_io.root_descriptor(target.variables) as target_root,
        ):
            limits = file_copies.CopyLimits(self._max_bytes, _MAX_FILES, reserve_bytes)
            file_copies.copy_entries(
                source_root, target_root, list_entries(source_root, snapshot), limits
            )
        manifest = snapshot_manifests.read(target, snapshot.number)
        if manifest is None or _digest(manifest) != record.digest:
            return False
        self._write_signed_pointer(target, record.model_copy(update={"deaths": 0}))
        return True


def list_entries(directory_descriptor: int, snapshot: Snapshot) -> list[directory_contents.Entry]:
    """List the files that a generation needs in the directory of saved variables."""
    directories = {f"{snapshot.number}", "blobs"}
    return [
        entry
        for entry in directory_contents.scan(directory_descriptor, _MAX_FILES).entries
        if not entry.refusal
        and os.fsdecode(os.path.dirname(entry.path)) in directories
        and (not entry.path.startswith(b"blobs/") or os.fsdecode(entry.path[6:]) in snapshot.blobs)
    ]


def last_used_at(workspace: workspaces.Workspace) -> float | None:
    """Return when a session's snapshot was saved or restored last; None if there is none."""
    try:
        return _pointer_file(workspace).stat().st_mtime
    except FileNotFoundError:
        return None


def mark_snapshot_used(workspace: workspaces.Workspace) -> None:
    os.utime(_pointer_file(workspace))


def _digest(manifest: snapshot_manifests.Manifest) -> str:
    return hashlib.sha256(manifest.model_dump_json().encode()).hexdigest()


def _pointer_file(workspace: workspaces.Workspace) -> pathlib.Path:
    return workspace.variables.parent / _POINTER_FILE_NAME


def read_pointer(workspace: workspaces.Workspace) -> str:
    """Return the signed pointer to the current generation; empty if there is none."""
    return private_files.read(_pointer_file(workspace))


def write_pointer(workspace: workspaces.Workspace, pointer: str) -> None:
    """Make a generation current by its signed pointer."""
    private_files.replace(_pointer_file(workspace), pointer)


def delete_all(workspace: workspaces.Workspace) -> None:
    """Delete all saved variables and checkpoints of a session without a kernel."""
    _pointer_file(workspace).unlink(missing_ok=True)
    safe_open.remove(workspace.checkpoints)
    _delete_unneeded(workspace, ())


def _delete_unneeded(
    workspace: workspaces.Workspace, needed_snapshots: Collection[Snapshot]
) -> int:
    """Delete all files that no needed snapshot uses, and return the remaining bytes."""
    numbers = {f"{snapshot.number}" for snapshot in needed_snapshots}
    blobs = {blob for snapshot in needed_snapshots for blob in snapshot.blobs}
    with (
        contextlib.suppress(FileNotFoundError),
        workspace_io.root_descriptor(workspace.variables) as root,
    ):
        names = os.listdir(root)
        if not names:
            return 0
        for name in names:
            if name not in numbers and (name != "blobs" or not needed_snapshots):
                safe_open.remove_tree(root, name)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            directory = safe_open.open_directory(root, b"blobs", is_forced=True)
            try:
                for name in set(os.listdir(directory)).difference(blobs):
                    safe_open.remove_tree(directory, name)
            finally:
                os.close(directory)
        return directory_contents.measure(root, max_bytes=_UNLIMITED, max_files=_UNLIMITED).bytes
    return 0
