"""Kernels that speak ZMTP by hand: what has no end or measure costs the bot little."""

import asyncio
import contextlib
import gc
import os
import pathlib
import textwrap
import time
import tracemalloc

import pytest

from interpreter_bot import values
from interpreter_bot.kernels import execution_streams
from tests.attacks import boxes, speaking

pytestmark = [
    pytest.mark.attack,
    pytest.mark.any_user,
    pytest.mark.asyncio(loop_scope="session"),
]
Ending = values.Ending
# What is waited for that does not come.
WAIT_SECONDS = execution_streams._IDLE_SECONDS
LOST = "Some of the output was lost on the way."
CLOSE = "own({}).shutdown(socket.SHUT_RDWR)\n"


def resident():
    """Bytes of memory that the bot, which is this process, has."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.asynccontextmanager
async def growth():
    """Note by how many bytes the bot grew at most meanwhile."""
    gc.collect()
    before = resident()
    most = [0]

    async def look():
        while True:
            most[0] = max(most[0], resident() - before)
            await asyncio.sleep(0.01)

    looking = asyncio.create_task(look())
    try:
        yield most
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _answer(_):
    return "answer"


# On the two sockets that the bot reads in any execution.
WITHOUT_END = {
    "parts of a mebibyte": "part = frame(1 << 20) + MEBIBYTE",
    "parts of a byte": "part = (frame(1) + b'x') * 10_000",
    "parts of nothing": "part = bytes((1, 0)) * 100_000",
    "heartbeats": "part = b'\\x04\\x07\\x04PING\\0\\0' * 10_000",
    "unknown commands": "part = b'\\x04\\x00' * 100_000",
    "one part, slowly": "push(there, frame(15 << 20)); part = b'x' * 1000",
}


@pytest.mark.parametrize("channel", ["IOPUB", "SHELL"])
@pytest.mark.parametrize("what", WITHOUT_END)
async def test_message_without_end_costs_the_bot_little_and_others_nothing(run, what, channel):
    await run("kept = 5", key="neighbour")
    attack = f"""
there = own({channel})
{WITHOUT_END[what]}
while True:
    push(there, part)
"""

    async with growth() as most:
        attacked = asyncio.create_task(run(speaking.BY_HAND + attack, seconds=2))
        waits = []
        while not attacked.done():
            started = time.monotonic()
            assert (await run("kept", key="neighbour")).plain == "5"
            waits.append(time.monotonic() - started)
        ran = await attacked

    assert ran.ending is not Ending.OK
    assert ran.finished.reason or ran.errors or ran.notices
    assert most[0] < 40 * boxes.MIB
    assert sorted(waits)[len(waits) // 2] < 1
    assert (await run("1 + 1")).plain == "2"


async def test_commands_between_messages_keep_nobody_waiting(run):
    # Each message lets commands be counted anew.
    attack = """
there = own(IOPUB)
packed = session.serialize(session.msg("status", {}, parent))
packed = b"".join(
    bytes((3 if n + 1 < len(packed) else 2,)) + len(one).to_bytes(8, "big") + one
    for n, one in enumerate(packed)
)
while True: push(there, bytes((4, 0)) * 9_000 + packed)
"""
    attacked = asyncio.create_task(run(speaking.BY_HAND + attack, seconds=2))
    used = []
    while not attacked.done():
        started = time.thread_time()
        await asyncio.sleep(0.001)
        used.append(time.thread_time() - started)
    await attacked

    assert max(used) < 0.1


async def test_endless_messages_on_ever_new_connections_cost_the_bot_little(run):
    attack = """
while True:
    try:
        there = None
        there = own(IOPUB)
        while True: push(there, frame(1 << 20) + MEBIBYTE)
    except Exception:
        time.sleep(0.01)
