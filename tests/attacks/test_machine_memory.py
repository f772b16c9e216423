"""The memory of the machine as a whole, and what is counted for nobody."""

import asyncio
import types

import pytest

from interpreter_bot import values
from interpreter_bot.kernels import machine_exhaustion
from interpreter_bot.wording import run_words
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
Ending = values.Ending
MIB = harness.MIB


async def test_processes_that_share_their_memory_hold_it_once(bot, run, session_key):
    await run("x = bytearray(100 << 20)")
    before = bot.pool.kernels[session_key()].provisioner.meter().sample_load().memory_bytes

    await run(
        harness.code("""
        for _ in range(4):
            if os.fork() == 0: time.sleep(60)
    """)
    )

    after = bot.pool.kernels[session_key()].provisioner.meter().sample_load().memory_bytes
    assert after - before < 60 * MIB


# What the thief does, and what of it the host's kernel would hold for itself.
THIEVES = {
    "what it holds": ("x = bytearray()\nwhile True: x += bytes(4 << 20); time.sleep(0.1)", 0),
    "the kernel's own memory": ("while True: os.stat('/mnt/data'); os.listdir('/usr/bin')", 1),
}


@pytest.mark.parametrize("what", THIEVES)
async def test_only_who_takes_the_memory_of_the_machine_ends(short_path, monkeypatch, what):
    """Sessions are real; that of the machine which their bot sees shrinks while the thief runs."""
    steal, by_kernel = THIEVES[what]
    taken = types.SimpleNamespace(bytes=0, thief=None)

    def machine():
        if taken.thief is None:
            return machine_exhaustion.MachineMemory(1 << 30, 0)
        taken.bytes += 8 * MIB if taken.thief.is_alive else 0
        return machine_exhaustion.MachineMemory(150 * MIB - taken.bytes, taken.bytes * by_kernel)

    monkeypatch.setattr(machine_exhaustion, "machine_memory", machine)
    limits = harness.LIMITS.model_copy(update={"memory_reserve_bytes": 100 * MIB})
    async with harness.Bot.open(short_path, limits, preload=(), spares=0) as bot:
        await bot.run("x = bytearray(150 << 20)", key="idle")
        bystander = harness.code("""
            x = bytearray(90 << 20)
            while not os.path.exists("/mnt/data/over"): sum(range(100_000))
            """)
        computing = asyncio.create_task(bot.run(bystander, key="bystander", seconds=60))
        await bot.run("1", key="thief")
        await asyncio.sleep(1)
        taken.thief = bot.pool.kernels["thief"]
        stolen = await bot.run(harness.code(steal), key="thief", seconds=60)

        assert stolen.ending is Ending.OUT_OF_MEMORY
        assert stolen.finished.reason.startswith(run_words.MEMORY_SHORT)
        workspace = await bot.pool.workspace("bystander")
        (workspace.directory / "over").touch()
        assert (await computing).ending is Ending.OK
        assert (await bot.run("len(x) >> 20", key="idle")).plain == "150"


async def test_shared_memory_that_its_maker_left_is_found(bot, run, session_key):
    """Pages that only a process touched which has ended are in nobody's resident set."""
    await run(
        harness.code("""
        shared = mmap.mmap(-1, 300 << 20)
        maker = os.fork()
        if maker == 0:
            for start in range(0, len(shared), 1 << 20):
                shared[start : start + (1 << 20)] = bytes(1 << 20)
            os._exit(0)
        os.waitpid(maker, 0)
        """)
    )
    usage = bot.pool.kernels[session_key()].provisioner.meter()
    assert await asyncio.to_thread(usage.memory_bytes) >= 300 * MIB
