"""Writing to readers who take their time, or go away."""

import asyncio
import io
import os

import pytest

from interpreter_bot.platforms.console import threaded_output

MUCH = 1_000_000
"""More than any pipe holds."""


@pytest.fixture
def pipe():
    """The descriptor to read from, and a text file of the other end."""
    read, write = os.pipe()
    with open(write, "w", encoding="utf-8") as file:
        yield read, file
    os.close(read)


@pytest.fixture
def second(pipe):
    """Another text file of the same end."""
    with open(os.dup(pipe[1].fileno()), "w") as file:
        yield file


@pytest.fixture
def unread():
    """A text file of a pipe that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as file:
        yield file


def read_all(descriptor: int, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += os.read(descriptor, count - len(found))
    return found


async def test_writing_does_not_wait_for_the_reader_and_nothing_is_lost(pipe):
    read, file = pipe
    writer = threaded_output.OutputWriter()
    out = writer.file(file)
    lines = [f"{number} é\n" for number in range(MUCH // 10)]
    # This would wait for ever.
    for line in lines:
        out.write(line)
        out.flush()
    expected = "".join(lines).encode()
    draining = asyncio.create_task(writer.drain())
    await asyncio.sleep(0.1)
    assert not draining.done()
    assert await asyncio.to_thread(read_all, read, len(expected)) == expected
    await asyncio.wait_for(draining, 30)


async def test_two_files_keep_the_order_between_them(pipe, second):
    read, file = pipe
    writer = threaded_output.OutputWriter()
    out, err = writer.file(file), writer.file(second)
    for number in range(1000):
        (err if number % 2 else out).write(f"{number}\n")
    await writer.drain()
    assert os.read(read, MUCH).split() == [b"%d" % number for number in range(1000)]


async def test_a_reader_that_is_gone_is_met_by_whoever_writes_next(unread):
    writer = threaded_output.OutputWriter()
    out = writer.file(unread)
    out.write("x")
    with pytest.raises(BrokenPipeError):
        await asyncio.wait_for(writer.drain(), 30)
    with pytest.raises(BrokenPipeError):
        out.write("x")


async def test_what_waits_is_bounded(pipe):
    writer = threaded_output.OutputWriter(max_queued_bytes=MUCH)
    out = writer.file(pipe[1])
    out.write("x" * MUCH)
    with pytest.raises(threaded_output.OutputQueueFullError, match="Nobody reads"):
        out.write("y")
    await asyncio.to_thread(read_all, pipe[0], MUCH)
    await asyncio.wait_for(writer.drain(), 30)
    out.write("y")
    await asyncio.wait_for(writer.drain(), 30)


async def test_a_wait_for_the_reader_can_be_given_up(pipe):
    writer = threaded_output.OutputWriter()
    writer.file(pipe[1]).write("x" * MUCH)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(writer.drain(), 0.05)
    await asyncio.to_thread(read_all, pipe[0], MUCH)
    await asyncio.wait_for(writer.drain(), 30)


async def test_a_descriptor_that_does_not_block_is_waited_for(pipe):
    os.set_blocking(pipe[1].fileno(), False)
    writer = threaded_output.OutputWriter()
    writer.file(pipe[1]).write("x" * MUCH)
    assert len(await asyncio.to_thread(read_all, pipe[0], MUCH)) == MUCH
    await asyncio.wait_for(writer.drain(), 30)


def test_terminals_are_told_from_pipes(pipe):
    ours, theirs = os.openpty()
    with open(theirs, "w") as terminal:
        assert threaded_output.OutputWriter().file(terminal).isatty()
    assert not threaded_output.OutputWriter().file(pipe[1]).isatty()
    os.close(ours)


def test_files_in_memory_stay_themselves():
    memory = io.StringIO()
    assert threaded_output.OutputWriter().file(memory) is memory
