"""At the level `container`, nothing of a session outlives it or outgrows its limits."""

import asyncio
import os
import sys
import tempfile

import pytest

from tests.attacks import container_level, harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
shared_bot = container_level.shared_bot

# Each process of a chain ends once it has forked the next: whoever looks for one finds it gone.
CHAIN = """
#include <unistd.h>
int main(void) {
    for (;;) {
        if (fork() > 0) _exit(0);
        setsid();
    }
}
"""
RUN_CHAINS = """
place = os.environ["TMPDIR"]
with open(f"{place}/chain.c", "w") as file: file.write(%r)
subprocess.run(["cc", "-O2", "-o", f"{place}/made", f"{place}/chain.c"], check=True)
with open(f"{place}/made", "rb") as made: program = made.read()
copy = os.open("/mnt/data/chain", os.O_CREAT | os.O_WRONLY, 0o755)
os.write(copy, program); os.close(copy)
for _ in range(3): subprocess.Popen(["/mnt/data/chain"])
time.sleep(1)
"""


async def test_no_end_of_a_link_to_others_is_inherited(run):
    text = """
    for number in map(int, os.listdir("/proc/self/fd")):
        try: held = socket.socket(fileno=os.dup(number))
        except OSError: continue
        if held.family == socket.AF_UNIX and held.getsockname() == "" == held.getpeername():
            # A pair: what is sent into one end comes out of another one here, or at others.
            if os.fstat(number).st_uid != os.getuid() or held.type == socket.SOCK_SEQPACKET:
                print(number)
        held.detach()
    """
    ran = await run(harness.code(text))

    assert ran.text == "", ran


@pytest.mark.parametrize(
    "leaving",
    [
        "subprocess.Popen(['/bin/sleep', '600'])",
        "os.fork() or (os.setsid(), os.fork(), os.setsid(), time.sleep(600))",
        "libc.prctl(1, 0); subprocess.Popen(['/bin/sleep', '600'], start_new_session=True)",
    ],
    ids=["child", "double-fork", "no-parent-death-signal"],
)
@pytest.mark.parametrize("end", ["forget", "exit", "killed keeper"])
async def test_nothing_is_left_of_a_session(bot, run, session_key, leaving, end):
    await run(harness.code(leaving))
    assert await harness.wait_until(lambda: len(bot.pids(session_key())) > 2)
    keeper, *_ = pids = bot.pids(session_key())

    if end == "forget":
        await bot.pool.forget(session_key())
    elif end == "exit":
        await run("import os; os._exit(3)")
    else:
        os.kill(keeper, 9)

    assert await harness.wait_until(lambda: not any(map(harness.is_alive, pids)), seconds=5)


# A bot of its own, with a session that leaves something behind; it says who is there, and waits.
BOT = """
import asyncio, pathlib, sys
from tests.attacks import harness

async def main():
    place = pathlib.Path(sys.argv[1])
    options = {"uses_cgroups": False, "level": "container", "preload": ()}
    async with harness.Bot.open(place, **options) as bot:
        code = "import subprocess; subprocess.Popen(['/bin/sleep', '600'], start_new_session=True)"
        await bot.run(code, key="a")
        print(*bot.pids("a"), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_nothing_is_left_once_the_bot_is_killed(shared_bot):
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as place:
        bot = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BOT, place, stdout=asyncio.subprocess.PIPE
        )
        assert bot.stdout is not None
        pids = list(map(int, (await bot.stdout.readline()).split()))
        assert len(pids) > 2
        assert all(map(harness.is_alive, pids))

        bot.kill()
        await bot.wait()

        assert await harness.wait_until(lambda: not any(map(harness.is_alive, pids)), seconds=5)


async def test_processes_that_flee_their_end_are_caught(bot, run, session_key):
    ran = await run(harness.code(RUN_CHAINS % CHAIN))
    assert ran.text == "", ran

    async with asyncio.timeout(5):
        await bot.pool.forget(session_key())

    assert not any("/chain" in command for command in container_level.list_command_lines())


FILL = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
for number in range(200):
    with open(os.environ["TMPDIR"] + f"/file{number}", "wb") as file: file.write(bytes(4 << 20))
    time.sleep(0.05)
time.sleep(60)
"""


async def test_temporary_files_do_not_grow_beyond_their_limit(bot, run, session_key):
    """T20: not even those of a child that goes on when the code was stopped."""
    running = await run(
        harness.code(f"subprocess.Popen([sys.executable, '-c', {FILL!r}]); time.sleep(9)")
    )
    assert "temporary files" in running.finished.reason, running

    assert await harness.wait_until(lambda: not bot.pool.kernels[session_key()].is_alive, seconds=5)
    workspace = await bot.pool.workspace(session_key())
    held = await asyncio.to_thread(workspace.measure_temporary)
    assert held.bytes < 3 * bot.limits.temporary_bytes


STORM = """
made = 0
try:
    for made in range(1000):
        if not os.fork():
            time.sleep(60)
            os._exit(0)
except OSError as error: print(errno.errorcode[error.errno])
time.sleep(4)
"""


async def test_processes_are_bounded(run):
    """By the system, or if all sessions have one user id, by the end of the session."""
    ran = await run(harness.code(STORM))

    if container_level.IS_PLAIN:
        assert "processes" in ran.finished.reason, ran
    else:
        assert ran.word == "EAGAIN", ran
