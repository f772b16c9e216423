"""Journals of hosts that are gone."""

import asyncio
import types

import pytest

from interpreter_bot import errors, values
from interpreter_bot.hosts import host_messages
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


class EndlessKernel:
    id = "kernel"

    async def execute(self, code, **how):
        await asyncio.sleep(3600)


async def test_what_a_host_cuts_short_ends_as_lost_and_says_how_long_it_ran(tmp_path):
    host = types.SimpleNamespace(acknowledge=lambda _: None)
    async with journaled_executions.JournaledExecutions.open(host, tmp_path) as begun:
        begun.begin("one", EndlessKernel(), "code", can_ask=False, seconds=None)
        await asyncio.sleep(0.2)
    async with journaled_executions.JournaledExecutions.open(host, tmp_path) as later:
        [entry] = [entry async for entry in (await later.find("one")).follow()]
    end = host_messages.unpack(entry.record)
    assert (end.finished.ending, end.finished.kernel_lost) == (values.Ending.CRASHED, True)
    assert 0.1 <= end.finished.seconds < 60
