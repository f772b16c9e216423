"""Running cells of raw code in one session: attachments in, outputs and artifacts out."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterable, Mapping, Sequence

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import executing, pools, workspaces
from interpreter_bot.sessions import ports

_log = logging.getLogger(__name__)

UNSANDBOXED = "UNSANDBOXED: this code runs with the bot's own rights on its machine."
_ARTIFACTS = 100


class _Nowhere:
    """Takes the bytes of an artifact that is only counted."""

    def write(self, data: bytes, /) -> object:
        """Forget `data`."""

    def close(self) -> None:
        """Do nothing."""


class Cells:
    """One session's cells, run one after the other."""

    def __init__(
        self, pool: pools.Pool, key: str, *, limits: settings.Limits, audience: ports.Audience
    ) -> None:
        self._pool = pool
        self._key = key
        self._limits = limits
        self._audience = audience
        self._running: executing.Kernel | None = None

    async def attach(self, attachments: Mapping[str, AsyncIterable[bytes]]) -> None:
        """Put files into the workspace.

        Args:
            attachments: contents by name, of any name.

        Raises:
            WorkspaceError: one is refused.
        """
        workspace = await self._pool.workspace(self._key)
        for name, chunks in attachments.items():
            await workspace.put(name, chunks)

    async def run(self, cells: Sequence[str]) -> bool:
        """Run all of them, whatever becomes of the earlier; True if every one ended ok."""
        is_all_ok = True
        for number, code in enumerate(cells):
            finished = await self._run(number, code)
            self._audience.finished(number, finished)
            is_all_ok = is_all_ok and finished.ending is values.Ending.OK
        return is_all_ok

    async def stop(self) -> None:
        """Stop the cell that runs now; further ones go on."""
        if self._running is not None:
            await self._running.stop()

    async def _run(self, number: int, code: str) -> values.Finished:
        if not self._pool.is_sandboxed:
            self._audience.announcement(number, UNSANDBOXED)
        workspace = await self._pool.workspace(self._key)
        try:
            self._running = await self._pool.take(self._key)
        except errors.KernelError as error:
            return values.Finished(values.Ending.REFUSED, 0.0, str(error))
        if self._running.announcement:
            self._audience.announcement(number, self._running.announcement)
            self._running.announcement = ""
        # After taking the kernel: files change hands then, which is no change of theirs.
        mark = await workspace.mark()
        try:
            finished = await self._running.execute(
                code,
                show=lambda output: self._audience.output(number, output),
                ask=lambda request: self._audience.ask(number, request),
            )
        finally:
            self._running = None
        await self._collect(number, workspace, mark)
        return finished

    async def _collect(
        self, number: int, workspace: workspaces.Workspace, mark: workspaces.Mark
    ) -> None:
        """Give back what the cell made or changed; what cannot be given is said."""
        changes = await workspace.changed(mark)
        for name, reason in changes.skipped:
            self._audience.announcement(number, f"{name} was left out: {reason}.")
        files = [info for info in changes.files if not _is_by_product(info.name)]
        if len(files) > _ARTIFACTS or changes.is_truncated:
            told = f"Of {len(files)} or more changed files, {_ARTIFACTS} are given back."
            self._audience.announcement(number, told)
        for info in files[:_ARTIFACTS]:
            saving = self._audience.save(number, info.name) or _Nowhere()
            try:
                with contextlib.closing(saving):
                    artifact = await workspace.collect(
                        info, saving, most_bytes=self._limits.file_bytes
                    )
            except (errors.WorkspaceError, OSError) as error:
                _log.info("an artifact could not be copied", exc_info=error)
                reason = str(error) if isinstance(error, errors.BotError) else "it is unwritable"
                self._audience.announcement(number, f"{info.name} was left out: {reason}")
            else:
                self._audience.artifact(number, artifact)


def _is_by_product(name: str) -> bool:
    """Say whether programs rather than people asked for a file: caches, hidden state."""
    return any(part.startswith(".") or part == "__pycache__" for part in name.split("/"))
