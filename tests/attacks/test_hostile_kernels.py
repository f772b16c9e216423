"""Kernels that fight the bot with everything they have: each comes to an end, alone."""

import asyncio
import gc
import os
import pathlib
import re
import time

import pytest
import pytest_asyncio

from interpreter_bot import values
from interpreter_bot.kernels import execution_streams
from tests.attacks import harness, raw_messages

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
Ending = values.Ending
LEFT_OUT = "Part of the output was left out, because it had more than 16 MiB."
# What ends in whatever way, but ends: the bot lives, and a new kernel answers.
HOSTILE = {
    "a frame of 20 MB": "iopub.send_multipart([b'x' * 20_000_000])\nprint('after')",
    "a signed message of 20 MB": "publish('stream', dict(stream, text='x' * 20_000_000))",
    "a reply of 20 MB": "shell.send_multipart([*ident, b'x' * 20_000_000])",
    "a million frames": "iopub.send_multipart([b'x'] * 1_000_000)",
    "a million messages": "for _ in range(1_000_000): iopub.send_multipart([b'x'])",
    "a million signed messages": "m = session.serialize(session.msg('stream', stream, parent))\n"
    "for _ in range(1_000_000): iopub.send_multipart([b'x', *m])",
    "a million replies": "m = session.serialize(session.msg('execute_reply', {}, parent))\n"
    "for _ in range(200_000): shell.send_multipart([*ident, *m])",
    "questions without end": "while True: session.send(kernel.stdin_socket, 'input_request', "
    "{'prompt': 'x' * 10_000}, parent=parent, ident=ident)",
    "closed sockets": "import os\nos.closerange(3, 256)\ntime.sleep(5)",
    "a closed shell": "shell.close(linger=0)",
    "a closed publisher": "kernel.iopub_thread.socket.close(linger=0)\nprint('unheard')",
    "a terminated context": "kernel.parent.context.destroy(linger=0)",
    "descriptors swapped": "import os\nfor n in range(3, 40):\n    try: os.dup2(0, n)\n"
    "    except OSError: pass\ntime.sleep(1)",
    "noise on every socket": "import os\nfor n in range(3, 40):\n    try: os.write(n, b'x' * 99)\n"
    "    except OSError: pass\ntime.sleep(0.5)",
    "handlers replaced": "kernel.shell_handlers.clear(); kernel.do_execute = None",
    "a key replaced": "session.key = b'another'",
    "sending replaced": "type(session).send = lambda *_, **__: None",
    "all of ipykernel replaced": "import sys\nfor name in list(sys.modules):\n"
    "    if name.startswith(('ipykernel', 'zmq', 'guest')): del sys.modules[name]\n"
    "kernel.__class__.execute_request = lambda *_: None",
    "an event loop stopped": "import asyncio\nasyncio.get_event_loop().stop()",
    "an event loop held": "import asyncio\nasyncio.get_event_loop().call_soon(time.sleep, 60)",
    "threads that stop the world": "import sys\nsys.setswitchinterval(1000)\n"
    "threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()",
    "a fork that goes on": "import os\nif os.fork() == 0: print('child')\n",
}


@pytest.mark.any_user
@pytest.mark.parametrize("what", HOSTILE)
async def test_hostile_kernel_comes_to_an_end_and_harms_nobody(bot, run, what):
    await run("kept = 5", key="neighbour")

    first = await run(raw_messages.PRELUDE + HOSTILE[what], seconds=1)
    await run("print('second')", seconds=0.3)

    assert "forged" * 20_000 not in first.plain
    assert (await run("kept", key="neighbour")).plain == "5"
    await bot.pool.release(next(key for key in bot.keys if key.endswith(f"[{what}] ")))
    assert (await run("1 + 1")).plain == "2"


@pytest.mark.any_user
async def test_flood_of_messages_leaves_no_memory_behind(run):
    def resident():
        gc.collect()
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )

    flood = "m = session.serialize(session.msg('stream', dict(stream, text='x' * 10_000), parent))"
    flood += "\nwhile True: iopub.send_multipart([b'x', *m])"
    before = resident()

    ran = await run(raw_messages.PRELUDE + flood, seconds=3)

    assert ran.ending in {Ending.TIMED_OUT, Ending.CRASHED, Ending.OUT_OF_MEMORY}
    assert resident() - before < 32 * harness.MIB


