"""The walls of the level `container`: one row a wall, refused by Landlock, user ids or the filter.

The traps of the feasibility study are named T1 to T20 where their rows are. Not here: T4 and T18,
which `test_container_doors` has, as these sessions have no doors; T10 (cutting files short) has no
old kernel to be tried on: below Landlock 3 the level is refused.

Open at this level, as docs say: which processes run and with which command lines, the container's
connections (/proc/net), whether a path exists, how large it is and when it changed, if its
directories may be passed. Where all sessions have the bot's user id also: files in /dev/shm for
those who know their names, which stay when their session ends, and how many files a process has
open.
"""

import asyncio
import ctypes
import os
import socket

import pytest
import pytest_asyncio

from tests.attacks import container_level, harness

pytestmark = [
    pytest.mark.attack,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls' numbers are of x86-64"),
]
shared_bot = container_level.shared_bot
IS_PLAIN = container_level.IS_PLAIN
LIBC = ctypes.CDLL(None)
DENIED = {"EACCES", "EPERM"}
ABSENT = {"ENOSYS"}
NO_FAMILY = {"EAFNOSUPPORT", "EPROTONOSUPPORT", "ENETUNREACH"}

# What is there to attack: {names} of `targets` below.
FILES = {
    "read another's file": "open('{workspace}/secret').read()",
    "overwrite another's file": "open('{workspace}/secret', 'w')",
    "append to another's file": "open('{workspace}/secret', 'a')",
    "cut another's file short (T10)": "os.truncate('{workspace}/secret', 1)",
    "list another's directory": "os.listdir('{workspace}')",
    "make a file in another's directory": "os.open('{workspace}/new', os.O_CREAT | os.O_WRONLY)",
    "make a directory there": "os.mkdir('{workspace}/new')",
    "make a link there": "os.symlink('/', '{workspace}/new')",
    "make a fifo there": "os.mkfifo('{workspace}/new')",
    "move a file out": "os.rename('{workspace}/secret', '/mnt/data/mine')",
    "move a file in": "os.rename('mine', '{workspace}/new')",
    "give a file a second name": "os.link('{workspace}/secret', '/mnt/data/second')",
    "delete another's file": "os.unlink('{workspace}/secret')",
    "read another's temporary file": "open('{workspace}/../temporary/secret').read()",
    "list another's saved variables": "os.listdir('{workspace}/../variables')",
    "bind a socket there": "socket.socket(socket.AF_UNIX).bind('{workspace}/socket')",
    "read the bot's data": "open('{database}').read()",
    "read a file of the bot for all": "open('{public}').read()",
    "write to the bot's data": "open('{database}', 'r+')",
    "list the bot's data": "os.listdir('{data}')",
    "list all sessions": "os.listdir('{data}/workspaces')",
    "list the bot's sockets": "os.listdir('{runtime}')",
    "up from the session's directory (T17)": "os.listdir('/proc/self/fd/900/..')",
    "up from the skills' directory": "os.listdir('/proc/self/fd/902/..')",
    "up by a descriptor": "os.open('.', os.O_RDONLY, dir_fd=os.open('..', os.O_PATH, dir_fd=900))",
    "down again": "os.open('snapshot-key', 0, dir_fd=os.open('..', os.O_PATH, dir_fd=902))",
    "write a skill": "os.open('/proc/self/fd/902/new', os.O_CREAT | os.O_WRONLY)",
    "list /tmp": "os.listdir('/tmp')",
    "write to /tmp": "open('/tmp/new', 'w')",
    "write to a system directory": "open('/usr/new', 'w')",
    "write to the environment": "open(sys.prefix + '/lib/new.pth', 'w')",
    "read passwords": "open('/etc/shadow').read()",
    "list shared memory (T19)": "os.listdir('/dev/shm')",
    "make a directory in shared memory": "os.mkdir('/dev/shm/new')",
    "zeros, which would be memory of any size": "os.open('/dev/zero', os.O_RDWR)",
    "terminals": "os.open('/dev/ptmx', os.O_RDWR)",
    "write to one's own OOM score": "put('/proc/self/oom_score_adj', '-1000')",
    "core patterns": "put('/proc/sys/kernel/core_pattern', 'x')",
}
OF_PROCESSES = {
    "memory": "open('/proc/{pid}/mem').read(1)",
    "environment": "open('/proc/{pid}/environ').read()",
    "mappings": "open('/proc/{pid}/maps').read()",
    "descriptors": "os.listdir('/proc/{pid}/fd')",
    "file by a descriptor": "open('/proc/{pid}/fd/900/secret').read()",
    "file by its directory": "open('/proc/{pid}/cwd/secret').read()",
    "saved registers": "open('/proc/{pid}/auxv', 'rb').read()",
    "mappings with sizes": "open('/proc/{pid}/smaps').read()",
    "what it reads and writes": "open('/proc/{pid}/io').read()",
    "memory of a thread": "open('/proc/{pid}/task/{pid}/mem').read(1)",
    "environment of a thread": "open('/proc/{pid}/task/{pid}/environ').read()",
    "OOM score": "put('/proc/{pid}/oom_score_adj', '1000')",
    "name": "put('/proc/{pid}/comm', 'x')",
    "referenced pages": "put('/proc/{pid}/clear_refs', '1')",
    "directory": "os.readlink('/proc/{pid}/cwd')",
    "root": "os.listdir('/proc/{pid}/root/')",
    "kill": "os.kill({pid}, 9)",
    "stop": "os.kill({pid}, signal.SIGSTOP)",
    "signal that is none": "os.kill({pid}, 0)",
    "kill its group": "os.killpg({pid}, 9)",
    "tgkill": "call(234, {pid}, {pid}, 9)",
    "tkill": "call(200, {pid}, 9)",
    "sigqueue": "call(129, {pid}, 9, bytes(128))",
    "pidfd_send_signal": "signal.pidfd_send_signal(os.pidfd_open({pid}), 9)",
    "pidfd_getfd": "call(438, os.pidfd_open({pid}), 0, 0)",
    "ptrace": "call(101, 16, {pid}, 0, 0)",
    "process_vm_readv": "call(310, {pid}, 0, 0, 0, 0, 0)",
    "kcmp": "call(312, os.getpid(), {pid}, 0, 0, 0)",
    "get_robust_list (T9)": "call(274, {pid}, bytes(8), bytes(8))",
    "prlimit (T8)": "resource.prlimit({pid}, resource.RLIMIT_NOFILE, (10, 10))",
    "read prlimit (T8)": "resource.prlimit({pid}, resource.RLIMIT_NOFILE)",
    "setpriority (T8)": "os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
    "setpriority of its group": "os.setpriority(os.PRIO_PGRP, {pid}, 19)",
    "sched_setaffinity": "os.sched_setaffinity({pid}, [0])",
    "sched_setattr": "call(314, {pid}, bytes(48), 0)",
    "ioprio_set": "call(251, 1, {pid}, 3 << 13)",
    "migrate_pages": "call(256, {pid}, 0, 0, 0)",
    "move_pages": "call(279, {pid}, 0, 0, 0, 0, 0)",
}
BEYOND = {
    "priority of all of root's processes (T8)": "os.setpriority(os.PRIO_USER, 0, 19)",
    "priority of all of the bot's user (T8)": "os.setpriority(os.PRIO_USER, {bot_uid}, 19)",
    "memory by its number (T6)": "call(30, {memory}, 0, 0)",
    "memory's description (T6)": "call(31, {memory}, 2, bytes(256))",
    "sums of shared memory (T6)": "call(31, 0, 14, bytes(256))",
    "messages by a number (T6)": "call(69, 0, bytes(64), 1, 0)",
    "sums of messages (T6)": "call(71, 0, 12, bytes(256))",
    "semaphores by a number (T6)": "call(65, 0, bytes(8), 1)",
    "new System V memory": "call(29, 0, 4096, 0o1777)",
    "new System V messages": "call(68, 0, 0o1777)",
    "POSIX messages (T7)": "call(240, b'new', os.O_CREAT | os.O_RDWR, 0o600, 0)",
    "POSIX messages removed (T7)": "call(241, b'new')",
    "a key": "call(248, b'user', b'name', b'key', 3, -4)",
    "keyrings": "call(250, 0, -4, 0)",
    "the root's id": "os.setuid(0)",
    "the root's id as another": "os.setresuid(-1, 0, -1)",
    "another session's id": "os.setuid({victim_uid})",
    "groups": "os.setgroups([0])",
    "a namespace": "call(272, 0x10000000)",
    "another root": "os.chroot('.')",
    "a mount": "call(165, b'none', b'.', b'tmpfs', 0, 0)",
    "a device": "os.mknod('node', 0o600 | stat.S_IFCHR, os.makedev(1, 1))",
    "directory notifications": "fcntl.fcntl(os.open('/usr', 0), 1026, 1)",
    "BPF": "call(321, 0, bytes(128), 128)",
}
UNKNOWN = {
    "io_uring": "call(425, 8, bytes(120))",
    "inotify": "call(294, 0)",
    "rules of one's own": "call(444, bytes(24), 24, 0)",
    "clone3": "call(435, bytes(88), 88)",
}
FAMILIES = {
    "TCP (T1, T3)": "socket.socket(socket.AF_INET)",
    "TCP 6": "socket.socket(socket.AF_INET6)",
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "multipath TCP (T2)": "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)",
    "SCTP": "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)",
    "raw": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "socket lists": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)",
    "virtual machines": "socket.socket(socket.AF_VSOCK)",
    "cryptography": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "XDP": "socket.socket(44, socket.SOCK_RAW)",
    "SMC": "socket.socket(43)",
    "datagrams to a path (T12)": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "pairs of them (T12)": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "datagrams by another name": "socket.socket(socket.AF_UNIX, socket.SOCK_RAW)",
}
CONNECTIONS = {
    "a socket for everybody (T12)": "socket.socket(socket.AF_UNIX).connect('{open_socket}')",
    "an abstract socket": "socket.socket(socket.AF_UNIX).connect('\\0{abstract}')",
    "a kernel's channel": "socket.socket(socket.AF_UNIX).connect('{channel}')",
    "its own channel": "socket.socket(socket.AF_UNIX).connect('{own_channel}')",
    "by packets": "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('{open_socket}')",
}


