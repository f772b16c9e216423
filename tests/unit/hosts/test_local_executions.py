"""Executions of a host that ends."""

import asyncio

from interpreter_bot import values
from interpreter_bot.hosts import local_executions


class SlowKernel:
    """A kernel whose code ends only after that of all others was told to."""

    def __init__(self, started, ending):
        self.provisioner = self
        self.started, self.ending = started, ending

    def usage(self):
        return self

    is_counted = True

    def cpu_seconds(self):
        return 0.0

    async def execute(self, code, **options):
        self.started.release()
        try:
            await asyncio.Event().wait()
        finally:
            await self.ending.wait()


async def test_all_executions_are_ended_at_once():
    executions = local_executions.Executions()
    started, ending = asyncio.Semaphore(0), asyncio.Barrier(3)
    for number in range(3):
        kernel = SlowKernel(started, ending)
        executions.begin(str(number), kernel, "", can_ask=False, seconds=None)
    async with asyncio.timeout(30):
        for _ in range(3):
            await started.acquire()
        await executions.close()


class QuickKernel(SlowKernel):
    """A kernel whose code ends at once."""

    async def execute(self, code, **options):
        return values.Finished(values.Ending.OK, 0.0)

    is_alive = True
    loss_reason = ""
    runs = 0


async def test_what_ended_is_kept_until_there_are_many(monkeypatch):
    executions = local_executions.Executions()
    kernel = QuickKernel(None, None)
    for number in range(60):
        executions.begin(str(number), kernel, "", can_ask=False, seconds=None)
        await asyncio.wait({executions.find(str(number)).running})
    assert all(executions.find(str(number)) for number in range(60))
    await executions.close()
