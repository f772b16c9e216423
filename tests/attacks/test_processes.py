"""Signals, forks, system calls and privileges."""

import asyncio
import os
import pathlib
import shutil

import pytest

from interpreter_bot import values
from interpreter_bot.wording import run_words
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
ON_X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers are of x86-64")
# Call: (expression, error). Arguments are such that, unfiltered, most would succeed.
CALLS = {
    "unshare user": ("call(272, 0x10000000)", "EPERM"),
    "unshare mounts": ("call(272, 0x20000)", "EPERM"),
    "unshare everything": ("call(272, 0x7e020000)", "EPERM"),
    "setns": ("call(308, os.open('/proc/self/ns/user', 0), 0)", "EPERM"),
    "clone user": ("call(56, 0x10000011, 0, 0, 0, 0)", "EPERM"),
    "clone pid": ("call(56, 0x20000011, 0, 0, 0, 0)", "EPERM"),
    "thread with files of its own": ("call(56, 0x10900, 0, 0, 0, 0)", "EPERM"),
    "clone3": ("call(435, b'\\0' * 88, 88)", "ENOSYS"),
    "ptrace me": ("call(101, 0, 0, 0, 0)", "EPERM"),
    "ptrace init": ("call(101, 16, 1, 0, 0)", "EPERM"),
    "process_vm_readv": ("call(310, os.getpid(), 0, 0, 0, 0, 0)", "EPERM"),
    "process_vm_writev": ("call(311, os.getpid(), 0, 0, 0, 0, 0)", "EPERM"),
    "pidfd_getfd": ("call(438, os.pidfd_open(os.getpid()), 0, 0)", "EPERM"),
    "kcmp": ("call(312, os.getpid(), os.getpid(), 1, 0, 0)", "EPERM"),
    "io_uring": ("call(425, 8, b'\\0' * 120)", "ENOSYS"),
    "bpf": ("call(321, 0, b'\\0' * 128, 128)", "EPERM"),
    "userfaultfd": ("call(323, 1)", "EPERM"),
    "perf_event_open": ("call(298, b'\\0' * 128, 0, -1, -1, 0)", "EPERM"),
    "add_key": ("call(248, b'user', b'k', b'x', 1, -3)", "EPERM"),
    "keyctl": ("call(250, 0, -3, 1)", "EPERM"),
    "request_key": ("call(249, b'user', b'k', 0, -3)", "EPERM"),
    "kexec": ("call(246, 0, 0, 0, 0)", "EPERM"),
    "kernel module": ("call(175, 0, 0, b'')", "EPERM"),
    "vmsplice": ("call(278, os.pipe()[1], 0, 0, 0)", "EPERM"),
    "modify_ldt": ("call(154, 0, b'\\0' * 16, 16)", "EPERM"),
    "personality": ("call(135, 0x40000)", "EPERM"),
    "iopl": ("call(172, 3)", "EPERM"),
    "kernel log": ("call(103, 3, b'\\0' * 100, 100)", "EPERM"),
    "swap": ("call(167, b'/tmp/x', 0)", "EPERM"),
    "reboot": ("call(169, 0xfee1dead, 672274793, 0, 0)", "EPERM"),
    "clock": ("time.clock_settime(time.CLOCK_REALTIME, 0)", "EPERM"),
    "host name": ("socket.sethostname('owned')", "EPERM"),
    "memory policy": ("call(238, 0, 0, 0)", "EPERM"),
    "move pages": ("call(279, 0, 0, 0, 0, 0, 0)", "EPERM"),
    "secret memory": ("call(447, 0)", "EPERM"),
    "fanotify": ("call(300, 0, 0)", "EPERM"),
    "quota": ("call(179, 0x800007, 0, 0, 0)", "EPERM"),
    "terminal injection": ("fcntl.ioctl(0, 0x5412, b'x')", "EPERM"),
    "terminal selection": ("fcntl.ioctl(0, 0x541C, b'x')", "EPERM"),
    "inotify": ("call(253)", "ENOSYS"),
    "inotify of today": ("call(294, 0)", "ENOSYS"),
    "directory notification": ("fcntl.fcntl(os.open('/usr', 0), 1026, 1)", "EPERM"),
    "rules of one's own": ("call(444, struct.pack('Q', 1), 8, 0)", "ENOSYS"),
    "rule": ("call(445, -1, 1, 0, 0)", "ENOSYS"),
    "rules on": ("call(446, -1, 0)", "ENOSYS"),
    "filter of one's own": ("call(317, 1, 0, FILTER)", "ENOSYS"),
    "filter of one's own, by the older call": ("call(157, 22, 2, FILTER, 0, 0)", "EPERM"),
    "futex hash": ("call(157, 78, 1, 1 << 18, 0, 0)", "EPERM"),
    "futex hash beyond 32 bits": ("call(157, 78 | 1 << 32, 1, 1 << 18, 0, 0)", "EPERM"),
    "filter on a socket": ("socket.socket(socket.AF_UNIX).setsockopt(1, 26, FILTER)", "EPERM"),
    "filter on a port": ("socket.socket(socket.AF_UNIX).setsockopt(1, 51, FILTER)", "EPERM"),
    "program on a socket": ("socket.socket(socket.AF_UNIX).setsockopt(1, 50, b'\\0' * 4)", "EPERM"),
    "program on a port": ("socket.socket(socket.AF_UNIX).setsockopt(1, 52, b'\\0' * 4)", "EPERM"),
    "lock of an open file": ("fcntl.fcntl(os.open('/usr', 0), 37, LOCK)", "EINVAL"),
    "lock of an open file, waiting": ("fcntl.fcntl(os.open('/usr', 0), 38, LOCK)", "EINVAL"),
    "look at a lock of an open file": ("fcntl.fcntl(os.open('/usr', 0), 36, LOCK)", "EINVAL"),
    "urgent byte": ("socket.socketpair()[0].send(b'x', socket.MSG_OOB)", "ENOTSUP"),
    "urgent message": ("socket.socketpair()[0].sendmsg([b'x'], [], 1)", "ENOTSUP"),
    "urgent messages": (
        "call(307, socket.socketpair()[0].fileno(), b'\\0' * 64, 1, 1)",
        "ENOTSUP",
    ),
    "splice": ("call(275, os.pipe()[0], 0, os.pipe()[1], 0, 1, 2)", "ENOSYS"),
    "tee": ("call(276, os.pipe()[0], os.pipe()[1], 1, 2)", "ENOSYS"),
    "contexts of disks": ("call(333, 0, 0, 0, 0, 0, 0)", "ENOSYS"),
    "memory of the dying": ("call(448, os.pidfd_open(os.getpid()), 0)", "EPERM"),
    "the first call nobody looked at": ("call(470, 0)", "ENOSYS"),
    "a call to come": ("call(1000)", "ENOSYS"),
    "the other table of calls": ("call(0x40000000 | 39)", "ENOSYS"),
}


