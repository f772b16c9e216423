"""The walls as the host sees them, whatever a kernel believes."""

import asyncio
import os

import pytest

from interpreter_bot.guest import rootfs, syscalls
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
CHILD = "import subprocess, sys; child = subprocess.Popen(['/bin/sleep', '60'])"


async def test_no_process_of_a_session_is_root_or_privileged_on_the_host(bot, run, session_key):
    await run(CHILD)

    statuses = [harness.read_status(pid) for pid in bot.pids(session_key())]

    assert len(statuses) == 3, "init, kernel, child"
    # Without namespaces its first process, which runs nobody's code, ends the others as root.
    for status in statuses[harness.IN_CONTAINER :]:
        assert "0" not in status["Uid"].split()
        assert "0" not in status["Gid"].split()
        assert {int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Amb")} == {0}
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"


async def test_kernel_has_a_user_of_its_own_where_the_bot_has_ids_to_give(bot, run, session_key):
    users = set()
    for key in "ab":
        await run("1", key=key)
        users.add(int(harness.read_status(bot.pids(session_key(key))[1])["Uid"].split()[0]))

    if not harness.HAS_OWN_IDS:
        assert users == {os.geteuid()}
    else:
        sandbox = bot.settings.sandbox
        assert len(users) == 2
        assert users <= set(range(sandbox.first_uid, sandbox.first_uid + sandbox.uid_count))


@pytest.mark.namespaces
async def test_every_namespace_of_a_kernel_is_its_own(bot, run, session_key):
    here = {name: os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES}
    seen = [here]
    for key in "ab":
        ran = await run(
            f"import os\nfor n in {NAMESPACES}: print(os.readlink('/proc/self/ns/' + n))", key=key
        )
        seen.append(dict(zip(NAMESPACES, ran.text.split(), strict=True)))

    for name in NAMESPACES:
        assert len({namespaces[name] for namespaces in seen}) == 3, name


@pytest.mark.namespaces
@pytest.mark.skipif(syscalls.landlock_abi() < 5, reason="the kernel's Landlock is too old")
async def test_landlock_holds_where_the_mounts_have_nothing_against_it(attempt):
    assert await attempt(f"os.stat({rootfs.CANARY!r}).st_mode & 0o777") == "allowed: 420"
    assert await attempt(f"open({rootfs.CANARY!r}).read()") == "EACCES"
    # A system without Landlock knows no such request: ENOTTY.
    assert await attempt("fcntl.ioctl(os.open('/dev/null', os.O_RDWR), 0x5401)") == "EACCES"
    move = "[os.makedirs(f'/tmp/{n}') for n in 'ab'], os.rename('/tmp/a', '/tmp/b/a')"
    for place in ("/tmp", "/mnt/data"):
        assert (await attempt(f"({move.replace('/tmp', place)})")).startswith("allowed")


@pytest.mark.namespaces
async def test_spare_kernels_are_confined_before_anybody_has_them(bot):
    for _ in range(2):
        await bot.forget_all()
    assert await harness.wait_until(lambda: bot.pool.spare_count == harness.SPARES)
    mine = [pid for pid in await asyncio.to_thread(_descendants, os.getpid())]
    kernels = [s for s in map(harness.read_status, mine) if len(s["NSpid"].split()) > 2]

    confined = [status for status in kernels if status["Seccomp"] == "2"]

    # Their first processes still have a workspace to mount, and run nothing of a user's.
    assert len(confined) == len(kernels) / 2 == harness.SPARES
    assert all(int(status["CapEff"], 16) == 0 for status in confined)
    assert all("0" not in status["Uid"].split() for status in kernels)


def _descendants(pid):
    found = [pid]
    for one in found:
        for task in os.listdir(f"/proc/{one}/task"):
            with open(f"/proc/{one}/task/{task}/children") as file:
                found.extend(map(int, file.read().split()))
    return found[1:]
