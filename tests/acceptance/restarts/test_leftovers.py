"""What a bot leaves behind: nothing, however it ends, once the next one has started."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests import machine
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.kernel]
ROOT = pathlib.Path(__file__).parents[3]
CGROUPS = pathlib.Path("/sys/fs/cgroup")
GONE_SECONDS = 20.0
# With namespaces, processes of sessions are forked by another one.
OF_FORK_SERVER = 2 if machine.offers_namespaces() else 1
# Says when two kernels live and one of them computes; ends in order when its input does.
BOT = """
import asyncio, json, os, pathlib, sys
from interpreter_bot import settings
from interpreter_bot.kernels import pools
from interpreter_bot.kernels.provisioning import cgroups

LEAVE = "import subprocess, threading; open('/mnt/data/kept', 'w').write('x')\\n"
LEAVE += "def spin():\\n    while True: pass\\nthreading.Thread(target=spin).start()\\n"
LEAVE += "left = subprocess.Popen(['/bin/sh', '-c', 'while :; do :; done'])"
COMPUTE = "import subprocess; held = subprocess.Popen(['/bin/sleep', '99'])\\n"
COMPUTE += "print('computing', flush=True)\\nwhile True: pass"

async def main(root, groups):
    is_second = groups == "version 2"
    sandbox = settings.Sandbox()
    bot = settings.Settings(
        paths=settings.Paths(data=root / "data", runtime=root / "run"),
        sandbox=sandbox if groups == "auto" else sandbox.without_cgroups(),
        kernels=settings.Kernels(
            spares=1, concurrent=4, preload=(), freeze_seconds=0 if is_second else 0.3
        ),
    )
    # Sessions of its own: one that another bot has would be refused.
    own = os.getpid()
    async with (
        pools.Pool.open(bot) as pool,
        pool.lease(f"quiet-{own}") as one,
        pool.lease(f"busy-{own}") as two,
    ):
        quiet, busy = await one.kernel(), await two.kernel()
        await quiet.execute(LEAVE, show=lambda _: None)
        begun = asyncio.Event()
        computing = asyncio.create_task(busy.execute(COMPUTE, show=lambda _: begun.set()))
        await begun.wait()
        while not pool.spare_count:
            await asyncio.sleep(0.01)
        # Without control groups nothing is frozen.
        while quiet.provisioner.can_freeze and not quiet.is_frozen:
            await asyncio.sleep(0.01)
        if is_second:
            freeze_by_version_2(quiet.provisioner.meter().pids(), root / "group")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        computing.cancel()
        await asyncio.gather(computing, return_exceptions=True)

def freeze_by_version_2(pids, place):
    group = cgroups.Group(2, dict.fromkeys(("memory", "pids"), str(place.resolve())))
    for pid in pids:
        group.add(pid)
    group.set_frozen(True)

