"""Collect the files that a cell made or changed, within the limits for artifacts."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import shutil
import tempfile
from collections.abc import Callable
from typing import Final, Protocol

from interpreter_bot import cancellation, errors, events, settings, values
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.sessions import ports
from interpreter_bot.wording import file_words

_log = logging.getLogger(__name__)

_MAX_ARTIFACTS: Final = 100


class _NullWriter:
    """A writer for an artifact that is only counted, not sent."""

    def write(self, data: bytes, /) -> object:
        """Ignore `data`."""

    def complete(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Writable(Protocol):
    """Target of a file's copy; called in a thread."""

    def write(self, data: bytes, /) -> object:
        """Write all of `data`."""


async def copy(
    workspace: host_ports.Workspace, name: str, into: Writable, *, max_bytes: int
) -> values.Artifact:
    """Copy a file that code made, with its present content.

    Args:
        workspace: where it lies.
        name: of the file.
        into: receives the bytes. What it raises is passed on.
        max_bytes: a larger file is refused before anything is copied.

    Raises:
        FileMissingError: there is no such regular file (any more).
        FileTooLargeError: it is larger than `max_bytes`, or sparse.
    """
    digest, size_bytes = hashlib.sha256(), 0
    async with workspace.read(name, max_bytes=max_bytes, may_be_sparse=False) as content:
        async for chunk in content:
            await cancellation.in_thread(into.write, chunk)
            await cancellation.in_thread(digest.update, chunk)
            size_bytes += len(chunk)
    return values.Artifact(name, size_bytes, digest.hexdigest())


class ArtifactCollector:
    """Collects artifacts from one workspace for one sink."""

    def __init__(
        self,
        workspace: host_ports.Workspace,
        *,
        emit: events.Emit,
        save: Callable[[str], ports.FileWriter | None],
        limits: settings.Limits,
    ) -> None:
        self._workspace = workspace
        self._emit = emit
        self._save = save
        self._max_bytes = max(limits.file_bytes, limits.upload_bytes)
        # A sparse file occupies no disk but is read in full: what is copied has a budget too.
        self._bytes_left = limits.workspace_bytes
        self._reserve_bytes = limits.disk_reserve_bytes

    async def collect(self, cell: int, mark: str) -> list[values.Artifact]:
        """Send what a cell changed since a mark; announce what cannot be sent.

        Returns:
            The artifacts sent.
        """
        try:
            changes = await self._workspace.changes_since(mark)
        except errors.BotError as error:
            _log.warning("the workspace could not be looked through", exc_info=error)
            self._emit(events.NoticeShown(file_words.none_returned(error), cell))
            return []
        for name, reason in changes.skipped:
            self._emit(events.NoticeShown(file_words.left_out(name, reason), cell))
        files = [info for info in changes.files if not _is_by_product(info.name)]
        tried = [await self._give(cell, info) for info in files[:_MAX_ARTIFACTS]]
        if len(files) > _MAX_ARTIFACTS:
            told = file_words.too_many(len(files), _MAX_ARTIFACTS)
            self._emit(events.NoticeShown(told, cell))
        if changes.is_truncated:
            told = file_words.UNSEEN_FILES
            self._emit(events.NoticeShown(told, cell))
        return [artifact for artifact in tried if artifact is not None]

    async def _give(self, cell: int, info: values.FileInfo) -> values.Artifact | None:
        try:
            artifact = await self._copy(cell, info)
        except errors.BotError as error:
            self._emit(events.NoticeShown(file_words.left_out(info.name, error), cell))
        except OSError as error:
            _log.warning("an artifact could not be saved", exc_info=error)
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = file_words.DISK_FULL if is_full else file_words.not_saved(error.strerror)
            self._emit(events.NoticeShown(file_words.left_out(info.name, reason), cell))
        else:
            self._emit(events.FileMade(cell, artifact))
            return artifact
        return None

    async def _copy(self, cell: int, info: values.FileInfo) -> values.Artifact:
        if info.size_bytes > self._bytes_left:
            raise errors.FileTooLargeError(file_words.TOO_LARGE_TOGETHER)
        max_bytes = min(self._max_bytes, self._bytes_left)
        saving = self._save(info.name) or _NullWriter()
        with contextlib.closing(saving):
            # Many turns may copy at once: together they must leave the reserve, too.
            is_copied = not isinstance(saving, _NullWriter)
            if is_copied and _free_bytes() < self._reserve_bytes + info.size_bytes:
                raise errors.WorkspaceFullError(file_words.MACHINE_DISK_FULL)
            artifact = await copy(self._workspace, info.name, saving, max_bytes=max_bytes)
            saving.complete()
        self._bytes_left -= artifact.size_bytes
        return artifact


def _free_bytes() -> int:
    """Return what is free where platforms copy files to before they send them."""
    return shutil.disk_usage(tempfile.gettempdir()).free


_BY_PRODUCTS = frozenset(
    {"__pycache__", ".cache", ".config", ".ipynb_checkpoints", ".ipython", ".local", ".matplotlib"}
)


def _is_by_product(name: str) -> bool:
    """Return whether a file is a by-product of programs rather than a result for people."""
    return any(part in _BY_PRODUCTS for part in name.split("/"))
