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
import secrets
import shutil
import time
from collections.abc import Collection, Container, Iterable, Iterator
from typing import Any, Final

from interpreter_bot import private_files, session_variables, settings
from interpreter_bot.kernels import snapshot_manifests
from interpreter_bot.kernels.files import (
    copies_in_and_out,
    directory_contents,
    safe_open,
    workspaces,
)

_log = logging.getLogger(__name__)

_POINTER: Final = "snapshot"
# Python may have died of something else the first time.
_MOST_DEATHS: Final = 2
_DAY_SECONDS: Final = 86_400.0
_MOST_FILES: Final = 10_000


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

    def __init__(self, config: settings.Snapshots, key: bytes) -> None:
        self._config = config
        self._key = key

    def find(self, workspace: workspaces.Workspace) -> Snapshot | None:
        """Return the generation that counts, if there is a valid one.

        Raises:
            BotError, OSError: nobody knows, as it cannot be read now.
        """
        told = self._told(workspace)
        if told is None:
            return None
        manifest = snapshot_manifests.manifest(workspace, told["number"])
        if manifest is None or _digest(manifest) != told["digest"]:
            return None
        at = told["number"] / 1e9
        summary = snapshot_manifests.summary(
            manifest, kernel=told["kernel"], runs=told["runs"], at=at
        )
        return Snapshot(workspace, told["number"], summary, told["deaths"], manifest.blobs.keys())

    def _told(self, workspace: workspaces.Workspace) -> dict[str, Any] | None:
        """Return what is noted of the generation that counts, if there is one."""
        content, _, signature = private_files.read(_pointer(workspace)).rpartition("\n")
        if not content:
            return None
        if not hmac.compare_digest(self._sign(workspace, content).encode(), signature.encode()):
            _log.error("the snapshot of session %s is not its own", workspace.name)
            return None
        told: dict[str, Any] = json.loads(content)
        return told

    def _sign(self, workspace: workspaces.Workspace, content: str) -> str:
        text = f"{workspace.name} {content}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def adopt(
        self, workspace: workspaces.Workspace, told: dict[str, Any], counted: set[int]
    ) -> None:
        """Let a generation count from now on, if it is complete.

        Args:
            workspace: of the session.
            told: what to note of it.
            counted: the generations that its kernel began with or wrote, 0 for none. Another one
                is of another kernel, and stays. What counts now is added.
        """
        manifest = snapshot_manifests.manifest(workspace, told["number"])
        if manifest is None:
            _log.warning("nothing was saved of session %s: no valid manifest", workspace.name)
            return
        if not self._is_counted(workspace, counted):
            _log.warning("another Python has saved session %s meanwhile", workspace.name)
            return
        if not (manifest.kept_count or manifest.lost_count):
            # A session that deleted all it had is not to get it back.
            _pointer(workspace).unlink(missing_ok=True)
            counted.add(0)
            return
        self._point(workspace, told | {"digest": _digest(manifest)})
        counted.add(told["number"])

    def _is_counted(self, workspace: workspaces.Workspace, counted: Container[int]) -> bool:
        told = self._told(workspace)
        return (told["number"] if told is not None else 0) in counted

    def _point(self, workspace: workspaces.Workspace, told: dict[str, Any]) -> None:
        content = json.dumps(told)
        private_files.replace(_pointer(workspace), f"{content}\n{self._sign(workspace, content)}")

    def note_death(self, snapshot: Snapshot) -> None:
        """Count that Python died of a snapshot, and give that up which it died of repeatedly."""
        if snapshot.deaths + 1 >= _MOST_DEATHS:
            forget(snapshot.workspace)
            return
        content = private_files.read(_pointer(snapshot.workspace)).rpartition("\n")[0]
        self._point(snapshot.workspace, json.loads(content) | {"deaths": snapshot.deaths + 1})

    def prune(self, workspace: workspaces.Workspace, counted: Container[int] | None = None) -> None:
        """Delete what the generation that counts does not need; everything, if there is none.

        Args:
            workspace: of the session.
            counted: as above; where another one counts, nothing is deleted.

        Raises:
            BotError, OSError: it cannot be done now. Nothing is deleted that may be needed.
        """
        if counted is not None and not self._is_counted(workspace, counted):
            return
        snapshot = self.find(workspace)
        if snapshot is None:
            forget(workspace)
            return
        with _opened(workspace.variables) as root:
            for name in os.listdir(root):
                if name not in (f"{snapshot.number}", "blobs"):
                    safe_open.remove_tree(root, name)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                directory = safe_open.open_directory(root, b"blobs", is_forced=True)
                try:
                    for name in set(os.listdir(directory)).difference(snapshot.blobs):
                        safe_open.remove_tree(directory, name)
                finally:
                    os.close(directory)

    def held(self, workspace: workspaces.Workspace, *, has_kernel: bool) -> Held | None:
        """Measure what is saved of a session; None if nothing counts."""
        try:
            used = _pointer(workspace).stat().st_mtime
        except FileNotFoundError:
            return None
        with _opened(workspace.variables) as root:
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


def new_key() -> str:
    """Make a key that signs."""
    return secrets.token_hex(32)


def touch(workspace: workspaces.Workspace) -> None:
    """Note that a session's snapshot was used."""
    os.utime(_pointer(workspace))


def _digest(manifest: snapshot_manifests.Manifest) -> str:
    return hashlib.sha256(manifest.model_dump_json().encode()).hexdigest()


def _pointer(workspace: workspaces.Workspace) -> pathlib.Path:
    return workspace.variables.parent / _POINTER


def forget(workspace: workspaces.Workspace) -> None:
    """Delete all that is saved of a session, which has no kernel now."""
    _pointer(workspace).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError), _opened(workspace.variables) as root:
        for name in os.listdir(root):
            safe_open.remove_tree(root, name)


@contextlib.contextmanager
def _opened(directory: pathlib.Path) -> Iterator[int]:
    descriptor = copies_in_and_out.open_root(directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
