"""Kernels that write raw ZMTP: endless or oversized messages cost the bot little."""

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
from tests.attacks import harness, raw_messages

pytestmark = [
    pytest.mark.attack,
    pytest.mark.any_user,
    pytest.mark.asyncio(loop_scope="session"),
]
Ending = values.Ending
# How long the bot waits for a message that never comes.
WAIT_SECONDS = execution_streams._IDLE_SECONDS
LOST = "Some of the output was lost on the way."
CLOSE = "find_socket({}).shutdown(socket.SHUT_RDWR)\n"


def read_resident_bytes():
    """Return the resident memory of this process, which is the bot."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.asynccontextmanager
async def measuring_growth():
    """Yield a list of one number: by how many bytes the bot grew at most."""
    gc.collect()
    bytes_before = read_resident_bytes()
    max_growth = [0]

    async def record_growth():
        while True:
            max_growth[0] = max(max_growth[0], read_resident_bytes() - bytes_before)
            await asyncio.sleep(0.01)

    recording = asyncio.create_task(record_growth())
    try:
        yield max_growth
    finally:
        recording.cancel()
        await asyncio.gather(recording, return_exceptions=True)


async def _answer(_):
    return "answer"


# Sent on each of the two sockets that the bot reads during any execution.
WITHOUT_END = {
    "parts of a mebibyte": "part = frame(1 << 20) + MEBIBYTE",
    "parts of a byte": "part = (frame(1) + b'x') * 10_000",
    "parts of nothing": "part = bytes((1, 0)) * 100_000",
    "heartbeats": "part = b'\\x04\\x07\\x04PING\\0\\0' * 10_000",
    "unknown commands": "part = b'\\x04\\x00' * 100_000",
    "one part, slowly": "push(peer, frame(15 << 20)); part = b'x' * 1000",
}


@pytest.mark.parametrize("channel", ["IOPUB", "SHELL"])
@pytest.mark.parametrize("message", WITHOUT_END)
async def test_message_without_end_costs_the_bot_little_and_others_nothing(run, message, channel):
    await run("kept = 5", key="neighbour")
    attack = f"""
peer = find_socket({channel})
{WITHOUT_END[message]}
while True:
    push(peer, part)
"""

    async with measuring_growth() as max_growth:
        attack_task = asyncio.create_task(run(raw_messages.ZMTP_PRELUDE + attack, seconds=2))
        waits = []
        while not attack_task.done():
            start_time = time.monotonic()
            assert (await run("kept", key="neighbour")).plain == "5"
            waits.append(time.monotonic() - start_time)
        ran = await attack_task

    assert ran.ending is not Ending.OK
    assert ran.finished.reason or ran.errors or ran.notices
    assert not any(error.name in ("NameError", "SyntaxError") for error in ran.errors)
    assert max_growth[0] < 40 * harness.MIB
    assert sorted(waits)[len(waits) // 2] < 1
    assert (await run("1 + 1")).plain == "2"


async def test_commands_between_messages_keep_nobody_waiting(run):
    # The count of commands starts again with each message.
    attack = """
peer = find_socket(IOPUB)
packed = session.serialize(session.msg("status", {}, parent))
packed = b"".join(
    bytes((3 if n + 1 < len(packed) else 2,)) + len(one).to_bytes(8, "big") + one
    for n, one in enumerate(packed)
)
while True: push(peer, bytes((4, 0)) * 9_000 + packed)
"""
    attack_task = asyncio.create_task(run(raw_messages.ZMTP_PRELUDE + attack, seconds=2))
    busy_seconds = []
    while not attack_task.done():
        start_time = time.thread_time()
        await asyncio.sleep(0.001)
        busy_seconds.append(time.thread_time() - start_time)
    await attack_task

    assert max(busy_seconds) < 0.1


async def test_endless_messages_on_ever_new_connections_cost_the_bot_little(run):
    attack = """
while True:
    try:
        peer = None
        peer = find_socket(IOPUB)
        while True: push(peer, frame(1 << 20) + MEBIBYTE)
    except Exception:
        time.sleep(0.01)
