"""Generations of a session's saved variables on disk, and which of them counts. Functions block.

Each has a directory of its own, in one that belongs to the session's kernels; large buffers lie
beside them and are shared. Which one counts stands in a file where no code reaches, signed with the
name of the session.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import json
import logging
import os
import pathlib
import shutil
import time
from collections.abc import Collection, Container, Iterable
from typing import Any, Final

from interpreter_bot import private_files, session_variables, settings
from interpreter_bot.kernels import checkpoints, snapshot_keys, snapshot_manifests
from interpreter_bot.kernels.files import (
    directory_contents,
    file_copies,
    safe_open,
    workspace_io,
    workspaces,
)

_log = logging.getLogger(__name__)

_POINTER: Final = "snapshot"
# Python may have died of something else the first time.
_MOST_DEATHS: Final = 2
_DAY_SECONDS: Final = 86_400.0
_MOST_FILES: Final = 10_000
_NO_LIMIT: Final = 1 << 60


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The snapshot of a session that counts.

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


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """What is saved of a session, as `Generations.to_expire` judges it.

    Attributes:
        workspace: of the session.
        has_kernel: whether the session is in use.
        used: when that was saved or brought back last.
        bytes: on disk.
    """

    workspace: workspaces.Workspace
    has_kernel: bool
    used: float
    bytes: int


class Generations:
    """All generations of all sessions.

    Args:
        config: their limits.
        key: signs which of them count.
    """

    def __init__(self, config: settings.Snapshots, key: snapshot_keys.SnapshotKey) -> None:
        self._config = config
        self._key = key

    def find(self, workspace: workspaces.Workspace, pointer: str | None = None) -> Snapshot | None:
        """Return the generation that counts, if there is a valid one.

        Args:
            workspace: of the session.
            pointer: of the one that counted at a checkpoint, as it was signed.

        Raises:
            BotError, OSError: nobody knows, as it cannot be read now.
        """
        told = self._told(workspace, pointer)
        if told is None:
            return None
        manifest = snapshot_manifests.read(workspace, told["number"])
        if manifest is None or _digest(manifest) != told["digest"]:
            return None
        at = told["number"] / 1e9
        summary = snapshot_manifests.summary(
            manifest, kernel=told["kernel"], runs=told["runs"], at=at
        )
        return Snapshot(workspace, told["number"], summary, told["deaths"], manifest.blobs.keys())

    def _told(
        self, workspace: workspaces.Workspace, pointer: str | None = None
    ) -> dict[str, Any] | None:
        """Return what is noted of the generation that counts, or did; None if there is none."""
        text = read_pointer(workspace) if pointer is None else pointer
        content, _, signature = text.rpartition("\n")
        if not content:
            return None
        signed = self._key.sign(workspace.name, content)
        if not hmac.compare_digest(signed.encode(), signature.encode()):
            _log.error("the snapshot of session %s is not its own", workspace.name)
            return None
        told: dict[str, Any] = json.loads(content)
        return told

    def adopt(
        self, workspace: workspaces.Workspace, told: dict[str, Any], counted: set[int]
    ) -> bool:
        """Let a generation count from now on, if it is complete; says whether it does.

        Args:
            workspace: of the session.
            told: what to note of it.
            counted: the generations that its kernel began with or wrote, 0 for none. Another one
                is of another kernel, and stays. What counts now is added.
        """
        manifest = snapshot_manifests.read(workspace, told["number"])
        problem = "no valid manifest" if manifest is None else manifest.problem
        if manifest is None or problem:
            _log.warning("nothing was saved of session %s: %s", workspace.name, problem)
            return False
        if not self._is_counted(workspace, counted):
            _log.warning("another Python has saved session %s meanwhile", workspace.name)
            return False
        if not (manifest.kept_count or manifest.lost_count):
            # A session that deleted all it had is not to get it back.
            _pointer(workspace).unlink(missing_ok=True)
            counted.add(0)
            return True
        self._point(workspace, told | {"digest": _digest(manifest)})
        counted.add(told["number"])
        return True

    def _is_counted(self, workspace: workspaces.Workspace, counted: Container[int]) -> bool:
        told = self._told(workspace)
        return (told["number"] if told is not None else 0) in counted

    def _point(self, workspace: workspaces.Workspace, told: dict[str, Any]) -> None:
        content = json.dumps(told)
        signature = self._key.sign(workspace.name, content)
        private_files.replace(_pointer(workspace), f"{content}\n{signature}")

    def note_death(self, snapshot: Snapshot) -> None:
        """Count that Python died of a snapshot, and give that up which it died of repeatedly."""
        if snapshot.deaths + 1 >= _MOST_DEATHS:
            _pointer(snapshot.workspace).unlink(missing_ok=True)
            self.prune(snapshot.workspace)
            return
        content = private_files.read(_pointer(snapshot.workspace)).rpartition("\n")[0]
        self._point(snapshot.workspace, json.loads(content) | {"deaths": snapshot.deaths + 1})

    def prune(
        self, workspace: workspaces.Workspace, counted: Container[int] | None = None
    ) -> Snapshot | None:
        """Delete what the generation that counts does not need; everything, if there is none.

        Args:
            workspace: of the session.
            counted: as above; where another one counts, nothing is deleted.

        Returns:
            The one that counts, unless that is another one.

        Raises:
            BotError, OSError: it cannot be done now. Nothing is deleted that may be needed.
        """
        if counted is not None and not self._is_counted(workspace, counted):
            return None
        snapshot = self.find(workspace)
        if snapshot is None:
            _pointer(workspace).unlink(missing_ok=True)
        needed = self._needed(workspace, snapshot)
        while _delete_others(workspace, needed) > self._most_bytes:
            if not checkpoints.remove_oldest(workspace):
                break
            needed = self._needed(workspace, snapshot)
        return snapshot

    @property
    def _most_bytes(self) -> int:
        return self._config.bytes + self._config.checkpoint_bytes

    def _needed(self, workspace: workspaces.Workspace, snapshot: Snapshot | None) -> list[Snapshot]:
        """Return what of a session's variables counts, or did at a checkpoint."""
        pointers = set(filter(None, checkpoints.pointers(workspace)))
        earlier = [self.find(workspace, pointer) for pointer in pointers]
        return [one for one in (snapshot, *earlier) if one is not None]

    def go_back(self, workspace: workspaces.Workspace, pointer: str) -> None:
        """Let the generation count again that did at a checkpoint; none if that is empty."""
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
        """Let a session that has nothing saved begin with what counts of another one.

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
        told, snapshot = self._told(source, pointer), self.find(source, pointer)
        if told is None or snapshot is None:
            return False
        with (
            workspace_io.opened(source.variables) as root,
            workspace_io.opened(target.variables) as copies,
        ):
            file_copies.copy_files(
                *(root, copies, entries(root, snapshot)),
                most_bytes=self._most_bytes,
                reserve_bytes=reserve_bytes,
            )
        manifest = snapshot_manifests.read(target, snapshot.number)
        if manifest is None or _digest(manifest) != told["digest"]:
            return False
        self._point(target, told | {"deaths": 0})
        return True

    def held(self, workspace: workspaces.Workspace, *, has_kernel: bool) -> Held | None:
        """Measure what is saved of a session; None if nothing counts."""
        if (used := used_at(workspace)) is None:
            return None
        with workspace_io.opened(workspace.variables) as root:
            usage = directory_contents.measure(
                root, most_bytes=self._config.bytes, most_files=_MOST_FILES
            )
        return Held(workspace, has_kernel, used, usage.bytes)

    def to_expire(self, everyone: Iterable[Held]) -> list[workspaces.Workspace]:
        """Return of which sessions without a kernel too much is saved, or what is old."""
        ordered = sorted(everyone, key=lambda one: (one.has_kernel, one.used), reverse=True)
        if not ordered:
            return []
        oldest = time.time() - self._config.days * _DAY_SECONDS
        disk = shutil.disk_usage(ordered[0].workspace.variables.parent.parent)
        room = self._config.disk_share * disk.total
        found = []
        for one in ordered:
            room -= one.bytes
            if (one.used < oldest or room < 0) and not one.has_kernel:
                found.append(one.workspace)
        return found


def entries(variables: int, snapshot: Snapshot) -> list[directory_contents.Entry]:
    """Return the files that a generation needs, in an open directory of saved variables."""
    wanted = {f"{snapshot.number}", "blobs"}
    return [
        one
        for one in directory_contents.scan(variables, _MOST_FILES).entries
        if not one.refusal
        and os.fsdecode(os.path.dirname(one.path)) in wanted
        and (not one.path.startswith(b"blobs/") or os.fsdecode(one.path[6:]) in snapshot.blobs)
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
    """Return what is noted of the generation that counts, as it was signed; empty for none."""
    return private_files.read(_pointer(workspace))


def point(workspace: workspaces.Workspace, pointer: str) -> None:
    """Let a generation count, as it was signed."""
    private_files.replace(_pointer(workspace), pointer)


def forget(workspace: workspaces.Workspace) -> None:
    """Delete all that is saved of a session, which has no kernel now."""
    _pointer(workspace).unlink(missing_ok=True)
    checkpoints.forget(workspace)
    _delete_others(workspace, ())


def _delete_others(workspace: workspaces.Workspace, needed: Collection[Snapshot]) -> int:
    """Delete all saved variables but some; returns how many bytes are left."""
    numbers = {f"{one.number}" for one in needed}
    blobs = {blob for one in needed for blob in one.blobs}
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
