"""Locks on sessions, which are the system's."""

import asyncio
import threading

import pytest

from interpreter_bot import settings
from interpreter_bot.kernels.files import session_locks, workspaces


@pytest.fixture
async def workspace(tmp_path):
    return await workspaces.Workspaces(tmp_path, settings.Limits()).ensure("a")


async def test_an_unused_session_is_kept_from_others_for_a_while(workspace):
    locks, others = session_locks.SessionLocks(), session_locks.SessionLocks()
    async with (
        locks.lock_if_unused(workspace) as is_unused,
        others.lock_if_unused(workspace) as is_unused_there,
    ):
        assert (is_unused, is_unused_there) == (True, False)
    await locks.acquire(workspace)
    for asked in (locks, others):
        async with asked.lock_if_unused(workspace) as is_unused:
            assert not is_unused
    locks.close()
    async with others.lock_if_unused(workspace) as is_unused:
        assert is_unused


async def test_who_no_longer_wants_a_session_does_not_keep_it(workspace, monkeypatch):
    begun, goes_on = threading.Event(), threading.Event()
    lock = session_locks._lock

    def slow(*given, **how):
        begun.set()
        goes_on.wait(60)
        lock(*given, **how)

    monkeypatch.setattr(session_locks, "_lock", slow)
    taking = asyncio.create_task(session_locks.SessionLocks().acquire(workspace))
    await asyncio.to_thread(begun.wait, 60)
    taking.cancel()
    await asyncio.sleep(0)
    goes_on.set()
    await asyncio.wait({taking})
    assert taking.cancelled()
    async with session_locks.SessionLocks().lock_if_unused(workspace) as is_unused:
        assert is_unused
