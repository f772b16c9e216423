"""The directory of a host's journals, among those of others."""

import asyncio
import fcntl
import os

from interpreter_bot.kernel_host import journal_directories


async def test_hosts_that_start_at_once_make_their_directories_one_after_the_other(tmp_path):
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    making = asyncio.create_task(asyncio.to_thread(journal_directories.OwnDirectory, tmp_path))
    await asyncio.wait({making}, timeout=0.1)
    assert (making.done(), list(tmp_path.iterdir())) == (False, [])
    os.close(other)
    with await making as made:
        assert made.path.is_dir()
        assert journal_directories._locked(made.path) is None
