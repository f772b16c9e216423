"""Reading the host's files, and writing where only the host may."""

import glob
import os
import pathlib
import sys

import pydantic
import pytest

import interpreter_bot
from interpreter_bot.guest import rootfs
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
PREFIX = os.path.realpath(os.path.join(sys.prefix, "kernels"))
CREATE = "os.O_WRONLY | os.O_CREAT"
TARGETS = {
    "a file that all the host may read": lambda bot: bot.canaries.public,
    "the bot's database": lambda bot: bot.canaries.database,
    "the bot's sockets": lambda bot: _first(bot.settings.paths.runtime.rglob("k-1")),
    "the bot's source": lambda _: pathlib.Path(interpreter_bot.__file__),
    "the bot's libraries": lambda _: pathlib.Path(pydantic.__file__),
    "the tests": lambda _: pathlib.Path(__file__),
    "the bot's environment": lambda _: pathlib.Path(f"/proc/{os.getpid()}/environ"),
    "password hashes": lambda _: pathlib.Path("/etc/shadow"),
    "the host's process list": lambda _: pathlib.Path("/sys/fs/cgroup"),
}
ROUTES = {
    "its own path": "{path}",
    "dots": "/mnt/data/../../../../..{path}",
    "own root": "/proc/self/root{path}",
    "init's root": "/proc/1/root{path}",
    "init's directory": "/proc/1/cwd/../../..{path}",
    "own directory": "/proc/self/cwd/../..{path}",
    "a thread's root": "/proc/thread-self/root{path}",
    "an open directory": "/proc/self/fd/{{descriptor}}/../../..{path}",
    "a symlink": "/mnt/data/link",
}
READ = """
def read(path):
    descriptor = os.open("/mnt/data", os.O_RDONLY)
    path = path.format(descriptor=descriptor)
    return os.listdir(path) if os.path.isdir(path) else os.read(os.open(path, os.O_RDONLY), 100)
"""

TRY = """
for path, way in {tries}:
    if os.path.lexists("/mnt/data/link"):
        os.unlink("/mnt/data/link")
    os.symlink(path, "/mnt/data/link")
    attempt(lambda: read(way))
"""


def _first(paths):
    return next(iter(paths))


@pytest.mark.parametrize("route", ROUTES)
async def test_host_files_cannot_be_read(bot, run, route):
    await run("'now there is a kernel, with sockets'")
    paths = {target: find(bot) for target, find in TARGETS.items()}
    if harness.IN_CONTAINER:
        # It shows its own to everybody in it.
        del paths["the host's process list"]
    assert all(path.exists() for path in paths.values()), "what is not there proves nothing"
    tries = [(str(path), ROUTES[route].format(path=path)) for path in paths.values()]

    ran = await run(harness.code(READ) + TRY.format(tries=tries))

    refusals = dict(zip(paths, ran.text.splitlines(), strict=True))
    assert {t: r for t, r in refusals.items() if r not in harness.REFUSED | harness.MISSING} == {}
    assert bot.canaries.word not in ran.plain


async def test_walk_through_everything_visible_meets_no_secret(bot, run):
    # In a container nobody may list the root directory, and some of what is below may be listed.
    tops = ["/mnt/data/", *filter(os.path.isdir, glob.glob("/*")), *glob.glob("/etc/*/")]
    tops += map(str, (bot.settings.paths.data, bot.settings.paths.runtime))
    tops = tops if harness.IN_CONTAINER else ["/"]
    ran = await run(
        harness.code(f"""
        pattern = re.compile({harness.CANARY_PATTERN!r}.encode())
        put("/mnt/data/planted", "cnry" + "0" * 32, os.O_WRONLY | os.O_CREAT)
        known = ("/usr", "/proc", sys.prefix, sys.base_prefix)
        for folder, folders, files in (found for top in {tops} for found in os.walk(top)):
            folders[:] = [f for f in folders if os.path.join(folder, f) not in known]
            for name in files:
                path = os.path.join(folder, name)
                # What Landlock closes can be seen, and not be read.
                if os.path.isfile(path) and path != {rootfs.CANARY!r}:
                    try:
                        with open(path, "rb") as file:
                            if pattern.search(file.read(1 << 20)):
                                print(path)
                    except OSError:
                        assert {harness.IN_CONTAINER}, path
        """)
    )

    assert ran.text.split() == ["/mnt/data/planted"]