"""
    async with measuring_growth() as max_growth:
        ran = await run(raw_messages.ZMTP_PRELUDE + attack, seconds=3)

    assert ran.ending in {Ending.CRASHED, Ending.TIMED_OUT}
    assert max_growth[0] < 40 * harness.MIB


@pytest.mark.parametrize("size", [2**63 - 1, 2**40, 65 * harness.MIB])
async def test_announced_size_is_not_believed_and_what_follows_is_heard(run, size):
    code = f"push(find_socket(IOPUB), frame({size}))\ntime.sleep(0.5)\nprint('after')"
    async with measuring_growth() as max_growth:
        ran = await run(raw_messages.ZMTP_PRELUDE + code)

    assert ran.ending is Ending.OK
    assert ran.notices == [LOST]
    assert ran.word == "after"
    assert ran.finished.seconds < WAIT_SECONDS
    assert max_growth[0] < 4 * harness.MIB


async def test_closed_output_is_heard_anew(run):
    close = CLOSE.format("IOPUB")
    ran = await run(raw_messages.ZMTP_PRELUDE + close + "time.sleep(0.5)\nprint('after')")

    assert ran.ending is Ending.OK
    assert ran.notices == [LOST]
    assert ran.word == "after"
    assert ran.finished.seconds < WAIT_SECONDS


async def test_output_closed_again_and_again_ends_its_kernel(run):
    close = """
while True:
    try: find_socket(IOPUB).shutdown(socket.SHUT_RDWR)
    except (AttributeError, OSError): pass
    time.sleep(0.05)
"""
    ran = await run(raw_messages.ZMTP_PRELUDE + close)

    assert ran.ending is Ending.CRASHED
    assert ran.finished.reason.startswith("The Python process broke its connections.")


@pytest.mark.parametrize("channel", ["SHELL", "STDIN"])
async def test_kernel_that_closes_what_it_answers_on_ends(run, channel):
    close = CLOSE.format(channel)
    ran = await run(raw_messages.ZMTP_PRELUDE + close + "time.sleep(9)", ask=_answer)

    assert ran.ending is Ending.CRASHED
    assert ran.finished.reason.startswith("The Python process broke its connections.")
    assert ran.finished.seconds < WAIT_SECONDS


async def test_connections_closed_between_executions_are_made_anew(run):
    close = "".join(map(CLOSE.format, ("SHELL", "STDIN", "IOPUB")))
    closing = "def close():\n    time.sleep(0.3)\n" + textwrap.indent(close, "    ")
    ran = await run(
        raw_messages.ZMTP_PRELUDE + closing + "threading.Thread(target=close).start()\nx = 5"
    )
    assert ran.ending is Ending.OK
    await asyncio.sleep(0.6)

    assert (await run("x", ask=_answer)).plain == "5"
    assert (await run("input('?')", ask=_answer)).plain.endswith("'answer'")


async def test_greeting_of_a_byte_at_a_time_is_not_waited_for(run):
    slowly = """
listener = find_socket(IOPUB, is_listening=True)
peer = find_socket(IOPUB)
kernel.iopub_thread._socket.close(linger=0)
peer.shutdown(socket.SHUT_RDWR)
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
    attack_task = asyncio.create_task(run(raw_messages.ZMTP_PRELUDE + slowly))
    while not attack_task.done():
        assert (await run("kept", key="neighbour")).plain == "5"
    ran = await attack_task

    assert ran.ending is Ending.CRASHED
    assert ran.finished.reason.startswith("The Python process broke its connections.")
    assert ran.finished.seconds < 9
    assert (await run("1 + 1")).plain == "2"


async def test_idle_kernel_that_pushes_on_every_socket_costs_the_bot_next_to_nothing(run):
    # Half a message before the execution's end, then as much as the sockets take.
    pushing = """
def push_for_ever(peer):
    time.sleep(3)
    while True: push(peer, frame(15 << 20, more=False) + MEBIBYTE * 15)
publish("status", {"execution_state": "idle"})
time.sleep(0.2)
for channel in (SHELL, IOPUB, STDIN):
    peer = find_socket(channel)
    threading.Thread(target=push_for_ever, args=(peer,), daemon=True).start()
    if channel is not SHELL: push(peer, frame(15 << 20, more=False) + MEBIBYTE * 14)
"""
    await run("kept = 5", key="neighbour")
    tracemalloc.start()
    try:
        ran = await run(raw_messages.ZMTP_PRELUDE + pushing, ask=_answer)
        assert ran.ending is Ending.OK
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 4 * harness.MIB
        assert tracemalloc.get_traced_memory()[1] > 20 * harness.MIB, "half messages did come"
    finally:
        tracemalloc.stop()

    async with measuring_growth() as max_growth:
        await asyncio.sleep(4)

    assert max_growth[0] < 4 * harness.MIB
    assert (await run("kept", key="neighbour")).plain == "5"
