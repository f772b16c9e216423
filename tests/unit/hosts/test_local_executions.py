"""Executions of a host that ends."""

import asyncio

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