async def test_root_holds_only_what_is_on_the_list(run):
    ran = await run("import os, sys; print(*os.listdir('/'))")

    prefixes = {pathlib.Path(path).parts[1] for path in (sys.prefix, sys.base_prefix)}
    listed = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "dev", "proc", "sys"}
    listed |= {"tmp", "mnt", "opt", "run", "skills", "var", ".host"}
    assert set(ran.text.split()) <= listed | prefixes


async def test_parents_of_the_environment_show_nothing_else(run):
    ran = await run(
        "import os, pathlib, sys\n"
        "for prefix in (sys.prefix, sys.base_prefix):\n"
        "    for parent in list(pathlib.Path(prefix).parents)[:-1]:\n"
        "        if not str(parent).startswith('/usr'): print(parent, *os.listdir(parent))\n"
    )

    for line in ran.text.splitlines():
        parent, *names = line.split()
        below = {
            pathlib.Path(path).relative_to(parent).parts[0]
            for path in (PREFIX, sys.base_prefix)
            if pathlib.Path(path).is_relative_to(parent)
        }
        # An environment below /tmp shares it with what every session has there.
        own = {"home"} if parent == "/tmp" else set()
        assert set(names) == below | own


WRITES = {
    "the root": f"put('/planted', 'x', {CREATE})",
    "/etc": f"put('/etc/planted', 'x', {CREATE})",
    "the users": "put('/etc/passwd', 'x')",
    "the resolver": "put('/etc/resolv.conf', 'x')",
    "/usr": f"put('/usr/planted', 'x', {CREATE})",
    "programs": f"put('/usr/local/bin/planted', 'x', {CREATE})",
    "/dev": f"put('/dev/planted', 'x', {CREATE})",
    "/run": f"put('/run/planted', 'x', {CREATE})",
    "/var/tmp": f"put('/var/tmp/planted', 'x', {CREATE})",
    "/mnt": f"put('/mnt/planted', 'x', {CREATE})",
    "/sys": f"put('/sys/planted', 'x', {CREATE})",
    "the set-up's directory": f"put('/.host/planted', 'x', {CREATE})",
    "the environment": f"put(sys.prefix + '/planted.pth', 'x', {CREATE})",
    "the interpreter": f"put(sys.base_prefix + '/planted', 'x', {CREATE})",
    "the standard library": "put(os.__file__, 'x')",
    "a library's name": "os.rename(os.__file__, os.__file__ + 'x')",
    "modes": "os.chmod('/usr/bin', 0o777)",
    "owners": "os.chown('/usr', 1000, 1000)",
    "times": "os.utime('/usr')",
    "the core pattern": "put('/proc/sys/kernel/core_pattern', '|/bin/sh')",
    "the host's name": "put('/proc/sys/kernel/hostname', 'x')",
    "memory's overcommitment": "put('/proc/sys/vm/overcommit_memory', '1')",
    "the number of namespaces": "put('/proc/sys/user/max_user_namespaces', '99')",
    "its own user map": "put('/proc/self/uid_map', '0 0 1')",
    "init's user map": "put('/proc/1/uid_map', '0 0 1')",
    "init's memory score": "put('/proc/1/oom_score_adj', '1000')",
    "its own memory score": "put('/proc/self/oom_score_adj', '-1000')",
    "what /proc says of memory": "put('/proc/meminfo', 'x')",
}