@ON_X86
@pytest.mark.parametrize("name", CALLS)
async def test_system_call_is_filtered(attempt, name):
    expression, error = CALLS[name]

    assert await attempt(expression, ARGUMENTS) == error


ARGUMENTS = """
# Allows everything.
ALLOW = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
FILTER = struct.pack("HxxxxxxQ", 1, ctypes.addressof(ALLOW))
LOCK = struct.pack("hhqqi4x", 0, 0, 0, 1, 0)
"""
PRIVILEGES = {
    "user id": "os.setuid(0)",
    "saved user id": "os.setresuid(0, 0, 0)",
    "group id": "os.setgid(0)",
    "groups": "os.setgroups([0])",
    "capabilities": "call(126, struct.pack('II', 0x20080522, 0), b'\\xff' * 24)",
    "ambient capability": "call('prctl', 47, 2, 21, 0, 0)",
    "new privileges again": "call('prctl', 38, 0, 0, 0, 0)",
    "filter off": "call('prctl', 22, 0, 0, 0, 0)",
    "priority": "os.setpriority(os.PRIO_PROCESS, 0, -10)",
    "init's priority": "os.setpriority(os.PRIO_PROCESS, 1, -5)",
    "niceness": "os.nice(-1)",
    "real time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "real time disk": "call(251, 1, 0, 1 << 13)",
    "an earlier place at the disk": "call(251, 1, 0, 2 << 13)",
    "huge pages": "mmap.mmap(-1, 1 << 21, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)",
    "locked memory": "call('mlockall', 3)",
    "init's scheduler": "os.sched_setaffinity(1, {0})",
}


