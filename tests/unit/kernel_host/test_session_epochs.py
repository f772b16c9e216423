"""Epochs of sessions: what is said in an older one is refused, also by the next process."""

import asyncio

import pytest

from interpreter_bot import errors
from interpreter_bot.kernel_host import session_epochs


@pytest.fixture
def ended():
    return []


@pytest.fixture
def opening(tmp_path, ended):
    async def end(key):
        ended.append(key)

    return lambda: session_epochs.SessionEpochs(tmp_path / "epochs", end)


async def test_an_older_epoch_is_refused_also_by_the_next_process(opening, ended):
    epochs = opening()
    await epochs.accept("s", 2)
    for again in (epochs, opening()):
        await again.accept("s", 2)
        with pytest.raises(errors.SessionMovedError):
            await again.accept("s", 1)
        await again.accept("another", 1)
    assert ended == []


async def test_a_later_epoch_ends_the_kernel_of_the_former(opening, ended):
    epochs = opening()
    await epochs.accept("s", 1)
    await epochs.accept("s", 3)
    assert ended == ["s"]
    with pytest.raises(errors.SessionMovedError):
        await epochs.accept("s", 1)


async def test_a_single_machine_has_no_epochs(opening, tmp_path):
    await opening().accept("s", 0)
    assert not (tmp_path / "epochs").exists()


async def test_requests_wait_while_the_former_kernel_ends(tmp_path):
    ending, may_end = asyncio.Event(), asyncio.Event()

    async def end(_):
        ending.set()
        await may_end.wait()

    epochs = session_epochs.SessionEpochs(tmp_path / "epochs", end)
    await epochs.accept("s", 1)
    later = asyncio.create_task(epochs.accept("s", 2))
    await ending.wait()
    former = asyncio.create_task(epochs.accept("s", 1))
    latest = asyncio.create_task(epochs.accept("s", 2))
    await asyncio.sleep(0)
    assert not former.done()
    assert not latest.done()
    may_end.set()
    await asyncio.gather(later, latest)
    with pytest.raises(errors.SessionMovedError):
        await former


async def test_a_kernel_that_cannot_be_ended_is_tried_again(tmp_path):
    tries = []

    async def end(key):
        tries.append(key)
        if len(tries) == 1:
            raise errors.KernelError

    epochs = session_epochs.SessionEpochs(tmp_path / "epochs", end)
    await epochs.accept("s", 1)
    with pytest.raises(errors.KernelError):
        await epochs.accept("s", 2)
    await epochs.accept("s", 2)
    assert tries == ["s", "s"]


async def test_the_kernel_of_a_moved_session_without_an_epoch_is_ended(opening, ended):
    epochs = opening()
    # It began when this machine was the only one.
    await epochs.accept("s", 0)
    await epochs.accept("s", 1)
    assert ended == []
    await epochs.end_moved_session("s", 1)
    assert ended == ["s"]
    await epochs.accept("s", 2)
    with pytest.raises(errors.SessionMovedError):
        await epochs.end_moved_session("s", 1)


async def test_a_kernel_that_ends_slowly_does_not_delay_other_sessions(tmp_path):
    ending, may_end = asyncio.Event(), asyncio.Event()

    async def end(_):
        ending.set()
        await may_end.wait()

    epochs = session_epochs.SessionEpochs(tmp_path / "epochs", end)
    await epochs.accept("s", 1)
    later = asyncio.create_task(epochs.accept("s", 2))
    await ending.wait()
    async with asyncio.timeout(5):
        await epochs.accept("another", 1)
    may_end.set()
    await later
