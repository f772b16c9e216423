"""Journals of hosts that are gone."""

import asyncio
import time
import types

import pytest

from interpreter_bot import errors, values
from interpreter_bot.hosts import host_messages, ports
from interpreter_bot.kernel_host import journal_directories, journaled_executions
from interpreter_bot.kernels import execution_journals


async def test_journals_of_dead_hosts_are_taken_over_and_other_things_are_left(tmp_path):
    (tmp_path / "a file").write_text("kept")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a link").symlink_to(tmp_path / "elsewhere")
    async with execution_journals.Journals.open(tmp_path / "dead") as journals:
        journals.begin("one", b"{}").append(b"first")
    async with journaled_executions.JournaledExecutions.open(None, tmp_path) as begun:
        assert begun.is_known("one")
        assert (await begun.find("one")).last == 2
    assert (tmp_path / "a file").read_text() == "kept"
    assert (tmp_path / "a link").is_symlink()
    assert not (tmp_path / "dead").exists()


async def test_what_a_host_leaves_that_ends_later_is_found_when_it_is_asked_for(tmp_path):
    async with journaled_executions.JournaledExecutions.open(None, tmp_path) as begun:
        with pytest.raises(errors.ExecutionMissingError):
            await begun.find("one")
        with journal_directories.OwnDirectory(tmp_path) as other:
            async with execution_journals.Journals.open(other.path) as journals:
                journals.begin("one", b"{}").append(b"first")
                finding = asyncio.create_task(begun.find("one"))
                await asyncio.wait({finding}, timeout=0.2)
                assert not finding.done()
        assert (await finding).last == 2
        assert (await begun.find("one")).ended_at is not None


class WaitingKernel:
    """Runs code until it is told to end it."""

    id = "kernel"

    def __init__(self):
        self.ends = asyncio.Event()

    async def execute(self, code, **how):
        await self.ends.wait()
        return ports.ExecutionEnd(values.Finished(values.Ending.OK, 0.0, ""))


@pytest.fixture
def host():
    return types.SimpleNamespace(acknowledge=lambda _: None)


async def test_what_a_host_cuts_short_ends_as_lost_and_says_how_long_it_ran(
    host, tmp_path, monkeypatch
):
    async with journaled_executions.JournaledExecutions.open(host, tmp_path) as begun:
        begun.begin("one", WaitingKernel(), "code", can_ask=False, seconds=None)
        await asyncio.sleep(0.2)
        now = time.time
        # A clock that is set meanwhile changes nothing.
        monkeypatch.setattr(time, "time", lambda: now() - 3600)
    async with journaled_executions.JournaledExecutions.open(host, tmp_path) as later:
        [entry] = [entry async for entry in (await later.find("one")).follow()]
    end = host_messages.unpack(entry.record)
    assert (end.finished.ending, end.finished.kernel_lost) == (values.Ending.CRASHED, True)
    assert 0.1 <= end.finished.seconds < 60


async def test_what_is_acknowledged_while_it_runs_is_kept(host, tmp_path):
    kernel = WaitingKernel()
    async with journaled_executions.JournaledExecutions.open(host, tmp_path) as begun:
        begun.begin("one", kernel, "code", can_ask=False, seconds=None)
        await asyncio.sleep(0)
        begun.acknowledge("one")
        await asyncio.sleep(0)
        kernel.ends.set()
        async with asyncio.timeout(20):
            [entry] = [entry async for entry in (await begun.find("one")).follow()]
        assert host_messages.unpack(entry.record).finished.ending is values.Ending.OK


@pytest.mark.parametrize("is_written", [False, True])
async def test_what_is_acknowledged_as_a_host_ends_is_not_left_to_the_next(
    host, tmp_path, is_written
):
    kernel = WaitingKernel()
    async with journaled_executions.JournaledExecutions.open(host, tmp_path) as begun:
        begun.begin("one", kernel, "code", can_ask=False, seconds=None)
        kernel.ends.set()
        journal = await begun.find("one")
        async with asyncio.timeout(20):
            async for _ in journal.follow():
                pass
            while is_written and not journal.is_written:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
        begun.acknowledge("one")
    async with journaled_executions.JournaledExecutions.open(host, tmp_path) as later:
        assert not later.is_known("one")