@pytest.mark.parametrize("place", WRITES)
async def test_nothing_outside_the_workspace_can_be_written(attempt, place):
    if harness.SHARE_ONE_ID and place in ("modes", "owners", "times"):
        # Accepted, so that copies succeed, and left undone.
        before = os.stat("/usr"), os.stat("/usr/bin")
        assert await attempt(WRITES[place]) == "allowed: None"
        assert (os.stat("/usr"), os.stat("/usr/bin")) == before
        return
    is_elsewhere = harness.IN_CONTAINER and "/.host" in WRITES[place]
    assert await attempt(WRITES[place]) in (harness.MISSING if is_elsewhere else harness.REFUSED)


MOUNTS = {
    "remount the root writable": "call('mount', None, b'/', None, 32 | 4096, None)",
    "remount /usr writable": "call('mount', None, b'/usr', None, 32 | 4096, None)",
    "mount a file system": "call('mount', b't', b'/tmp', b'tmpfs', 0, None)",
    "mount /proc": "call('mount', b'p', b'/tmp', b'proc', 0, None)",
    "bind": "call('mount', b'/', b'/tmp', None, 4096, None)",
    "unmount the mask of /proc": "call('umount2', b'/proc/meminfo', 2)",
    "unmount the workspace": "call('umount2', b'/mnt/data', 2)",
    "chroot": "os.chroot('/tmp')",
    "pivot_root": "call(155, b'/tmp', b'/tmp')",
    "open_tree": "call(428, -100, b'/', 1)",
    "fsopen": "call(430, b'tmpfs', 0)",
    "mount_setattr": "call(442, -100, b'/', 0, b'\\0' * 32, 32)",
    "a handle of a file": "call(303, -100, b'/', b'\\0' * 256, b'\\0' * 8, 0)",
    "a handle to open": "call(304, os.open('/usr', 0), b'\\0' * 256, 0)",
    "a character device": "os.mknod('/tmp/mem', 0o600 | stat.S_IFCHR, os.makedev(1, 1))",
    "a block device": "os.mknod('/mnt/data/disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))",
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls' numbers are of x86-64")
@pytest.mark.parametrize("way", MOUNTS)
async def test_mounts_cannot_be_changed(attempt, way):
    assert await attempt(MOUNTS[way]) == "EPERM"


async def test_no_device_but_the_harmless_ones_is_there(run):
    ran = await run(
        "import os\nfor f, _, names in os.walk('/dev'): print(*(os.path.join(f, n) for n in names))"
    )

    harmless = {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr"}
    assert set(ran.text.split()) <= {f"/dev/{name}" for name in harmless}


@pytest.mark.namespaces
async def test_whatever_is_writable_honours_neither_setuid_nor_devices(run):
    ran = await run(
        harness.code("""
        for line in open("/proc/self/mountinfo"):
            path = line.split()[4]
            flags = os.statvfs(path).f_flag
            if os.path.isdir(path) and not flags & os.ST_RDONLY:
                print(path, bool(flags & os.ST_NOSUID), bool(flags & os.ST_NODEV))
        """)
    )

    writable = {line.split()[0]: line.split()[1:] for line in ran.text.splitlines()}
    assert set(writable) == {"/mnt/data", "/tmp", "/dev/shm", "/var/lib/variables"}
    assert all(flags == ["True", "True"] for flags in writable.values())


async def test_hard_link_takes_no_file_out_of_a_read_only_tree(attempt):
    assert await attempt("os.link('/etc/passwd', '/mnt/data/passwd')") in {"EXDEV", "EPERM"}


def kernel_settings():
    names = ("kernel/core_pattern", "kernel/hostname", "vm/overcommit_memory")
    return {name: pathlib.Path("/proc/sys", name).read_text() for name in names}


async def test_host_settings_are_as_they_were(run):
    before = kernel_settings()

    await run(
        harness.code(f"for name in {list(before)}: attempt(lambda: put('/proc/sys/' + name, 'x'))")
    )

    assert kernel_settings() == before
