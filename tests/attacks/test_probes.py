"""What people published as probes of hosted interpreters: each reports the configured limits."""

import json
import os
import re

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels.provisioning import start_parameters
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
Ending = values.Ending
ALLOCATE = """
held = []
try:
    while True:
        held.append(b"x" * 100_000_000)
        print(len(held) * 100, "MB")
except MemoryError:
    print("MemoryError")
"""


async def test_allocating_until_memory_error_finds_the_limit(short_path):
    # Steps of 100 MB are too coarse for the small limit of the other attacks.
    async with harness.Bot.open(short_path, settings.Limits(), preload=(), spares=0) as bot:
        ran = await bot.run(ALLOCATE, key="x", seconds=30)
        after = await bot.run("del held\nsum(1 for _ in 'abc')", key="x")

    *steps, last = ran.text.splitlines()
    assert ran.ending is Ending.OK
    assert last == "MemoryError"
    reached = int(steps[-1].split()[0]) * 1_000_000
    assert abs(reached - bot.limits.memory_bytes) <= bot.limits.memory_bytes / 10
    assert after.plain == "3", "what was kept is gone, the kernel is not"


@pytest.mark.namespaces
async def test_memory_of_the_machine_is_that_of_the_session(bot, run):
    ran = await run("import psutil; print(psutil.virtual_memory().total)")

    assert ran.word == str(bot.limits.memory_bytes)