LONG = """
import base64
MAX = 15 * 1024 * 1024 - 1000
numbers = b'{"msg_id": "x", "a": [' + b",".join([b"9" * 4299] * (MAX // 4300)) + b"]}"
floats = b'{"a": [' + b",".join([b"0." + b"9" * 148] * 99_000) + b"]}"
quotes = b'{"a": "' + b'\\\\",' * (MAX // 3) + b'"}'
keys = b"{" + b",".join(b'"%d%s":1' % (n, b"k" * 140) for n in range(99_000)) + b"}"
idle = b'{"execution_state": "busy", "a": "' + b"x" * MAX + b'"}'
escapes = b'{"data": {"text/html": "' + b"\\\\nxx" * (MAX // 4) + b'"}}'
letters = b'{"data": {"text/html": "' + b"\\\\u00e9" * (MAX // 6) + b'"}}'
halves = b'{"data": {"text/html": "' + b"\\\\ud800abcdef" * (MAX // 12) + b'"}}'
wide = '{"data": {"text/html": "%s"}}'.encode() % ("a\u20ac\U0001f600" * (MAX // 8)).encode()
picture = b'{"data": {"image/png": "' + base64.b64encode(bytes(8_900_000)) + b'"}}'
controls = b'{"ename": "' + b"\\\\u001b[31m" * 800_000 + b'"}'
"""
MAX_SECONDS = 0.1
# What is waited for that does not come.
WAIT_SECONDS = execution_streams._IDLE_SECONDS
# What takes long to read.
HEAVY = {
    "parents of numbers": "header('stream'), numbers, {}, stream",
    "headers of numbers": "numbers, about, {}, stream",
    "metadata of numbers": "header('stream'), about, numbers, stream",
    "foreign messages": "header('stream'), {'msg_id': 'another'}, {}, idle",
    "long numbers": "header('display_data'), about, {}, numbers",
    "long fractions": "header('display_data'), about, {}, floats",
    "escaped quotes and commas": "header('display_data'), about, {}, quotes",
    "long keys": "header('display_data'), about, {}, keys",
    "states": "header('status'), about, {}, idle",
    "escapes": "header('display_data'), about, {}, escapes",
    "escaped letters": "header('display_data'), about, {}, letters",
    "halves of letters": "header('display_data'), about, {}, halves",
    "letters of all widths": "header('display_data'), about, {}, wide",
    "pictures": "header('display_data'), about, {}, picture",
    "control characters": "header('error'), about, {}, controls",
}


@pytest_asyncio.fixture(loop_scope="session")
async def holding():
    """The longest that anything held the event loop, in processor time, in a list of one.

    Not in time: on a busy machine that would say more about its other work.
    """
    longest = [0.0]

    async def watch():
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            longest[0] = max(longest[0], time.thread_time() - began)

    watching = asyncio.create_task(watch())
    # All that the tests before left would be looked through amid it.
    gc.disable()
    yield longest
    gc.enable()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.any_user
@pytest.mark.parametrize("what", HEAVY)
async def test_no_message_holds_the_event_loop(run, holding, what):
    await run(raw_messages.PRELUDE + LONG)

    sending = f"for _ in range(2): raw(iopub, {HEAVY[what]})"
    ran = await run(f"{raw_messages.PRELUDE}\n{sending}\nprint('after')")

    assert ran.ending is Ending.OK
    assert ran.text.endswith("after\n")
    assert 0 < holding[0] < MAX_SECONDS


def _check_flood_end(ran):
    # A bot that reads slowly leaves the flood in the kernel's own memory, which ends it as well.
    if ran.ending is not Ending.OUT_OF_MEMORY:
        assert ran.ending is Ending.CRASHED
        # Of a hundred that are no messages, the last is one too many as well.
        assert re.search("more messages than anyone could read|make no sense", ran.finished.reason)


@pytest.mark.any_user
async def test_messages_that_take_long_to_read_end_the_kernel(run, monkeypatch):
    monkeypatch.setattr(execution_streams, "_MAX_READING_SECONDS", 0.3)
    await run(raw_messages.PRELUDE + LONG)

    # With pauses: a flood that waits for its reader is in the kernel's memory, which ends it, too.
    sending = "while True: time.sleep(0.1); raw(iopub, header('x'), about, {}, keys)"
    ran = await run(f"{raw_messages.PRELUDE}\nimport time\n{sending}", seconds=9)

    _check_flood_end(ran)


@pytest.mark.any_user
async def test_more_than_could_ever_be_shown_ends_the_kernel(run):
    ran = await run(
        f"{raw_messages.PRELUDE}\nwhile True: iopub.send_multipart([b'x' * 1_000_000])", seconds=9
    )

    _check_flood_end(ran)


@pytest.mark.any_user
async def test_oversized_message_costs_its_own_execution_only(run):
    lost = await run(
        raw_messages.PRELUDE + "iopub.send_multipart([b'x' * 20_000_000])\nprint('after')"
    )
    assert lost.ending is Ending.OK
    assert lost.notices == [LEFT_OUT]
    assert lost.word == "after"
    assert lost.finished.seconds < WAIT_SECONDS, "nothing is waited for that does not come"

    ran = await run("print('heard')")

    assert ran.word == "heard"
    assert ran.finished.seconds < WAIT_SECONDS


@pytest.mark.any_user
async def test_oversized_reply_is_left_out_and_the_one_that_follows_counts(run):
    ran = await run(raw_messages.PRELUDE + "shell.send_multipart([*ident, b'x' * 20_000_000])")

    assert ran.ending is Ending.OK
    assert ran.notices == [LEFT_OUT]
    assert ran.finished.seconds < WAIT_SECONDS


async def test_socket_paths_cannot_be_swapped(bot, run):
    # Sockets of kernels that are just being ended would disappear meanwhile.
    await bot.forget_all()
    await run("1")
    files = sorted(bot.settings.paths.runtime.rglob("k-*"))
    before = [path.lstat().st_ino for path in files]

    ran = await run(
        harness.code("""
        for name in os.listdir("/proc/self/fd"):
            try:
                path = socket.socket(fileno=os.dup(int(name))).getsockname()
            except OSError:
                continue
            if isinstance(path, str) and path.startswith("/"):
                attempt(lambda: os.unlink(path))
                attempt(lambda: os.symlink("/tmp/elsewhere", path))
        """)
    )

    assert set(ran.text.split()) <= harness.REFUSED | harness.MISSING
    assert ran.word
    assert [path.lstat().st_ino for path in files if path.is_socket()] == before
