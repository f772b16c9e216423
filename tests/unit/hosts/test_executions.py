"""Executions of a host: how they end, and what the next host takes over."""

import asyncio
import time

import pytest

from interpreter_bot import errors, values
from interpreter_bot.hosts import executions, messages
from interpreter_bot.kernels import execution_journals, outputs


class WaitingKernel:
    """A kernel whose code runs until `ends` is set."""

    id = "kernel"
    is_alive = True
    loss_reason = ""
    run_count = 1
    namespace = outputs.VariableNames()
    is_counted = True

    def __init__(self):
        self.started, self.ends = asyncio.Semaphore(0), asyncio.Event()
        self.provisioner = self

    def meter(self):
        return self

    def cpu_seconds(self):
        return 0.0

    async def execute(self, code, *, show, **options):
        self.started.release()
        show(values.Text("stdout", code))
        await self.ends.wait()
        return values.Finished(values.Ending.OK, 0.0)


class UnwillingKernel(WaitingKernel):
    """A kernel whose code ends only after that of all others was told to."""

    def __init__(self, barrier):
        super().__init__()
        self.barrier = barrier

    async def execute(self, code, **options):
        try:
            return await super().execute(code, **options)
        finally:
            await self.barrier.wait()


def begin(begun, execution_id, kernel):
    begun.begin(execution_id, kernel, "code", can_ask=False, seconds=None)


async def events(begun, execution_id):
    sent = []

    async def send(number, record):
        sent.append(messages.unpack(record))

    async with asyncio.timeout(20):
        await begun.follow(execution_id, after=0, send=send, questioner=None)
    return sent


async def test_executions_of_dead_hosts_end_as_lost(tmp_path):
    async with execution_journals.Journals.open(tmp_path) as journals:
        journals.begin("one").append(messages.pack(values.Notice("first")))
    async with executions.Executions.open(tmp_path) as begun:
        assert begun.is_known("one")
        first, end = await events(begun, "one")
    assert first == values.Notice("first")
    assert (end.finished.ending, end.finished.kernel_lost) == (values.Ending.CRASHED, True)


async def test_executions_of_a_host_that_has_just_ended_are_found(tmp_path):
    async with executions.Executions.open(tmp_path) as begun:
        with pytest.raises(errors.ExecutionMissingError):
            await begun.find("one")
        async with execution_journals.Journals.open(tmp_path) as other:
            other.begin("one").append(b"first")
            finding = asyncio.create_task(begun.find("one"))
            await asyncio.wait({finding}, timeout=0.2)
            assert not finding.done()
        assert (await finding).last_number == 2
        assert (await begun.find("one")).ended_at is not None


async def test_a_host_that_ends_early_records_how_long_its_executions_ran(tmp_path, monkeypatch):
    async with executions.Executions.open(tmp_path) as begun:
        begin(begun, "one", WaitingKernel())
        await asyncio.sleep(0.2)
        now = time.time
        # A clock that is set meanwhile changes nothing.
        monkeypatch.setattr(time, "time", lambda: now() - 3600)
    async with executions.Executions.open(tmp_path) as later:
        *_, end = await events(later, "one")
    assert (end.finished.ending, end.finished.kernel_lost) == (values.Ending.CRASHED, True)
    assert 0.1 <= end.finished.seconds < 60


async def test_running_execution_cannot_be_acknowledged(tmp_path):
    kernel = WaitingKernel()
    async with executions.Executions.open(tmp_path) as begun:
        begin(begun, "one", kernel)
        await kernel.started.acquire()
        begun.acknowledge("one")
        kernel.ends.set()
        output, end = await events(begun, "one")
    assert output.plain == "code"
    assert end.finished.ending is values.Ending.OK


@pytest.mark.parametrize("is_written", [False, True])
async def test_an_acknowledged_execution_does_not_reach_the_next_host(tmp_path, is_written):
    kernel = WaitingKernel()
    async with executions.Executions.open(tmp_path) as begun:
        begin(begun, "one", kernel)
        kernel.ends.set()
        await events(begun, "one")
        journal = await begun.find("one")
        while is_written and not journal.is_written:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        begun.acknowledge("one")
    async with executions.Executions.open(tmp_path) as later:
        assert not later.is_known("one")


async def test_executions_of_a_kernel_run_one_after_another_and_can_be_stopped_before():
    begun, kernel = executions.Executions(), WaitingKernel()
    for execution_id in ("first", "second", "third"):
        begin(begun, execution_id, kernel)
    await kernel.started.acquire()
    assert len(begun) == 3
    assert kernel.started.locked(), "only one runs"
    await begun.stop("second", "Not needed.")
    kernel.ends.set()
    ends = [(await events(begun, one))[-1].finished for one in ("first", "second", "third")]
    assert [end.ending.name for end in ends] == ["OK", "STOPPED", "OK"]
    assert ends[1].reason == "Not needed."


async def test_all_executions_are_ended_at_once():
    begun, barrier = executions.Executions(), asyncio.Barrier(3)
    kernels = [UnwillingKernel(barrier) for _ in range(3)]
    for number, kernel in enumerate(kernels):
        begin(begun, str(number), kernel)
    async with asyncio.timeout(30):
        for kernel in kernels:
            await kernel.started.acquire()
        await begun.close()
    assert len(begun) == 0
