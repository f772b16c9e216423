"""The directory of a host's journals, among those of others."""

import asyncio
import fcntl
import os

from interpreter_bot.hosting import journaled_executions
from interpreter_bot.kernels import execution_journals


async def test_journals_of_dead_hosts_are_taken_over_and_other_things_are_left(tmp_path):
    (tmp_path / "a file").write_text("kept")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a link").symlink_to(tmp_path / "elsewhere")
    async with execution_journals.Journals.open(tmp_path / "dead") as journals:
        journals.begin("one", b"{}").append(b"first")
    async with journaled_executions.JournaledExecutions.open(None, tmp_path) as begun:
        assert begun.is_known("one")
        assert begun.find("one").last == 2
    assert (tmp_path / "a file").read_text() == "kept"
    assert (tmp_path / "a link").is_symlink()
    assert not (tmp_path / "dead").exists()


async def test_hosts_that_start_at_once_make_their_directories_one_after_the_other(tmp_path):
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    making = asyncio.create_task(asyncio.to_thread(journaled_executions._OwnDirectory, tmp_path))
    await asyncio.wait({making}, timeout=0.1)
    assert (making.done(), list(tmp_path.iterdir())) == (False, [])
    os.close(other)
    with await making as made:
        assert made.is_dir()
        assert journaled_executions._locked(made) is None