asyncio.run(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
"""


class Running:
    """A bot in a process of its own."""

    def __init__(self, root: pathlib.Path, groups: str = "auto") -> None:
        self.root = root
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOT, str(root), groups],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout.readline() == "ready\n"
        self.descendants = _descendants(self.process.pid)
        self.directories = sorted((root / "run").iterdir())
        self.cgroups = _cgroups_of(self.process.pid)

    def close(self) -> int:
        """Let it end in order; returns its exit status."""
        self.process.communicate("\n", timeout=20)
        return self.process.returncode

    def kill(self) -> None:
        """End it as nothing can prevent."""
        self.process.kill()
        self.process.communicate(timeout=30)

    def has_processes(self) -> bool:
        return any(map(harness.is_alive, self.descendants))


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(FileNotFoundError):
            for task in os.listdir(f"/proc/{one}/task"):
                text = pathlib.Path(f"/proc/{one}/task/{task}/children").read_text()
                found.extend(map(int, text.split()))
    return found[1:]


def _cgroups_of(pid: int) -> list[str]:
    prefix = f"interpreter-bot-{pid}-"
    return [
        os.path.join(folder, name)
        for folder, names, _ in os.walk(CGROUPS)
        for name in names
        if name.startswith(prefix)
    ]


def _sockets_of(pids: list[int]) -> set[str]:
    """The sockets that processes hold, by their inodes: their names say nothing."""
    links = []
    for pid in pids:
        # A plain user may not look into processes that are walled in.
        with contextlib.suppress(PermissionError, FileNotFoundError):
            folder = f"/proc/{pid}/fd"
            links += [os.readlink(f"{folder}/{name}") for name in os.listdir(folder)]
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def _living(sockets: set[str]) -> set[str]:
    """Those that are still Unix sockets of this network; kernels have networks of their own."""
    table = pathlib.Path("/proc/net/unix").read_text()
    return sockets & {line.split()[6] for line in table.splitlines()[1:]}


@pytest.fixture
def start(short_path):
    """Start bots in the same directories."""
    started = []

    def start_one(groups="auto"):
        started.append(Running(short_path, groups))
        return started[-1]

    yield start_one
    for bot in started:
        if bot.process.poll() is None:
            bot.kill()


def _gone(bot: Running) -> float:
    """How long its processes take to be gone, in seconds."""
    began = time.monotonic()
    while bot.has_processes() and time.monotonic() - began < 2 * GONE_SECONDS:
        time.sleep(0.01)
    return time.monotonic() - began


@pytest.mark.gate
def test_killed_bot_leaves_no_process_and_the_next_start_leaves_nothing(start):
    dead = start()
    # Each kernel and its first process are two, and code started two more.
    assert len(dead.descendants) >= OF_FORK_SERVER + 3 * 2 + 2
    assert dead.directories
    sockets = _sockets_of([dead.process.pid, *dead.descendants])
    # The bot's ends of three channels, for two kernels and a spare.
    assert len(sockets) >= 3 * 3

    dead.kill()

    assert _gone(dead) < GONE_SECONDS
    assert not _living(sockets)
    assert all(directory.exists() for directory in dead.directories), "for the next to remove"

    alive = start()
    assert not any(directory.exists() for directory in dead.directories)
    assert _cgroups_of(dead.process.pid) == []
    assert len(alive.directories) == 1
    assert alive.close() == 0


def test_killed_bot_leaves_no_process_that_version_2_froze(start, short_path, unified_group):
    (short_path / "group").symlink_to(unified_group)
    bot = start("version 2")
    assert len(bot.descendants) >= OF_FORK_SERVER + 3 * 2 + 2

    bot.kill()

    assert _gone(bot) < GONE_SECONDS


def test_killed_bot_leaves_no_frozen_process_though_its_first_process_is_slow(start):
    bot = start()
    # Those of sessions, after the fork server's.
    slow = [pid for pid in bot.descendants if len(_descendants(pid)) >= 2][OF_FORK_SERVER:]
    for pid in slow:
        os.kill(pid, signal.SIGSTOP)

    bot.kill()
    time.sleep(1)
    for pid in slow:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    assert _gone(bot) < GONE_SECONDS


def test_start_beside_a_living_bot_takes_nothing_from_it(start):
    first = start()
    second = start()

    assert all(directory.exists() for directory in first.directories)
    assert _cgroups_of(first.process.pid) == first.cgroups
    assert all(map(harness.is_alive, first.descendants))
    assert second.close() == 0
    assert all(map(harness.is_alive, first.descendants))
    assert first.close() == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGSEGV"])
def test_bot_that_dies_of_another_signal_leaves_no_process_either(start, name):
    bot = start()

    bot.process.send_signal(getattr(signal, name))
    bot.process.communicate(timeout=30)

    assert _gone(bot) < GONE_SECONDS


def test_closed_bot_leaves_files_of_sessions_and_nothing_else(start):
    bot = start()
    sockets = _sockets_of([bot.process.pid, *bot.descendants])

    assert bot.close() == 0

    assert not bot.has_processes()
    assert list((bot.root / "run").iterdir()) == []
    assert _cgroups_of(bot.process.pid) == []
    assert not _living(sockets)
    kept = [path.name for path in (bot.root / "data").rglob("*") if path.is_file()]
    assert kept == ["kept"]
