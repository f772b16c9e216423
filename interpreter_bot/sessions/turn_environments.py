"""The environment of one turn: its session's kernel and workspace, for the agent.

Pictures for the model are decoded and scaled down by that kernel: the bot reads no more than the
head of a file. A kernel that lies deceives its own model, and nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Final

from interpreter_bot import concurrency, errors, settings, values
from interpreter_bot.agent import chat_messages, picture_messages
from interpreter_bot.kernels import executions, leases
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.sessions import artifact_collection, requests, turn_events, variable_losses

_log = logging.getLogger(__name__)

_SECONDS: Final = 20.0
_CODE: Final = (
    "get_ipython().show_scaled({names!r}, {contents!r}, most_side={side}, most_bytes={most})"
)

UNSANDBOXED: Final = "UNSANDBOXED: this code runs with the bot's own rights on its machine."
_NO_PLAN: Final = (
    "A plan in plain words is wanted before the first code: what it does, to which files."
)
_WAITING: Final = "Many want a new Python right now: {ahead} are started before this one."
_NOT_APPROVED: Final = "The person did not let this code run. Ask them what they want instead."


async def find(infos: Sequence[values.FileInfo], workspace: workspaces.Workspace) -> list[str]:
    """Return the names of the files that are pictures, by their content."""
    found = []
    for info in infos:
        try:
            async with workspace.read(info.name) as content:
                async for chunk in content:
                    if picture_messages.is_picture(chunk[: picture_messages.HEAD_BYTES]):
                        found.append(info.name)
                    break
        except errors.WorkspaceError as error:
            _log.info("a file could not be looked into", exc_info=error)
    return found


async def scale(
    kernel: executions.Kernel, *, names: Sequence[str] = (), contents: Sequence[bytes] = ()
) -> list[chat_messages.Picture | None]:
    """Scale pictures down.

    Args:
        kernel: does it.
        names: of files in the workspace.
        contents: of others.

    Returns:
        One for each, those of files first; None if it could not be scaled.
    """
    found: dict[int, chat_messages.Picture] = {}
    count = len(names) + len(contents)

    def show(output: values.Output) -> None:
        if isinstance(output, values.Image) and output.plain in map(str, range(count)):
            picture = picture_messages.scaled(output.mime, output.data)
            if picture is not None:
                found[int(output.plain)] = picture

    code = _CODE.format(
        names=list(names),
        contents=[base64.b64encode(one).decode("ascii") for one in contents],
        side=picture_messages.MOST_SIDE,
        most=picture_messages.MOST_BYTES,
    )
    finished = await kernel.execute(code, show=show, seconds=_SECONDS)
    if finished.ending is not values.Ending.OK:
        _log.info("pictures could not be scaled: %s", finished)
    return [found.get(number) for number in range(count)]


class SessionEnvironment:
    """A session's kernel and files for one turn; implements `agent.ports.Environment`.

    Attributes:
        workspace: the files.
        approval: whether a person is asked before the model's code runs.
    """

    def __init__(
        self,
        lease: leases.Lease,
        workspace: workspaces.Workspace,
        events: turn_events.TurnEvents,
        *,
        held: variable_losses.Variables,
        approval: requests.Approval,
        is_sandboxed: bool,
    ) -> None:
        self.workspace = workspace
        self._lease = lease
        self._events = events
        self._held = held
        self.approval = approval
        self._was_asked_for_plan = False
        self._is_sandboxed = is_sandboxed
        self._mark: workspaces.Mark | None = None
        self._cpu_seconds = 0.0

    async def approved(self, code: str) -> str:
        """Ask a person whether the model's code may run, if the request demands it.

        Returns:
            The code that may run, perhaps edited.

        Raises:
            BotError: it may not.
        """
        if self.approval == "never" or (self.approval == "plan" and self._events.cell >= 0):
            return code
        if self.approval == "plan" and not (self._events.has_words or self._was_asked_for_plan):
            # Asked for once: code is a plan of its own if the model finds no words.
            self._was_asked_for_plan = True
            raise errors.BotError(_NO_PLAN)
        approved = await self._events.approve(code)
        if approved is None:
            raise errors.BotError(_NOT_APPROVED)
        return approved

    async def run(self, code: str, *, show: Callable[[values.Output], None]) -> values.Finished:
        """Run code in the session's kernel.

        Raises:
            BotError: it was not run; the sentence says why.
        """
        kernel = await self.kernel()
        loss = self._held.lost(kernel)
        if not self._is_sandboxed:
            self._events.notice(UNSANDBOXED)
        if self._mark is None:
            # Not earlier: taking a kernel changes the files' owner, which is no change by the code.
            self._mark = await self.workspace.mark()
        before = await asyncio.to_thread(kernel.provisioner.cpu_seconds)
        # No await from here until the code runs: an execution shown as begun must end.
        await self._events.begin(code)
        if loss is not None:
            show(values.Notice(loss.sentence))
        try:
            return await self._executed(kernel, code, show)
        finally:
            self._held.ran(kernel, is_lost=not kernel.is_alive)
            await concurrency.shielded(self._count(kernel, before))

    async def kernel(self) -> executions.Kernel:
        """Return the session's kernel, once it has started.

        Raises:
            KernelError: there is none.
        """
        return await self._lease.kernel(waiting=self._say_waiting)

    def _say_waiting(self, ahead: int) -> None:
        self._events.progress(_WAITING.format(ahead=ahead) if ahead else "", None)

    async def list_files(self) -> Sequence[values.FileInfo]:
        """List the files of the workspace."""
        return await self.workspace.list()

    async def read_file(self, name: str, *, start: int, most_bytes: int) -> bytes:
        """Return part of a file."""
        part = b""
        async with self.workspace.read(name) as content:
            await content.skip(start)
            async for chunk in content:
                part += chunk
                if len(part) >= most_bytes:
                    break
        return part[:most_bytes]

    async def scaled(self, contents: Sequence[bytes]) -> Sequence[chat_messages.Picture | None]:
        """Scale pictures down for the model."""
        return await scale(await self.kernel(), contents=contents)

    async def look(
        self, infos: Sequence[values.FileInfo], most: int
    ) -> list[chat_messages.Picture]:
        """Return the pictures among files, as a model may see them.

        Args:
            infos: the files.
            most: the most pictures; the first ones are taken.
        """
        names = (await find(infos, self.workspace))[:most]
        if not names:
            return []
        found = await scale(await self.kernel(), names=names)
        named = zip(names, found, strict=True)
        return [dataclasses.replace(one, name=name) for name, one in named if one is not None]

    async def collect(self, limits: settings.Limits) -> list[values.Artifact]:
        """Collect the files that code changed since it first ran in this turn."""
        if self._mark is None:
            return []
        collector = artifact_collection.ArtifactCollector(
            self.workspace, self._events, limits=limits
        )
        return await collector.collect(self._events.cell, self._mark)

    async def _count(self, kernel: executions.Kernel, before: float) -> None:
        """Record the processor time of the code, if its kernel still lives."""
        after = await asyncio.to_thread(kernel.provisioner.cpu_seconds)
        self._cpu_seconds += max(after - before, 0.0)
        self._events.worked(self._cpu_seconds)

    async def _executed(
        self, kernel: executions.Kernel, code: str, show: Callable[[values.Output], None]
    ) -> values.Finished:
        """Execute code; when cancelled, wait for its end first, and show and record that too."""
        executing_it = kernel.execute(code, show=show, ask=self._events.ask)
        running = asyncio.create_task(executing_it, name="execution of a turn")
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            try:
                # The end of the turn says why it was cancelled.
                await kernel.stop("")
                await asyncio.wait({running})
            except asyncio.CancelledError:
                running.cancel()
                await asyncio.wait({running})
                raise
            finally:
                self._events.end(_ended(running))
            raise
        finished = running.result()
        self._events.end(finished)
        return finished


def _ended(running: asyncio.Task[values.Finished]) -> values.Finished:
    """Return how cancelled code ended."""
    if running.done() and not running.cancelled() and running.exception() is None:
        return running.result()
    return values.Finished(values.Ending.STOPPED, 0.0)