"""
    async with growth() as most:
        ran = await run(speaking.BY_HAND + attack, seconds=3)

    assert ran.ending in {Ending.CRASHED, Ending.TIMED_OUT}
    assert most[0] < 40 * boxes.MIB


@pytest.mark.parametrize("size", [2**63 - 1, 2**40, 65 * boxes.MIB])
async def test_announced_size_is_not_believed_and_what_follows_is_heard(run, size):
    code = f"push(own(IOPUB), frame(({size})))\ntime.sleep(0.5)\nprint('after')"
    async with growth() as most:
        ran = await run(speaking.BY_HAND + code.replace("((1 << 63) - 1)", "(1 << 63) - 1"))

    assert ran.ending is Ending.OK
    assert ran.notices == [LOST]
    assert ran.word == "after"
    assert ran.finished.seconds < WAIT_SECONDS
    assert most[0] < 4 * boxes.MIB


async def test_closed_output_is_heard_anew(run):
    close = CLOSE.format("IOPUB")
    ran = await run(speaking.BY_HAND + close + "time.sleep(0.5)\nprint('after')")

    assert ran.ending is Ending.OK
    assert ran.notices == [LOST]
    assert ran.word == "after"
    assert ran.finished.seconds < WAIT_SECONDS


async def test_output_closed_again_and_again_ends_its_kernel(run):
    close = """
while True:
    try: own(IOPUB).shutdown(socket.SHUT_RDWR)
    except (AttributeError, OSError): pass
    time.sleep(0.05)
"""
    ran = await run(speaking.BY_HAND + close)

    assert ran.ending is Ending.CRASHED
    assert ran.finished.reason.startswith("The Python process broke its connections.")


@pytest.mark.parametrize("channel", ["SHELL", "STDIN"])
async def test_kernel_that_closes_what_it_answers_on_ends(run, channel):
    close = CLOSE.format(channel)
    ran = await run(speaking.BY_HAND + close + "time.sleep(9)", ask=_answer)

    assert ran.ending is Ending.CRASHED
    assert ran.finished.reason.startswith("The Python process broke its connections.")
    assert ran.finished.seconds < WAIT_SECONDS


async def test_connections_closed_between_executions_are_made_anew(run):
    close = "".join(map(CLOSE.format, ("SHELL", "STDIN", "IOPUB")))
    late = "def close():\n    time.sleep(0.3)\n" + textwrap.indent(close, "    ")
    first = await run(speaking.BY_HAND + late + "threading.Thread(target=close).start()\nx = 5")
    assert first.ending is Ending.OK
    await asyncio.sleep(0.6)

    assert (await run("x", ask=_answer)).plain == "5"
    assert (await run("input('?')", ask=_answer)).plain.endswith("'answer'")


async def test_greeting_of_a_byte_at_a_time_is_not_waited_for(run):
    slowly = """
listener = own(IOPUB, is_listening=True)
there = own(IOPUB)
kernel.iopub_thread._socket.close(linger=0)
there.shutdown(socket.SHUT_RDWR)
while True:
    select.select([listener], [], [])
    try: accepted, _ = listener.accept()
    except BlockingIOError: continue
    break
greeting = b"\\xff" + bytes(8) + b"\\x7f\\x03\\0NULL" + bytes(48)
for byte in greeting:
    accepted.send(bytes((byte,)))
    time.sleep(0.2)
"""
    await run("kept = 5", key="neighbour")
    attacked = asyncio.create_task(run(speaking.BY_HAND + slowly))
    while not attacked.done():
        assert (await run("kept", key="neighbour")).plain == "5"
    ran = await attacked

    assert ran.ending is Ending.CRASHED
    assert ran.finished.reason.startswith("The Python process broke its connections.")
    assert ran.finished.seconds < 9
    assert (await run("1 + 1")).plain == "2"


async def test_idle_kernel_that_pushes_on_every_socket_costs_the_bot_next_to_nothing(run):
    # Half a message from before the end on; after it, as much as the sockets take.
    pushing = """
def push_for_ever(there):
    time.sleep(3)
    while True: push(there, frame(15 << 20, more=False) + MEBIBYTE * 15)
publish("status", {"execution_state": "idle"})
time.sleep(0.2)
for channel in (SHELL, IOPUB, STDIN):
    there = own(channel)
    threading.Thread(target=push_for_ever, args=(there,), daemon=True).start()
    if channel is not SHELL: push(there, frame(15 << 20, more=False) + MEBIBYTE * 14)
"""
    await run("kept = 5", key="neighbour")
    tracemalloc.start()
    try:
        ran = await run(speaking.BY_HAND + pushing, ask=_answer)
        assert ran.ending is Ending.OK
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 4 * boxes.MIB
        assert tracemalloc.get_traced_memory()[1] > 20 * boxes.MIB, "half messages did come"
    finally:
        tracemalloc.stop()

    async with growth() as most:
        await asyncio.sleep(4)

    assert most[0] < 4 * boxes.MIB
    assert (await run("kept", key="neighbour")).plain == "5"
