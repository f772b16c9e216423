"""Collect the files that a cell made or changed, within the limits for artifacts."""

from __future__ import annotations

import hashlib
import logging
import pathlib
import secrets
import shutil
from collections.abc import Collection
from typing import IO, Final

from interpreter_bot import cancellation, errors, events, settings, values
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.wording import file_words

_log = logging.getLogger(__name__)

_MAX_ARTIFACTS: Final = 100


class ArtifactCollector:
    """Collects artifacts of one workspace, and copies them to a spool directory if there is one."""

    def __init__(
        self,
        workspace: host_ports.Workspace,
        *,
        emit: events.Emit,
        spool: pathlib.Path | None,
        limits: settings.Limits,
    ) -> None:
        self._workspace = workspace
        self._emit = emit
        self._spool = spool
        self._max_bytes = max(limits.file_bytes, limits.upload_bytes)
        # Sparse files occupy no disk but are copied in full, so copies have a budget, too.
        self._bytes_left = limits.workspace_bytes
        self._reserve_bytes = limits.disk_reserve_bytes

    async def collect(
        self, cell: int, mark: str, uploads: Collection[values.FileInfo] = ()
    ) -> list[values.Artifact]:
        """Emit the files that a cell changed since a mark, and a notice for each that is left out.

        Args:
            mark: see `Workspace.mark_files`.
            uploads: files that people sent since; they are left out unless code changed them.

        Returns:
            The emitted artifacts.
        """
        try:
            changes = await self._workspace.changes_since(mark)
        except errors.BotError as error:
            _log.warning("the workspace could not be looked through", exc_info=error)
            self._emit(events.NoticeShown(file_words.none_returned(error), cell))
            return []
        for name, reason in changes.skipped:
            self._emit(events.NoticeShown(file_words.left_out(name, reason), cell))
        files = [
            info for info in changes.files if info not in uploads and not _is_by_product(info.name)
        ]
        artifacts = [await self._emit_artifact(cell, info) for info in files[:_MAX_ARTIFACTS]]
        if len(files) > _MAX_ARTIFACTS:
            too_many = file_words.too_many(len(files), _MAX_ARTIFACTS)
            self._emit(events.NoticeShown(too_many, cell))
        if changes.is_truncated:
            self._emit(events.NoticeShown(file_words.UNSEEN_FILES, cell))
        return [artifact for artifact in artifacts if artifact is not None]

    async def _emit_artifact(self, cell: int, info: values.FileInfo) -> values.Artifact | None:
        try:
            event = await self._copy(cell, info)
        except errors.BotError as error:
            self._emit(events.NoticeShown(file_words.left_out(info.name, error), cell))
            return None
        except OSError as error:
            _log.warning("an artifact could not be saved", exc_info=error)
            sentence = file_words.left_out(info.name, file_words.not_saved(error.strerror))
            self._emit(events.NoticeShown(sentence, cell, is_copy_missing=True))
            return None
        self._emit(event)
        return event.artifact

    async def copy_again(self, recorded: events.FileMade) -> events.FileMade:
        """Return a recorded file with a new copy, or without one if its content has changed.

        Raises:
            BotError: the file cannot be read, or not be copied.
            OSError: the copy cannot be written.
        """
        event = await self._copy(recorded.cell, recorded.artifact)
        return event if event.artifact.sha256 == recorded.artifact.sha256 else recorded

    async def _copy(self, cell: int, info: values.FileInfo | values.Artifact) -> events.FileMade:
        if info.size_bytes > self._bytes_left:
            raise errors.FileTooLargeError(file_words.TOO_LARGE_TOGETHER)
        if self._spool is None:
            return events.FileMade(cell, await self._read(info.name))
        # Many turns may copy at once, and together they must leave the reserve.
        if shutil.disk_usage(self._spool).free < self._reserve_bytes + info.size_bytes:
            raise errors.WorkspaceFullError(file_words.MACHINE_DISK_FULL)
        copy_path = self._spool / f".{secrets.token_hex(8)}.part"
        try:
            with copy_path.open("xb") as file:
                artifact = await self._read(info.name, file)
        except BaseException:
            copy_path.unlink(missing_ok=True)
            raise
        return events.FileMade(cell, artifact, copy_path)

    async def _read(self, name: str, copy_file: IO[bytes] | None = None) -> values.Artifact:
        """Read the present content of a file, which may have been deleted or have grown."""
        digest, size_bytes = hashlib.sha256(), 0
        max_bytes = min(self._max_bytes, self._bytes_left)
        reading = self._workspace.read(name, max_bytes=max_bytes, may_be_sparse=False)
        async with reading as content:
            async for chunk in content:
                if copy_file is not None:
                    await cancellation.in_thread(copy_file.write, chunk)
                await cancellation.in_thread(digest.update, chunk)
                size_bytes += len(chunk)
        self._bytes_left -= size_bytes
        return values.Artifact(name, size_bytes, digest.hexdigest())


_BY_PRODUCTS = frozenset(
    {"__pycache__", ".cache", ".config", ".ipynb_checkpoints", ".ipython", ".local", ".matplotlib"}
)


def _is_by_product(name: str) -> bool:
    """Return whether a file is a by-product of programs rather than a result for people."""
    return any(part in _BY_PRODUCTS for part in name.split("/"))
