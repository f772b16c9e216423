"""What the bot takes for its own of the machine."""

import asyncio
import os
import pathlib
import subprocess
import sys

import pytest

from interpreter_bot import settings
from interpreter_bot.kernels import machines
from interpreter_bot.kernels.metering import session_metering
from interpreter_bot.kernels.provisioning import cgroups

GIB = settings.GIB
MACHINE_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MAKE = """
import asyncio, os, pathlib, sys
from interpreter_bot.kernels import machines

async def main():
    async with machines.process_directory(pathlib.Path(sys.argv[1])) as directory:
        print(directory, flush=True)
        input()
        os._exit(0)

asyncio.run(main())
"""
ASK = "input(); from interpreter_bot.kernels import machines as m; print(m.memory_bytes())"


def test_a_control_group_that_leaves_less_is_believed():
    groups = cgroups.Cgroups.probe("auto")
    if groups.version == 0:
        pytest.skip(groups.reason)
    try:
        group = groups.create("one", settings.Limits(memory_bytes=GIB), headroom_bytes=0)
        command = [sys.executable, "-c", ASK]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as it:
            group.add(it.pid)
            answer, _ = it.communicate("\n", timeout=60)
    finally:
        groups.close()
    assert answer == f"{GIB}\n"


# Version 2: what each group from the root of all on may have, and what that leaves.
BOUNDS = {
    (None, "max", "max"): MACHINE_BYTES,
    (None, str(GIB), "max"): GIB,
    (None, "max", str(GIB)): GIB,
    (None, str(GIB), str(4 * GIB)): GIB,
    (str(GIB), "max", "max"): GIB,
    (None, str(1 << 60), "max"): MACHINE_BYTES,
}


@pytest.mark.parametrize("bounds", BOUNDS)
def test_the_least_of_all_groups_above_counts(tmp_path, bounds):
    """The root of a container is a group with a bound, that of a machine tells none."""
    mounted = tmp_path / "mounted"
    (mounted / "system.slice" / "bot").mkdir(parents=True)
    (tmp_path / "cgroup").write_text("0::/system.slice/bot\n")
    line = f"30 1 0:26 / {mounted} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
    (tmp_path / "mountinfo").write_text(line)
    places = (mounted, mounted / "system.slice", mounted / "system.slice" / "bot")
    for place, bound in zip(places, bounds, strict=True):
        if bound is not None:
            (place / "memory.max").write_text(f"{bound}\n")
    assert machines.memory_bytes(tmp_path) == BOUNDS[bounds]


def test_a_machine_that_tells_nothing_of_groups_is_ours(tmp_path):
    assert machines.memory_bytes(tmp_path) == MACHINE_BYTES


async def test_a_directory_of_a_process_in_another_container_stays_until_that_process_has_ended(
    tmp_path, monkeypatch
):
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MAKE, str(tmp_path), stdin=pipe, stdout=pipe
    )
    directory = pathlib.Path((await other.stdout.readline()).decode().strip())
    # As in another container with the same volume, which sees no process of that id.
    monkeypatch.setattr(session_metering, "start_ticks", lambda pid: int(pid == os.getpid()))
    async with machines.process_directory(tmp_path) as own:
        assert sorted(tmp_path.iterdir()) == sorted([directory, own])
    await other.communicate(b"\n")
    async with machines.process_directory(tmp_path) as own:
        assert [*tmp_path.iterdir()] == [own]
    assert not [*tmp_path.iterdir()]