@ON_X86
@pytest.mark.parametrize("name", PRIVILEGES)
async def test_privilege_is_not_to_be_had(attempt, name):
    assert await attempt(PRIVILEGES[name]) in {"EPERM", "EACCES", "EINVAL", "ENOMEM"}


LIMITS = [
    *("AS", "CORE", "DATA", "FSIZE", "MEMLOCK", "MSGQUEUE", "NICE", "NOFILE", "NPROC", "RTPRIO"),
    "SIGPENDING",
]


@pytest.mark.parametrize("name", LIMITS)
async def test_limit_cannot_be_raised(run, name):
    ran = await run(
        "import resource\n"
        f"kind = resource.RLIMIT_{name}\n"
        "soft, hard = resource.getrlimit(kind)\n"
        "assert soft == hard != resource.RLIM_INFINITY\n"
        "for wanted in ((hard + 1, hard + 1), (-1, -1)):\n"
        "    try: resource.setrlimit(kind, wanted)\n"
        "    except (ValueError, PermissionError): print('refused')\n"
    )

    assert ran.text.split() == ["refused", "refused"]


async def test_session_goes_first_when_the_machine_runs_out_of_memory(bot, run, session_key):
    ran = await run(
        harness.code("""
        path = "/proc/self/oom_score_adj"
        attempt(lambda: put(path, "0"))
        print(open(path).read().strip())
        child = subprocess.Popen(["/bin/sleep", "60"])
        """)
    )

    scores = [_oom_score(pid) for pid in bot.pids(session_key())]
    assert ran.text.split() == ["EACCES" if harness.IN_CONTAINER else "EROFS", "1000"]
    assert scores == [1000] * 3, "init, kernel, child"
    assert _oom_score("self") < 1000


def _oom_score(pid):
    return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())


async def test_session_comes_after_the_bot_on_the_cores(bot, run, session_key):
    ran = await run(harness.code("print(call(252, 1, 0) if os.uname().machine == 'x86_64' else 0)"))

    nicer = os.getpriority(os.PRIO_PROCESS, bot.pids(session_key())[1])

    # 19 is the last; the tests may run with less priority themselves.
    assert nicer >= min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
    assert int(ran.word) in {0, 2 << 13 | 7}


async def test_setuid_program_gives_no_user_away(bot, run, session_key):
    workspace = await bot.pool.workspace(session_key())
    await run("1")
    # Root's, where we are root: no code could make it so, but a restored snapshot might.
    program = shutil.copy("/usr/bin/id", workspace.directory / "who")
    os.chmod(program, 0o6755)

    ran = await run("import subprocess\nprint(subprocess.check_output(['./who', '-u'], text=True))")

    kernel = harness.read_status(bot.pids(session_key())[1])
    assert ran.word == (kernel["Uid"].split()[0] if harness.IN_CONTAINER else "1000")


@ON_X86
async def test_32_bit_calls_end_the_process(run):
    ran = await run(
        harness.code("""
        child = os.fork()
        if child == 0:
            page = mmap.mmap(-1, 4096, prot=7)
            page.write(bytes.fromhex("b814000000cd80c3"))  # getpid by int 0x80
            address = ctypes.addressof(ctypes.c_char.from_buffer(page))
            os._exit(ctypes.CFUNCTYPE(ctypes.c_int)(address)() != os.getpid())
        print(os.WIFSIGNALED(os.waitpid(child, 0)[1]))
        """)
    )

    assert ran.word == "True"


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP", "SIGTERM", "SIGINT", "SIGSEGV", "SIGHUP"])
async def test_first_process_ignores_signals_from_inside(run, name):
    await run(f"import os, signal, time\nos.kill(1, signal.{name}); time.sleep(0.1)")

    assert (await run("1 + 1")).plain == "2"