def rows(*tables):
    """Name each row of tables of attacks, with what may be its answer."""
    return [
        pytest.param(expression, answers, id=name)
        for table, answers in tables
        for name, expression in table.items()
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def targets(shared_bot):
    """What a session could reach for: another session, the bot, and who else is there."""
    bot, victim = shared_bot, "victim"
    # Spares come from the server that has preloaded modules; the one before it ends.
    await container_level.wait_for_spare(bot)
    text = """
    open("/mnt/data/secret", "w").write("secret")
    open(os.environ["TMPDIR"] + "/secret", "w").write("secret")
    print(os.getuid())
    """
    uid = (await bot.run(harness.code(text), key=victim)).word
    await bot.run("open('mine', 'w').close()", key="attempts")
    paths = bot.settings.paths
    workspace = (await bot.pool.workspace(victim)).directory
    keeper, kernel, *_ = bot.pids(victim)
    abstract = f"attack-{os.getpid()}"
    open_path = str(paths.data.parent / "open")
    memory = LIBC.shmget(0, ctypes.c_size_t(4096), 0o1666)
    assert memory >= 0
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as unnamed:
        for listener, address in ((named, open_path), (unnamed, f"\0{abstract}")):
            listener.bind(address)
            listener.listen()
        os.chmod(open_path, 0o777)
        yield {
            "workspace": workspace,
            "database": bot.canaries.database,
            "public": bot.canaries.public,
            "data": paths.data,
            "runtime": paths.runtime,
            "channel": container_level.find_socket_directory(bot, victim) / "k-1",
            "own_channel": container_level.find_socket_directory(bot, "attempts") / "k-1",
            "open_socket": open_path,
            "abstract": abstract,
            "memory": memory,
            "victim_uid": uid if not IS_PLAIN else 0,
            "bot_uid": os.geteuid(),
            "kernel": kernel,
            "keeper": keeper,
            "server": container_level.read_parent_pid(keeper),
            "bot": os.getpid(),
            "spare": await container_level.wait_for_spare(bot),
        }
    os.unlink(open_path)
    LIBC.shmctl(memory, 0, None)
    # Whatever was tried, they are all there.
    assert (await bot.run("open('secret').read()", key=victim)).plain == "'secret'"
    assert all(map(harness.is_alive, (keeper, kernel)))


@pytest.mark.parametrize(
    ("expression", "answers"),
    rows(
        # The second is Landlock's answer to what would be in two directories.
        (FILES, DENIED | {"EXDEV"}),
        (BEYOND, DENIED),
        (UNKNOWN, ABSENT),
        (FAMILIES, NO_FAMILY),
        (CONNECTIONS, DENIED),
    ),
)
async def test_wall_holds(attempt, targets, expression, answers):
    assert await attempt(expression.format_map(targets)) in answers


@pytest.mark.parametrize("whose", ["kernel", "keeper", "spare", "server", "bot"])
async def test_processes_of_others_are_out_of_reach(shared_bot, targets, whose):
    calls = {
        name: expression.format(pid=targets[whose])
        for name, expression in OF_PROCESSES.items()
        # As the container's first process, it has a group that means everybody.
        if targets[whose] != 1 or name != "kill its group"
    }
    if IS_PLAIN:
        del calls["descriptors"]
    text = "\n".join(f"attempt(lambda: {expression})" for expression in calls.values())

    ran = await shared_bot.run(harness.code("") + text, key="attempts")

    answers = dict(zip(calls, ran.text.split("\n"), strict=False))
    assert {name: a for name, a in answers.items() if a not in DENIED | {"ESRCH", "ENOENT"}} == {}
    assert harness.is_alive(targets[whose])


def describe(path):
    """What changes if anybody changes a file without writing to it."""
    status = os.stat(path)
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    # The last is changed with any of the others, and by flags and versions of file systems.
    owners = status.st_uid, status.st_gid
    return status.st_mode, status.st_mtime_ns, owners, attributes, status.st_ctime_ns


CHANGES = """
path = {path!r}
for change in (
    lambda: os.chmod(path, 0o777),
    lambda: call(90, path.encode(), 0o777),
    lambda: call(452, -100, path.encode(), 0o777, 0),
    lambda: os.utime(path, (1, 1)),
    lambda: os.setxattr(path, "user.attack", b"x"),
    lambda: os.chown(path, os.getuid(), os.getgid()),
    lambda: os.truncate(path, 0),
):
    try: change()
    except OSError: pass
"""


@pytest.mark.parametrize("whose", ["workspace", "database", "public"])
async def test_nothing_about_a_file_of_others_can_be_changed_by_its_path(attempt, targets, whose):
    """T16: no Landlock rule is about modes, times and attributes."""
    path = targets[whose] / "secret" if whose == "workspace" else targets[whose]
    before = describe(path)

    await attempt("0", CHANGES.format(path=str(path)))

    assert describe(path) == before


OF_READABLE = """
import fcntl
file = os.open({path!r}, os.O_RDONLY)
flags, version, more = 0x40086602, 0x40087602, 0x401C5820  # FS_IOC_SETFLAGS, …
for change in (
    lambda: os.fchmod(file, 0),
    lambda: os.fchown(file, -1, os.getgid()),
    lambda: os.chown({path!r}, os.getuid(), os.getgid()),
    lambda: fcntl.ioctl(file, flags, struct.pack("l", 0x40)),
    lambda: fcntl.ioctl(file, version, struct.pack("l", 77)),
    lambda: fcntl.ioctl(file, more, struct.pack("I", 0x80) + bytes(24)),
    lambda: os.setxattr(file, "user.attack", b"x"),
    lambda: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK),
):
    try: change()
    except OSError: pass
"""


async def test_a_file_that_all_may_read_cannot_be_closed_to_them(attempt, shared_bot):
    skill = shared_bot.settings.paths.data / "skills" / "skill.txt"
    skill.write_text("to read")
    skill.chmod(0o644)
    before = describe(skill)

    await attempt("0", OF_READABLE.format(path="/proc/self/fd/902/skill.txt"))

    assert describe(skill) == before
    # Whoever opens a file of a lease waits for its holder, or is told to come back.
    os.close(os.open(skill, os.O_RDWR | os.O_NONBLOCK))


SIGNALS = """
import fcntl
ours, theirs = socket.socketpair()
for pid in {pids}:
    for owner in (pid, -pid):
        try:
            fcntl.fcntl(ours, fcntl.F_SETOWN, owner)
            fcntl.fcntl(ours, 10, signal.SIGKILL)
            fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
            theirs.send(b"x")
        except OSError: pass
try: os.kill(-1, signal.SIGKILL)
except OSError: pass
"""


async def test_signals_to_everybody_reach_nobody_else(attempt, targets):
    """Of the readiness of a file (T11), or of one call."""
    pids = [targets[name] for name in ("kernel", "keeper", "spare", "server")]

    await attempt("0", SIGNALS.format(pids=pids))

    await asyncio.sleep(0.1)
    assert all(map(harness.is_alive, pids))


async def test_schedulers_of_others_cannot_be_set(attempt, targets):
    """T5: libzmq aborts if it is refused, so the call is said to have worked."""
    batch = "call(144, {pid}, 3, bytes(4))".format(pid=targets["kernel"])

    assert await attempt(batch) in {"allowed: 0", *DENIED}

    assert os.sched_getscheduler(targets["kernel"]) == os.SCHED_OTHER


PINS = {
    "close": "os.close(900)",
    "close beyond 32 bits (T17)": "call(3, 900 | 1 << 32)",
    "dup2": "os.dup2(0, 900)",
    "dup3": "call(292, 0, 900, 0x80000)",
    "close_range": "call(436, 3, 0xFFFFFFFF, 0)",
    "close on exec": "fcntl.fcntl(900, fcntl.F_SETFD, fcntl.FD_CLOEXEC)",
    "in a shell": "subprocess.run('exec 900<&-; ls /mnt/data/', shell=True)",
}


@pytest.mark.parametrize("how", PINS)
async def test_the_directorys_name_cannot_be_lost(shared_bot, how):
    shell = "subprocess.run(['ls', '/proc/self/fd/900/'], capture_output=True, text=True)"
    ran = await shared_bot.run(
        harness.code(f"""
        open('/proc/self/fd/900/kept', 'w').close()
        try: {PINS[how]}
        except OSError: pass
        print(os.listdir('/proc/self/fd/900'), {shell}.stdout)
        """),
        key="pins",
    )

    assert ran.text.split()[-2:] == ["['kept']", "kept"], ran


async def test_no_process_of_a_session_has_a_privilege(shared_bot, targets):
    status = harness.read_status(targets["kernel"])

    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Amb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert IS_PLAIN or "0" not in (status["Uid"] + status["Gid"]).split()


PLANTED = """
for place in ("/mnt/data", os.environ["TMPDIR"]):
    os.symlink({outside!r}, place + "/link")
    os.makedirs(place + "/below")
    os.symlink({outside!r}, place + "/below/link")
    os.symlink({outside!r} + "/canary", place + "/file")
"""


async def test_no_link_of_a_session_leads_the_bot_outside(shared_bot, tmp_path):
    """When it gives files to the next user id, reads, measures and removes them."""
    canary = tmp_path / "canary"
    canary.write_text("canary")
    before = describe(canary), describe(tmp_path)
    for _ in range(2):
        await shared_bot.run(harness.code(PLANTED.format(outside=str(tmp_path))), key="planter")
        workspace = await shared_bot.pool.workspace("planter")
        assert await workspace.list() == ()
        # The next kernel has another id.
        await shared_bot.run("import os; os._exit(1)", key="planter")
        await shared_bot.run(
            "import shutil; shutil.rmtree('below'); open('new', 'w')"
            "; import os; os.unlink('new'); os.unlink('link'); os.unlink('file')",
            key="planter",
        )
    await shared_bot.pool.forget("planter")

    assert (describe(canary), describe(tmp_path)) == before


LEFT = "left-by-an-attack"


async def test_shared_memory_can_be_used_and_is_not_left_behind(shared_bot):
    """T19: locks of `multiprocessing` need it."""
    text = f"""
    import multiprocessing
    with multiprocessing.Lock(): pass
    with open("/dev/shm/{LEFT}", "w") as file: file.write("x")
    """
    ran = await shared_bot.run(harness.code(text), key="sharer")
    assert ran.plain == "", ran
    assert LEFT in container_level.list_shared_files()

    await shared_bot.pool.forget("sharer")

    if IS_PLAIN:
        container_level.remove_shared_file(LEFT)
    assert LEFT not in container_level.list_shared_files()


async def test_what_programs_look_for_is_there(attempt):
    """T13: some end where they are denied it; T15: a change of ids closes one's own files."""
    assert (await attempt("os.listdir('/sys/fs/cgroup')")).startswith("allowed")
    assert (await attempt("open('/etc/gitconfig').close()")) in {"ENOENT", "allowed: None"}
    assert (await attempt("'PATH' in open('/proc/self/environ').read()")) == "allowed: True"


async def test_directories_above_may_be_closed_to_sessions(shared_bot):
    """T14: rules are made and directories opened before the kernel has its own id."""
    data = shared_bot.settings.paths.data
    data.chmod(0o700)
    try:
        ran = await shared_bot.run("open('/proc/self/fd/900/new', 'w').write('x')", key="closed")
    finally:
        data.chmod(0o755)

    assert ran.plain == "1", ran
