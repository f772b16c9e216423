"""Code that waits until its cell is long over, and nobody looks, before it takes what it can."""

import asyncio
import os
import textwrap

import pytest

from interpreter_bot import values
from interpreter_bot.wording import run_words
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
WAIT_SECONDS = 3
# A busy machine needs a while to do what is then undone.
PATIENCE_SECONDS = 20
FILL = """
def fill():
    for n in range(12):
        with open(f"/mnt/data/{n}", "wb") as file: file.write(bytes(16 << 20))
"""
HOARD = """
def hold():
    held = bytearray(os.urandom(1 << 20)) * 120
    time.sleep(60)
def hoard():
    for _ in range(8):
        if os.fork() == 0: hold()
"""
FORK = """
def fork():
    while True:
        try:
            if os.fork() == 0: time.sleep(60)
        except OSError: break
    open("/mnt/data/over", "w").close()
"""
AFTERWARDS = """
def afterwards(what):
    time.sleep({seconds})
    what()
"""
BY_THREAD = "threading.Thread(target=afterwards, args=({what},)).start()"
BY_ORPHAN = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: afterwards({what})
    os._exit(0)
os.wait()
"""
WAYS = {
    "memory by a thread": (HOARD, "hoard", BY_THREAD),
    "memory by an orphan": (HOARD, "hoard", BY_ORPHAN),
    "disk by a thread": (FILL, "fill", BY_THREAD),
    "disk by an orphan": (FILL, "fill", BY_ORPHAN),
}


def code(what, name, way):
    later = AFTERWARDS.format(seconds=WAIT_SECONDS)
    return harness.code(textwrap.dedent(what + later + way.format(what=name)))


async def test_memory_taken_long_after_the_cell_is_limited_like_the_cells_own(bot, session_key):
    async def attack(name):
        ran = await bot.run(code(*WAYS[name]), key=session_key(name))
        assert ran.ending is values.Ending.OK, ran
        kernel = bot.pool.kernels[session_key(name)]
        before = kernel.provisioner.meter().oom_kills()
        await asyncio.sleep(WAIT_SECONDS)
        is_by_group = name.startswith("memory") and bot.has_groups

        def is_caught():
            is_killed = is_by_group and kernel.provisioner.meter().oom_kills() > before
            return is_killed or not kernel.is_alive

        assert await harness.wait_until(is_caught, PATIENCE_SECONDS), name
        if not is_by_group:
            limits = harness.LIMITS
            reasons = {
                "memory": run_words.over_memory(limits.memory_bytes),
                "disk": run_words.workspace_full(limits),
            }
            assert kernel.loss_reason == reasons[name.split()[0]]

    await asyncio.gather(*map(attack, WAYS))


async def test_processes_made_long_after_the_cell_are_bounded_and_seen(bot, session_key, files):
    await bot.run(code(FORK, "fork", BY_THREAD), key=session_key())
    kernel = bot.pool.kernels[session_key()]
    if harness.SHARE_ONE_ID:
        # The kernel counts by user, so it is the bot that looks, and ends the session.
        assert await harness.wait_until(lambda: not kernel.is_alive, PATIENCE_SECONDS)
        assert kernel.loss_reason.startswith(run_words.too_many_processes(harness.LIMITS))
        return
    workspace = await files()

    def is_over():
        return os.path.exists(workspace.directory / "over")

    await asyncio.sleep(WAIT_SECONDS)
    assert await harness.wait_until(is_over, PATIENCE_SECONDS)
    count = len(bot.pids(session_key()))
    assert harness.LIMITS.processes // 2 < count <= harness.LIMITS.processes + 2
    assert kernel.is_alive
