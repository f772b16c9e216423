"""A pool whose kernels do what a script says, on real workspaces.

It is as strict as the real pool: a lost kernel refuses code. A second execution at the same time
fails the test, and so does code that the script does not expect.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import time
import types
from collections.abc import Callable

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import outputs
from interpreter_bot.kernels.files import workspaces

OK = values.Finished(values.Ending.OK, 0.1)
LOST = "A new Python was started, without the variables of the earlier one. It crashed."


@dataclasses.dataclass
class Step:
    """One execution: the expected code, its effects, and its end.

    Attributes:
        code: the exact code that must be run.
        finished: the end; the kernel is lost after one with `kernel_lost`.
        outputs: outputs shown before the end.
        action: called with the workspace's directory.
        input_request: a question to the person; the answer is added to `answers` of the pool.
        hangs: the execution runs until it is stopped or cancelled.
    """

    code: str
    finished: values.Finished = OK
    outputs: tuple[values.Output, ...] = ()
    action: Callable[[object], object] | None = None
    input_request: values.InputRequested | None = None
    hangs: bool = False


_numbers = itertools.count(1)


class Meter:
    """Resources that a kernel uses."""

    def cpu_seconds(self):
        return 0.0

    is_counted = True

    def counted_bytes(self):
        return 30 * 1024 * 1024


class Kernel:
    """See the module."""

    provisioner = types.SimpleNamespace(meter=Meter)
    is_frozen = False
    namespace = outputs.VariableNames()
    loss_reason = "It crashed."
    restored_variables = None
    restore_notice = ""

    def __init__(self, pool, key, loss_notice):
        self._pool = pool
        self._key = key
        self._end = None
        self.id = str(next(_numbers))
        self.last_used = time.monotonic()
        self.is_alive = True
        self.loss_notice = loss_notice
        self.run_count = 0
        self.on_installation = None

    async def execute(self, code, *, show, ask=None, seconds=None, is_bot_code=False):
        assert self._end is None, "one execution at a time"
        if not self.is_alive:
            return values.Finished(values.Ending.REFUSED, 0.0, "Gone.", kernel_lost=True)
        self.run_count += not is_bot_code
        step = self._pool.next_step()
        assert code == step.code
        self._end = asyncio.get_running_loop().create_future()
        try:
            return await self._follow(step, show, ask)
        finally:
            self._end = None

    async def _follow(self, step, show, ask):
        workspace = await self._pool.workspace(self._key)
        if step.action is not None:
            step.action(workspace.directory)
        for output in step.outputs:
            show(output)
            await asyncio.sleep(0)
        if step.input_request is not None:
            try:
                self._pool.answers.append(await ask(step.input_request))
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
        self._pool.stopped.append(reason)
        if self._end.done():
            return
        self._end.set_result(values.Finished(values.Ending.STOPPED, 0.1, reason))

    @property
    def is_busy(self):
        return self._end is not None


class Lease:
    """See the module."""

    def __init__(self, pool, key):
        self._pool = pool
        self._key = key
        self.is_held = True

    async def kernel(self, *, on_wait=None):
        assert self.is_held, "a lease is of no use once it is over"
        return await self._pool.take(self._key, on_wait)


class Snapshots:
    """Snapshots that are turned off."""

    is_used = False

    async def save(self, kernel):
        pass

    def interrupt(self, kernel):
        return False

    def lock(self, workspace):
        return asyncio.Lock()


class Pool:
    """See the module. Every step must have been taken, and every lease be over, at its close."""

    snapshots = Snapshots()
    sessions = ()

    def __init__(self, directory, *steps, limits=None, sandbox_level="full"):
        self._workspaces = workspaces.Workspaces(directory, limits or settings.Limits())
        self.sandbox_level = values.SandboxLevel(sandbox_level)
        self.settings = settings.Settings()
        self.steps = list(steps)
        self._live = {}
        self.on_loss = None
        self.refusals = []
        """Errors that the next calls of `take` raise."""
        self.answers = []
        self.stopped = []
        """Reasons for which executions were stopped."""
        self.started = 0
        self.leases = []
        """Leases that are held."""
        self.hanging = asyncio.Event()
        """Set once a step hangs."""

    def next_step(self):
        assert self.steps, "the script ran out"
        return self.steps.pop(0)

    async def saved_variables(self, key):
        return None

    async def workspace(self, key):
        return await self._workspaces.ensure(key)

    @contextlib.asynccontextmanager
    async def lease(self, key, *, person=""):
        lease = Lease(self, key)
        self.leases.append(lease)
        try:
            if not self.refusals:
                self._start(key)
            yield lease
        finally:
            self.leases.remove(lease)
            lease.is_held = False

    async def take(self, key, on_wait=None):
        if self.refusals:
            raise self.refusals.pop(0)
        self._start(key)
        return self._live[key]

    async def release(self, key):
        self._live.pop(key, None)

    async def forget(self, key):
        await self.release(key)
        await (await self.workspace(key)).remove()

    def _start(self, key):
        former = self._live.get(key)
        if former is None or not former.is_alive:
            self.started += 1
            self._live[key] = Kernel(self, key, LOST if former else "")

    def close(self):
        assert not self.steps, "the script was not followed to its end"
        assert not self.refusals
        assert not self.leases
