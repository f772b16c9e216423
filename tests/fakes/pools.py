"""A pool whose kernels do what a script says, on real workspaces.

As strict as the real one: a kernel that is gone refuses, a second execution at once is an error
of the test, and so is whatever the script does not foresee.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels.files import workspaces

OK = values.Finished(values.Ending.OK, 0.1)
LOST = "A new Python was started, without the variables of the earlier one. It crashed."


@dataclasses.dataclass
class Step:
    """One execution: what code is expected, what it does, how it ends.

    Attributes:
        code: exactly what must be sent.
        finished: the end; the kernel is gone after one with `kernel_lost`.
        outputs: shown before the end.
        does: called with the workspace's directory.
        asks: an input request; the answer is kept in `answers` of the pool.
        hangs: runs until it is stopped, condemned or cancelled.
    """

    code: str
    finished: values.Finished = OK
    outputs: tuple[values.Output, ...] = ()
    does: Callable[[object], object] | None = None
    asks: values.InputRequested | None = None
    hangs: bool = False


class Kernel:
    """See the module."""

    def __init__(self, pool, key, announcement):
        self._pool = pool
        self._key = key
        self._end = None
        self.is_alive = True
        self.announcement = announcement

    async def execute(self, code, *, show, ask=None, seconds=None):
        assert self._end is None, "one execution at a time"
        if not self.is_alive:
            return values.Finished(values.Ending.REFUSED, 0.0, "Gone.", kernel_lost=True)
        step = self._pool.next_step()
        assert code == step.code
        self._end = asyncio.get_running_loop().create_future()
        try:
            return await self._follow(step, show, ask)
        finally:
            self._end = None

    async def _follow(self, step, show, ask):
        workspace = await self._pool.workspace(self._key)
        if step.does is not None:
            step.does(workspace.directory)
        for output in step.outputs:
            show(output)
            await asyncio.sleep(0)
        if step.asks is not None:
            try:
                self._pool.answers.append(await ask(step.asks))
            except errors.BotError as error:
                self._end.done() or self._end.set_result(
                    values.Finished(values.Ending.STOPPED, 0.1, str(error))
                )
        if step.hangs:
            self._pool.hanging.set()
            await self._end
        finished = self._end.result() if self._end.done() else step.finished
        self.is_alive = not finished.kernel_lost
        return finished

    async def stop(self, reason="Stopped."):
        assert self._end is not None, "nothing runs"
        self._end.set_result(values.Finished(values.Ending.STOPPED, 0.1, reason))

    def kill_with_reason(self, ending, reason):
        self._pool.condemned.append(reason)
        if self._end is not None and not self._end.done():
            self._end.set_result(values.Finished(ending, 0.1, reason, kernel_lost=True))


class Lease:
    """See the module."""

    def __init__(self, pool, key):
        self._pool = pool
        self._key = key
        self.is_held = True

    async def kernel(self, *, waiting=None):
        assert self.is_held, "a lease is of no use once it is over"
        return await self._pool.take(self._key, waiting)


class Pool:
    """See the module. Every step must have been taken, and every lease be over, at its close."""

    def __init__(self, directory, *steps, limits=None, is_sandboxed=True):
        self._workspaces = workspaces.Workspaces(directory, limits or settings.Limits())
        self._steps = list(steps)
        self._live = {}
        self.is_sandboxed = is_sandboxed
        self.refusals = []
        """Errors that the next takings end in."""
        self.answers = []
        self.condemned = []
        self.started = 0
        self.leases = []
        """Those that are not over."""
        self.hanging = asyncio.Event()
        """Set once a step hangs."""

    def next_step(self):
        assert self._steps, "the script ran out"
        return self._steps.pop(0)

    async def workspace(self, key):
        return await self._workspaces.of(key)

    @contextlib.asynccontextmanager
    async def lease(self, key):
        lease = Lease(self, key)
        self.leases.append(lease)
        try:
            if not self.refusals:
                self._start(key)
            yield lease
        finally:
            self.leases.remove(lease)
            lease.is_held = False

    async def take(self, key, waiting=None):
        if self.refusals:
            raise self.refusals.pop(0)
        self._start(key)
        return self._live[key]

    def _start(self, key):
        former = self._live.get(key)
        if former is None or not former.is_alive:
            self.started += 1
            self._live[key] = Kernel(self, key, LOST if former else "")

    def close(self):
        assert not self._steps, "the script was not followed to its end"
        assert not self.refusals
        assert not self.leases
