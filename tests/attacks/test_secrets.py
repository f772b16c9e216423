"""What a kernel could know of the bot: environment, descriptors, memory, other processes."""

import asyncio
import json
import os
import pathlib

import pytest

from interpreter_bot import settings
from interpreter_bot.guest import seccomp
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
SCAN = f"""
pattern = re.compile({harness.CANARY_PATTERN!r}.encode())
def scan(pid):
    found = set()
    with open(f"/proc/{{pid}}/maps") as maps, open(f"/proc/{{pid}}/mem", "rb", 0) as memory:
        for line in maps:
            start, end = (int(x, 16) for x in line.split()[0].split("-"))
            if "r" not in line.split()[1] or end - start > 1 << 28 or "[v" in line:
                continue
            memory.seek(start)
            try:
                found.update(pattern.findall(memory.read(end - start)))
            except OSError:
                pass
    return len(found)
"""
DESCRIPTORS = """
import json, os
seen = []
for name in os.listdir("/proc/self/fd"):
    try:
        status = os.fstat(int(name))
        target = os.readlink("/proc/self/fd/" + name)
    except OSError:
        continue
    seen.append((target, status.st_dev, status.st_ino))
print(json.dumps(seen))
"""
LIST_DESCRIPTORS = """
import os
for number in range(1024):
    try:
        os.fstat(number)
    except OSError:
        continue
    print(number)
"""
# The allow-list, and what libraries add by themselves.
VARIABLES = {
    *("PATH", "HOME", "LANG", "TZ", "MPLBACKEND", "MPLCONFIGDIR", "PYTHONSAFEPATH"),
    *("PYTHONDONTWRITEBYTECODE", "ARROW_DEFAULT_MEMORY_POOL", "OMP_NUM_THREADS"),
    *("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
    *("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TERM", "CLICOLOR", "FORCE_COLOR"),
    *("PIP_DISABLE_PIP_VERSION_CHECK", "PIP_NO_INDEX", "PIP_NO_INPUT", "PIP_PYTHON"),
    *("PIP_RETRIES", "UV_OFFLINE", "CONDA_OFFLINE", "PWD", "TMPDIR"),
    *("CLICOLOR_FORCE", "PAGER", "GIT_PAGER", "BOKEH_RESOURCES", "PLOTLY_RENDERER"),
}


async def test_environment_holds_the_allow_list_only(bot, run):
    ran = await run("import json, os; print(json.dumps(dict(os.environ)))")

    assert set(json.loads(ran.text)) <= VARIABLES
    assert bot.canaries.word not in ran.plain


@pytest.mark.parametrize("name", ["environ", "cmdline", "auxv", "maps", "stat", "comm"])
async def test_no_process_in_sight_tells_of_the_bot(bot, run, name):
    ran = await run(
        harness.code(f"""
        # In a container nobody may list them.
        for pid in range(1, os.getpid() + 50):
            try:
                print(open(f"/proc/{{pid}}/{name}", "rb").read().decode(errors="replace"))
            except FileNotFoundError:
                pass
            except PermissionError:
                print("refused")
        """)
    )

    assert ran.text.strip()
    assert bot.canaries.word not in ran.plain
    assert str(bot.settings.paths.data) not in ran.plain


FIRST_PROCESS = {
    "environment": "open('/proc/1/environ').read()",
    "memory": "open('/proc/1/mem', 'rb').read(1)",
    "map": "open('/proc/1/maps').read()",
    "descriptors": "os.listdir('/proc/1/fd')",
    "program": "os.readlink('/proc/1/exe')",
    "directory": "os.readlink('/proc/1/cwd')",
    "root": "os.listdir('/proc/1/root')",
    "kernel stack": "open('/proc/1/stack').read()",
    "namespaces": "os.readlink('/proc/1/ns/mnt')",
    "a write into its memory": "put('/proc/1/mem', 'x')",
}


@pytest.mark.parametrize("what", FIRST_PROCESS)
async def test_first_process_keeps_itself_to_itself(attempt, what):
    if harness.SHARE_ONE_ID and what == "descriptors":
        pytest.skip("it is these tests, which are no bot that forbids to be looked at")
    assert await attempt(FIRST_PROCESS[what]) in {"EACCES", "EPERM"}


async def test_no_descriptor_of_the_bot_is_inherited(bot, run, files):
    ran = await run(DESCRIPTORS)

    seen = json.loads(ran.text)
    ours = {
        (s.st_dev, s.st_ino) for s in map(os.stat, (bot.canaries.public, bot.canaries.database))
    }
    assert not ours & {(device, inode) for _, device, inode in seen}
    kinds = {target.split(":")[0] for target, _, _ in seen}
    # A container has no mounts, so a session holds its directories open.
    own = (await files()).directory.parent
    shared = [bot.settings.paths.data / "skills", *bot.settings.paths.runtime.glob("*/tools-*")]
    kinds -= {f"{own}/data", f"{own}/temporary", f"{own}/variables", *map(str, shared)}
    assert kinds <= {"/dev/null", "pipe", "socket", "anon_inode"}


async def test_child_programs_inherit_standard_streams_only(run):
    ran = await run(
        "import subprocess, sys\n"
        f"code = {LIST_DESCRIPTORS!r}\n"
        "print(subprocess.check_output([sys.executable, '-c', code], close_fds=False, text=True))"
    )

    own_directories = seccomp.PINNED_DESCRIPTORS if harness.IN_CONTAINER else ()
    assert [int(word) for word in ran.text.split()] == [0, 1, 2, *own_directories]


async def test_memory_holds_no_secret_of_the_bot(run):
    ran = await run(
        harness.code(SCAN + 'planted = "cnry" + "0" * 32\nprint(scan("self"))\n'),
    )

    assert ran.word == "1", "what the code planted itself, and nothing else"


async def test_session_key_is_of_no_use_in_another_session(run):
    keys = {
        (await run("print(get_ipython().kernel.session.key.hex())", key=key)).word for key in "ab"
    }

    assert len(keys) == 2
    assert all(len(key) >= 64 for key in keys)


async def test_no_connection_file_is_there(run):
    ran = await run(
        "import glob, sys\n"
        "found = glob.glob('/tmp/**/*.json', recursive=True, include_hidden=True)\n"
        "found = [path for path in found if not path.startswith(sys.prefix)]\n"
        "print(found, glob.glob('/run/**', recursive=True))"
    )

    assert ran.word == "[] ['/run/']"


HIDDEN = (
    *("buddyinfo", "cmdline", "config.gz", "diskstats", "interrupts", "iomem", "ioports"),
    *("kallsyms", "key-users", "keys", "locks", "modules", "partitions", "schedstat", "softirqs"),
    *("swaps", "timer_list", "timer_stats", "zoneinfo", "acpi", "asound", "driver", "pressure"),
    "scsi",
)


@pytest.mark.namespaces
async def test_hosts_affairs_are_not_told_by_proc(run):
    ran = await run(
        harness.code(f"""
        import json
        told = dict()
        for name in {HIDDEN}:
            path = "/proc/" + name
            try:
                if os.path.isdir(path):
                    told[name] = os.listdir(path)
                elif os.path.exists(path):
                    told[name] = open(path, "rb").read(100).decode(errors="replace")
            except PermissionError:
                told[name] = ""
        print(json.dumps(told))
        """)
    )

    told = json.loads(ran.text)
    assert {name: shown for name, shown in told.items() if shown} == {}
    assert "cmdline" in told


@pytest.mark.namespaces
@pytest.mark.parametrize("name", ["loadavg", "vmstat", "sys/kernel/random/boot_id"])
async def test_what_libraries_read_of_the_host_is_there_and_not_its_own(run, name):
    ran = await run(f"print(open('/proc/{name}').read())")

    assert ran.word
    assert ran.word != (await asyncio.to_thread(pathlib.Path(f"/proc/{name}").read_text)).strip()


@pytest.mark.namespaces
async def test_boot_is_another_for_each_session(run):
    read = "print(open('/proc/sys/kernel/random/boot_id').read())"

    assert (await run(read, key="a")).word != (await run(read, key="b")).word


@pytest.mark.namespaces
async def test_libraries_that_ask_for_the_machine_get_answers(run):
    ran = await run(
        "import os, psutil\n"
        "print(len(os.getloadavg()), psutil.swap_memory().sin, psutil.disk_io_counters())\n"
        "print(psutil.cpu_percent() >= 0, psutil.boot_time() > 0, psutil.pids())"
    )

    assert ran.text.splitlines() == ["3 0 None", "True True [1, 2]"]


async def test_control_groups_do_not_name_the_bot(run):
    ran = await run("print(open('/proc/self/cgroup').read())")

    assert {line.split(":")[2] for line in ran.text.split()} == {"/"}


async def test_nothing_in_the_process_names_the_place_of_the_bot(bot, run):
    """But its environment, which is that of the kernel, too, and files that are mounted."""
    ran = await run(
        harness.code("""
        import gc, json
        own = lambda line: line.split()[4] in ("/mnt/data", "/var/lib/variables", "/skills")
        told = [open("/proc/self/cmdline").read()]
        attempt(lambda: told.append(open("/proc/1/cmdline").read()))
        told += [*sys.argv, *sys.orig_argv, *sys.path, *os.environ.values()]
        files = [str(getattr(module, "__file__", "")) for module in list(sys.modules.values())]
        files += [one.__code__.co_filename for one in gc.get_objects() if hasattr(one, "__code__")]
        # Directories, as the names of all files are more than is shown.
        told += map(os.path.dirname, files)
        told += [line for line in open("/proc/self/mountinfo") if not own(line)]
        print(json.dumps(sorted(set(told))))
        """)
    )

    package = pathlib.Path(settings.__file__).parent
    places = {str(package), str(bot.settings.paths.data), str(bot.settings.paths.runtime)}
    told = json.loads(ran.text.splitlines()[-1])
    assert {text for text in told if any(place in text for place in places)} == set()


@pytest.mark.namespaces
async def test_mounts_show_no_other_sessions_directory(bot, run, session_key):
    for key in "ab":
        await run("1", key=key)

    ran = await run("print(open('/proc/self/mountinfo').read())", key="a")

    workspaces = str(bot.settings.paths.data / "workspaces")
    own = (await bot.pool.workspace(session_key("a"))).directory.parent
    assert ran.text.count(workspaces) == ran.text.count(f"{own}/") == 2