async def test_killing_everything_in_sight_ends_this_session_only(bot, run):
    await run("x = 1", key="other")

    ran = await run(
        harness.code("""
        subprocess.Popen(["/bin/sleep", "60"])
        os.kill(-1, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        """)
    )

    assert ran.ending is values.Ending.CRASHED
    assert "was killed" in ran.finished.reason
    assert (await run("x", key="other")).plain == "1"


async def test_hosts_processes_are_not_to_be_seen_or_signalled(bot, run, session_key):
    await run("1")
    # Its own process it sees by the host's number where it has no other.
    pids = [os.getpid(), *bot.pids(session_key())[: 1 if harness.IN_CONTAINER else None]]

    ran = await run(
        harness.code(f"""
        for pid in {pids}:
            attempt(lambda: os.kill(pid, 0))
        attempt(lambda: " ".join(filter(str.isdigit, os.listdir("/proc"))))
        """)
    )

    *answers, seen = ran.text.splitlines()
    assert set(answers) == {"EPERM" if harness.IN_CONTAINER else "ESRCH"}
    assert seen == "allowed: 1 2" or harness.IN_CONTAINER


async def test_fork_storm_is_bounded_and_ends(bot, run, session_key):
    most = 0

    async def watch():
        nonlocal most
        while True:
            if session_key() in bot.pool.kernels:
                most = max(most, len(bot.pids(session_key())))
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    ran = await run(
        # On a busy machine a fork of the analysis stack takes a tenth of a second.
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        # Where it is the bot that looks, it competes with the storm for the processors.
        seconds=15 if harness.SHARE_ONE_ID else 6,
    )
    watching.cancel()

    if harness.SHARE_ONE_ID:
        # The kernel counts by user, so it is the bot that looks, and ends the session.
        assert ran.ending is values.Ending.STOPPED
        assert ran.finished.reason.startswith(run_words.too_many_processes(bot.limits))
        return
    assert ran.ending in {values.Ending.TIMED_OUT, values.Ending.OUT_OF_MEMORY}
    assert bot.limits.processes / 2 < most <= bot.limits.processes + 2


@pytest.mark.skipif(harness.SHARE_ONE_ID, reason="more processes end the session there")
async def test_forks_end_at_the_limit_with_an_error(bot, run):
    ran = await run(
        harness.code("""
        children = []
        try:
            while len(children) < 5000:
                child = os.fork()
                if child == 0:
                    time.sleep(60)
                    os._exit(0)
                children.append(child)
        except BlockingIOError:
            print("refused", len(children), len(os.listdir("/proc/self/task")))
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        """)
    )

    word, children, threads = ran.text.split()
    assert word == "refused"
    assert int(children) + int(threads) == bot.limits.processes


DAEMON = """
import os, time
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            {body}
            time.sleep(3600)
        os._exit(0)
    os.wait()
daemon()
"""
BODIES = {
    "plain": "pass",
    "deaf to signals": "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]",
    "stopped": "os.kill(os.getpid(), 19)",
    "of another name": "os.execv('/bin/sleep', ['kworker', '3600'])",
}


@pytest.mark.parametrize("body", BODIES)
async def test_daemon_ends_with_its_session(bot, run, session_key, body):
    await run(DAEMON.format(body=BODIES[body]))
    pids = bot.pids(session_key())
    assert len(pids) == 3, "init, kernel, daemon"

    await bot.pool.release(session_key())

    assert await harness.wait_until(lambda: not any(map(harness.is_alive, pids)))


async def test_daemon_ends_with_a_kernel_that_crashes(bot, run, session_key):
    await run(DAEMON.format(body="pass"))
    pids = bot.pids(session_key())

    ran = await run("import os; os._exit(3)")

    assert ran.ending is values.Ending.CRASHED
    assert await harness.wait_until(lambda: not any(map(harness.is_alive, pids)))


async def test_children_are_waited_for_by_nobody_but_the_code(run):
    ran = await run(
        harness.code("""
        children = []
        for number in range(40):
            child = os.fork()
            if child == 0:
                time.sleep(0.05)
                os._exit(number)
            children.append(child)
        print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
        """)
    )

    assert ran.text.split() == [str(number) for number in range(40)]
