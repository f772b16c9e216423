"""The workbench of one turn: its session's kernel and files, in the hands of an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import executing, leases, workspaces
from interpreter_bot.sessions import collecting, finishing, requests, stages

UNSANDBOXED: Final = "UNSANDBOXED: this code runs with the bot's own rights on its machine."
_NOT_APPROVED: Final = "The person did not let this code run. Ask them what they want instead."


class Workbench:
    """See `agent.ports.Workbench`, which it is."""

    def __init__(
        self,
        lease: leases.Lease,
        workspace: workspaces.Workspace,
        stage: stages.Stage,
        *,
        approval: requests.Approval,
        is_sandboxed: bool,
    ) -> None:
        self._lease = lease
        self._workspace = workspace
        self._stage = stage
        self._approval = approval
        self._is_sandboxed = is_sandboxed
        self._mark: workspaces.Mark | None = None
        self.cpu_seconds = 0.0
        """Processor time of the code that ran, as far as its kernel lived to tell."""

    async def run(self, code: str, *, show: Callable[[values.Output], None]) -> values.Finished:
        """Run code.

        Raises:
            BotError: it was not run; the sentence says why.
        """
        code = await self._approved(code)
        kernel = await self.kernel()
        if not self._is_sandboxed:
            self._stage.notice(UNSANDBOXED)
        if self._mark is None:
            # Not earlier: files change hands when a kernel is taken, which is no change of theirs.
            self._mark = await self._workspace.mark()
        await self._stage.begin(code)
        before = await asyncio.to_thread(kernel.process.cpu_seconds)
        try:
            finished = await self._executed(kernel, code, show)
        finally:
            after = await finishing.to_the_end(asyncio.to_thread(kernel.process.cpu_seconds))
            self.cpu_seconds += max(after - before, 0.0)
        self._stage.end(finished)
        return finished

    async def kernel(self) -> executing.Kernel:
        """Return the session's kernel, once it is there; tells people where it is a new one.

        Raises:
            KernelError: there is none.
        """
        kernel = await self._lease.kernel()
        if kernel.announcement:
            sentence, kernel.announcement = kernel.announcement, ""
            self._stage.notice(sentence)
        return kernel

    async def list_files(self) -> Sequence[values.FileInfo]:
        """List the workspace."""
        return await self._workspace.list()

    async def read_file(self, name: str, *, start: int, most_bytes: int) -> bytes:
        """Return part of a file."""
        part = b""
        async with self._workspace.read(name) as content:
            await content.skip(start)
            async for chunk in content:
                part += chunk
                if len(part) >= most_bytes:
                    break
        return part[:most_bytes]

    async def collect(self, limits: settings.Limits) -> list[values.Artifact]:
        """Give back what code changed since it first ran in this turn."""
        if self._mark is None:
            return []
        collector = collecting.Collector(self._workspace, self._stage, limits=limits)
        return await collector.collect(self._stage.cell, self._mark)

    async def _approved(self, code: str) -> str:
        if self._approval == "never" or (self._approval == "plan" and self._stage.cell >= 0):
            return code
        approved = await self._stage.approve(code)
        if approved is None:
            raise errors.BotError(_NOT_APPROVED)
        return approved

    async def _executed(
        self, kernel: executing.Kernel, code: str, show: Callable[[values.Output], None]
    ) -> values.Finished:
        """Execute; when cancelled, see the code to its end first, and show and record that too."""
        executing_it = kernel.execute(code, show=show, ask=self._stage.ask)
        running = asyncio.create_task(executing_it, name="execution of a turn")
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            await kernel.stop()
            try:
                await asyncio.wait({running})
            except asyncio.CancelledError:
                running.cancel()
                await asyncio.wait({running})
                raise
            if not running.cancelled() and running.exception() is None:
                self._stage.end(running.result())
            raise
        return running.result()
