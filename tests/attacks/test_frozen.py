"""Code that would go on when nobody uses its session any more: in threads, children, by signals."""

import asyncio
import os
import pathlib
import tempfile
import time

import pytest
import pytest_asyncio

from tests.attacks import harness

pytestmark = [
    pytest.mark.attack,
    pytest.mark.namespaces,
    pytest.mark.asyncio(loop_scope="session"),
]
COUNT = """
def count(name):
    while True:
        with open(f"/mnt/data/{name}", "a") as file: file.write("x")
        time.sleep(0.01)
threading.Thread(target=count, args=("thread",), daemon=True).start()
if os.fork() == 0:
    os.setsid()
    count("child")
stopped = subprocess.Popen(["/bin/sleep", "99"])
stopped.send_signal(signal.SIGSTOP)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_bot():
    """A bot of our own, where control groups can freeze its sessions."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        options = {"spares": 0, "preload": (), "freeze_seconds": 0}
        async with harness.Bot.open(pathlib.Path(name), **options) as bot:
            await bot.run("1", key="first")
            if not bot.pool.kernels["first"].provisioner.can_freeze:
                pytest.skip("nothing is frozen without control groups")
            yield bot


@pytest.fixture
def freeze(bot, session_key):
    """Freeze the test's session as the watchdog does once it is idle."""

    async def freeze_one():
        await bot.pool.kernels[session_key()].freeze()
        await asyncio.sleep(0.3)

    return freeze_one


async def test_what_a_cell_left_running_stops_and_goes_on_with_the_next(run, files, freeze):
    await run(harness.code(COUNT))
    folder = (await files()).directory

    def sizes():
        files = [folder / name for name in ("thread", "child")]
        return [file.stat().st_size if file.exists() else 0 for file in files]

    before = sizes()
    assert await harness.wait_until(lambda: all(map(int.__lt__, before, sizes())))
    await freeze()
    before = sizes()
    await asyncio.sleep(0.5)
    assert sizes() == before
    ran = await run("print(open(f'/proc/{stopped.pid}/stat').read().split()[2])")
    assert ran.word == "T", "it was stopped before"
    assert await harness.wait_until(lambda: all(map(int.__lt__, before, sizes())))


async def test_a_frozen_kernel_answers_soon(run, freeze):
    await run("x = 1")
    took = []
    # The quickest, because the machine does other things too.
    while len(took) < 20 and min(took, default=1) >= 0.005:
        began = time.perf_counter()
        await run("x")
        usual = time.perf_counter() - began
        await freeze()
        began = time.perf_counter()
        assert (await run("x")).plain == "1"
        took.append(time.perf_counter() - began - usual)
    assert min(took) < 0.005, took


async def test_a_frozen_session_ends_at_once_with_everything_in_it(bot, run, session_key, freeze):
    await run(harness.code(COUNT))
    pids = bot.pids(session_key())
    assert len(pids) >= 4
    await freeze()
    async with asyncio.timeout(30):
        await bot.pool.release(session_key())
    assert await harness.wait_until(lambda: not any(map(harness.is_alive, pids)))


async def test_code_cannot_wake_itself(bot, run, session_key, freeze):
    # A timer's signal is the kernel's own, and reaches a process that is stopped.
    await run(
        harness.code("""
        def spin():
            while True: pass
        threading.Thread(target=spin, daemon=True).start()
        # Linux arms no timer anew whose signal would be ignored.
        signal.signal(signal.SIGCONT, lambda *_: None)
        event = struct.pack("QiixxQ40x", 0, signal.SIGCONT, 0, 0)
        # A stop discards the signal that waits, and with it the timer whose signal that was.
        for milliseconds in range(50, 900, 50):
            timer = ctypes.c_void_p()
            call("timer_create", 1, event, ctypes.byref(timer))
            every = struct.pack("qqqq", 0, milliseconds * 10**6, 0, milliseconds * 10**6)
            call("timer_settime", timer, 0, every, None)
        """)
    )
    kernel = bot.pool.kernels[session_key()]
    await asyncio.sleep(0.3)
    await freeze()
    usage = kernel.provisioner.meter()
    before = usage.cpu_seconds()
    await asyncio.sleep(0.5)
    assert kernel.is_alive
    assert usage.cpu_seconds() <= before + 0.1


async def test_a_frozen_session_ends_with_the_fork_server(bot, run, session_key, freeze):
    await run(harness.code(COUNT))
    pids = bot.pids(session_key())
    await freeze()
    bot.pool._machine_setup.host_context.server._process.kill()
    assert await harness.wait_until(lambda: not any(map(harness.is_alive, pids)))