@pytest.mark.namespaces
async def test_free_says_the_same(bot, run):
    ran = await run("print(open('/proc/meminfo').readline())")

    assert ran.text.split() == ["MemTotal:", str(bot.limits.memory_bytes // 1024), "kB"]


async def test_address_space_is_limited_as_configured(bot, run):
    ran = await run("import resource; print(*resource.getrlimit(resource.RLIMIT_AS))")

    expected = bot.limits.address_space_bytes
    assert ran.text.split() == [str(expected)] * 2


LIMITS = {
    "NPROC": lambda limits: limits.processes,
    "NOFILE": lambda _: start_parameters.MAX_OPEN_FILES,
    "FSIZE": lambda limits: limits.file_bytes,
    # What keeps a crash from starting a handler of the host's, which 0 does not.
    "CORE": lambda _: 1,
    "NICE": lambda _: 0,
    "RTPRIO": lambda _: 0,
    "SIGPENDING": lambda _: 1024,
}


@pytest.mark.parametrize("name", LIMITS)
async def test_resource_limit_is_reported_as_configured(bot, run, name):
    ran = await run(f"import resource; print(*resource.getrlimit(resource.RLIMIT_{name}))")

    expected = LIMITS[name](bot.limits)
    if name == "NPROC" and harness.SHARE_ONE_ID:
        # Of all sessions together, as the kernel counts by user.
        expected *= 16
    assert ran.text.split() == [str(expected)] * 2


async def test_stacks_grow_as_usual_and_a_little_deeper(run):
    ran = await run("import resource; print(*resource.getrlimit(resource.RLIMIT_STACK))")

    assert ran.text.split() == [str(8 * harness.MIB), str(64 * harness.MIB)]


async def test_cores_that_can_be_used_are_those_configured(bot, run):
    ran = await run(
        harness.code("""
        import multiprocessing
        def burn(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end: pass
            return sum(os.times()[:2])
        start = time.monotonic()
        with multiprocessing.get_context("fork").Pool(4) as pool:
            used = sum(pool.map(burn, [1.5] * 4, chunksize=1))
        print(used / (time.monotonic() - start))
        """)
    )

    cores = min(bot.limits.cpu_cores, len(os.sched_getaffinity(0)))
    # Less where the machine is shared, as everything else comes first; never more.
    assert 0.01 * cores <= float(ran.word) <= 1.25 * cores


async def test_core_count_is_no_more_than_the_share_rounded_up(bot, run):
    ran = await run(
        "import multiprocessing, os, psutil\nprint(os.cpu_count(), multiprocessing.cpu_count())"
    )

    most = max(1, -(-bot.limits.cpu_cores // 1))
    assert {int(word) for word in ran.text.split()} == {most}


async def test_loop_that_prints_each_second_is_stopped_at_the_wall_time(bot, run):
    ran = await run(
        "import itertools, time\n"
        "for second in itertools.count(): print(second, flush=True); time.sleep(1)",
        seconds=2.5,
    )

    assert ran.ending is Ending.TIMED_OUT
    # Half a second before the next; the third comes late on a busy machine.
    assert ran.text.split() in (["0"], ["0", "1"], ["0", "1", "2"])
    assert ran.finished.seconds >= 2.5
    assert not ran.finished.kernel_lost


@pytest.mark.any_user
async def test_installed_packages_can_be_listed(run):
    ran = await run(
        "import importlib.metadata as m\n"
        "print(*{d.metadata['Name'].lower() for d in m.distributions()})"
    )

    assert {"numpy", "pandas", "matplotlib", "ipykernel"} <= set(ran.text.split())


@pytest.mark.any_user
async def test_pip_lists_packages_too(run):
    ran = await run("!pip list --format=freeze --disable-pip-version-check", seconds=30)

    assert re.search(r"^pandas==\d", ran.text, re.MULTILINE), ran.plain


# However code tries to install what is not there.
INSTALL = {
    "pip": "!pip install --index-url http://127.0.0.1:9/simple surely-not-there",
    "pip for a user": "!pip install -q --user surely-not-there pandas",
    "pip from an address": "!pip install http://127.0.0.1:9/there-1.0-py3-none-any.whl",
    "pip of a program": "subprocess.run([sys.executable, '-m', 'pip', 'install', 'not-there'])",
    "pip magic": "%pip install surely-not-there",
    "uv": "!uv pip install surely-not-there",
    "uv magic": "%uv pip install surely-not-there",
    "conda": "!conda install -y surely-not-there",
    "conda magic": "%conda install surely-not-there",
}


@pytest.mark.any_user
@pytest.mark.parametrize("way", INSTALL)
async def test_installing_says_at_once_that_there_is_no_network(run, way):
    ran = await run("import subprocess, sys\n" + INSTALL[way], seconds=20)

    assert ran.ending is Ending.OK
    *others, line = ran.text.splitlines()
    assert others == [] or way == "pip from an address"
    assert line.startswith("ERROR: There is no network here, so nothing can be installed;")
    assert ", openpyxl, " in line


@pytest.mark.slow
@pytest.mark.any_user
async def test_programs_see_that_nothing_was_installed(run):
    ran = await run(
        "import subprocess, sys\n"
        "for words in (['pip', 'install', 'not-there'], ['uv', 'pip', 'install', 'x']):\n"
        "    print(subprocess.run(words, stderr=subprocess.DEVNULL).returncode)"
    )

    assert ran.text.split() == ["1", "1"]


@pytest.mark.slow
@pytest.mark.any_user
async def test_what_pip_can_do_without_a_network_it_does(run):
    ran = await run(
        harness.code("""
        import zipfile
        with zipfile.ZipFile("/mnt/data/sent-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("sent.py", "answer = 42")
            wheel.writestr("sent-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: sent\\n"
                "Version: 1.0\\n")
            wheel.writestr("sent-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\n"
                "Root-Is-Purelib: true\\nTag: py3-none-any\\n")
            wheel.writestr("sent-1.0.dist-info/RECORD", "")
        pip = [sys.executable, "-m", "pip"]
        subprocess.check_call([*pip, "install", "-q", "--target", "/mnt/data/own",
            "/mnt/data/sent-1.0-py3-none-any.whl"])
        sys.path.append("/mnt/data/own")
        import sent
        print(sent.answer)
        print(subprocess.check_output([*pip, "install", "numpy"], text=True).split(":")[0])
        """),
        seconds=60,
    )

    assert ran.text.splitlines() == ["42", "Requirement already satisfied"]


async def test_opening_a_socket_to_the_world_is_refused_at_once(run):
    # There is no way to anywhere (`test_network`), so nothing has to be tried that could arrive.
    ran = await run(
        harness.code(
            "start = time.monotonic()\n"
            "attempt(lambda: socket.create_connection(('127.0.0.1', 9), 5))\n"
            "print(time.monotonic() - start < 5)"
        )
    )

    refusal = "ENETUNREACH" if harness.IN_CONTAINER else "ECONNREFUSED"
    assert ran.text.split() == [refusal, "True"]


async def test_fork_works(run):
    ran = await run(
        "import os\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )

    # And no word of the kernel's own threads, of which newer Pythons warn.
    assert ran.text == "7\n"


@pytest.mark.namespaces
async def test_users_are_those_of_the_sandbox(run):
    ran = await run("print(*(line.split(':')[0] for line in open('/etc/passwd')))\n!id -un")

    assert ran.text.split() == ["root", "sandbox", "nobody", "sandbox"]


@pytest.mark.namespaces
async def test_machine_has_a_name_that_says_nothing(run):
    ran = await run("import platform, socket; print(platform.node(), socket.gethostname())")

    assert ran.text.split() == ["sandbox", "sandbox"]


@pytest.mark.namespaces
async def test_processes_are_the_sessions_own(run):
    ran = await run(
        "import json, psutil\nprint(json.dumps([p.pid for p in psutil.process_iter()]))"
    )

    assert json.loads(ran.text) == [1, 2]


async def test_everything_about_the_process_can_be_asked_without_harm(run):
    ran = await run(
        harness.code("""
        for folder, _, names in os.walk("/proc/self"):
            if folder.count("/") > 3 or "task" in folder: continue
            for name in names:
                try:
                    descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
                    os.read(descriptor, 1000)
                except OSError:
                    continue
                os.close(descriptor)
        print("done")
        """)
    )

    assert ran.text.endswith("done\n")
    assert (await run("1 + 1")).plain == "2"
