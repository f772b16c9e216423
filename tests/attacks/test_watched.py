"""What is bounded by looking: held where nobody looked, and what only looks like that."""

import asyncio
import os
import pathlib

import pytest

from interpreter_bot import values
from interpreter_bot.wording import run_words
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
Ending = values.Ending
MIB = harness.MIB


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the call's number is of x86-64")
async def test_memory_of_processes_whose_first_thread_ended_counts(run):
    ran = await run(
        harness.code("""
        def hold():
            x = bytearray(os.urandom(1 << 20)) * 120
            time.sleep(60)
        for _ in range(8):
            if os.fork() == 0:
                threading.Thread(target=hold).start()
                time.sleep(0.1)
                call("syscall", 60, 0)
        """)
        + harness.UNTIL_KILLED,
        seconds=25,
    )

    # A control group kills whoever asks for too much; the bot ends the session.
    partly = run_words.partly_out_of_memory(harness.LIMITS.memory_bytes)
    assert ran.ending is Ending.OUT_OF_MEMORY or partly in ran.notices


async def test_memory_that_nobody_maps_and_huge_pages_are_not_to_be_had(attempt):
    mapped = "mmap.mmap(-1, 1 << 21, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x40000)"
    assert await attempt(mapped) == "ENOMEM"
    assert await attempt("os.memfd_create('x')") == "ENOSYS"
    assert await attempt("call('shmget', 0, 4096, 0o1666)") == "EPERM"


async def test_memory_of_zeros_is_read_and_never_mapped(attempt):
    if harness.IN_CONTAINER:
        assert await attempt("os.open('/dev/zero', os.O_RDONLY)") == "EACCES"
        return
    opened = "os.open('/dev/zero', os.O_RDWR)"
    assert await attempt(f"set(os.read({opened}, 1 << 20))") == "allowed: {0}"
    for kind in ("MAP_SHARED", "MAP_PRIVATE"):
        assert await attempt(f"mmap.mmap({opened}, 4096, mmap.{kind})") == "ENODEV"


async def test_a_process_that_hides_counts_in_full(run):
    ran = await run(
        harness.code("""
        if os.fork() == 0:
            call("prctl", 4, 0, 0, 0, 0)
            time.sleep(60)
        time.sleep(3)
        """)
    )
    assert ran.ending is Ending.OK

    ran = await run(
        harness.code("""
        call("prctl", 4, 0, 0, 0, 0)
        for _ in range(8):
            if os.fork() == 0:
                x = bytearray(os.urandom(1 << 20)) * 120
                time.sleep(60)
        """)
        + harness.UNTIL_KILLED,
        seconds=25,
    )
    partly = run_words.partly_out_of_memory(harness.LIMITS.memory_bytes)
    assert ran.ending is Ending.OUT_OF_MEMORY or partly in ran.notices


HARMLESS = {
    "a child that nobody waited for": "subprocess.Popen(['/bin/true']); time.sleep(3)",
    "many children": """
        for _ in range(50):
            if os.fork() == 0: time.sleep(60)
        time.sleep(3)
    """,
    "children that share what they inherit": """
        x = bytearray(os.urandom(1 << 20)) * 200
        for _ in range(8):
            if os.fork() == 0: sum(x[::4096]); time.sleep(60)
        time.sleep(3)
    """,
    "a shared file in memory": """
        with open("/dev/shm/x", "wb", 0) as file: file.write(bytes(31 << 20))
        x = bytearray(os.urandom(1 << 20)) * 400
        with open("/dev/shm/x", "r+b") as file: shared = mmap.mmap(file.fileno(), 0)
        for _ in range(8):
            if os.fork() == 0: sum(shared[::4096]); time.sleep(60)
        sum(shared[::4096])
        time.sleep(3)
    """,
    "a pool of processes": """
        from concurrent import futures
        import multiprocessing
        context = multiprocessing.get_context("fork")
        with futures.ProcessPoolExecutor(8, mp_context=context) as pool:
            for _ in range(3):
                print(sum(pool.map(pow, range(1000), range(1000))) % 7)
                time.sleep(0.7)
    """,
}


@pytest.mark.slow
async def test_many_ways_to_share_are_no_attack(run):
    async def harmless(what):
        ran = await run(harness.code(HARMLESS[what]), key=what, seconds=40)
        return what, ran.ending, ran.notices

    endings = await asyncio.gather(*map(harmless, HARMLESS))
    assert endings == [(what, Ending.OK, []) for what in HARMLESS]


async def test_nine_tenths_of_the_memory_can_be_used_beside_eight_threads(run):
    ran = await run(
        harness.code(f"""
        over = threading.Event()
        for _ in range(8): threading.Thread(target=over.wait).start()
        x = bytearray(os.urandom(1 << 20)) * {harness.LIMITS.memory_bytes * 9 // 10 // MIB}
        time.sleep(1)
        over.set()
        print(len(x) >> 20)
        """)
    )

    assert (ran.ending, ran.word) == (Ending.OK, "460")


async def test_what_cannot_be_counted_is_not_called_too_large(run):
    deep = """
        os.chdir("/mnt/data")
        for _ in range(300):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        """
    ran = await run(harness.code(deep) + harness.UNTIL_ENDED, seconds=25)

    assert ran.ending is Ending.STOPPED
    assert ran.finished.reason.startswith(run_words.FOLDERS_UNCOUNTABLE)


BUFFERS = """
import socket
kind = {"unix": socket.socketpair, "internet": lambda: [socket.socket(type=socket.SOCK_DGRAM)]}
for name in kinds:
    one, *_ = kind[name]()
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        before = one.getsockopt(socket.SOL_SOCKET, option)
        one.setsockopt(socket.SOL_SOCKET, option, 1 << 22)
        print(one.getsockopt(socket.SOL_SOCKET, option) == before)
"""


async def test_buffers_of_sockets_do_not_grow(run):
    kinds = ["unix"] if harness.IN_CONTAINER else ["unix", "internet"]
    assert (await run(f"kinds = {kinds}\n{BUFFERS}")).text.split() == ["True"] * 2 * len(kinds)


@pytest.mark.namespaces
async def test_what_tcp_sockets_queue_is_little(run):
    ran = await run(
        harness.code("""
        listener = socket.create_server(("127.0.0.1", 0))
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        # A window grows with what is read; then nobody reads.
        for _ in range(200):
            one.sendall(bytes(1 << 16))
            left = 1 << 16
            while left: left -= len(other.recv(left))
        one.settimeout(0.3)
        sent = 0
        try:
            while True: sent += one.send(bytes(1 << 16))
        except TimeoutError: print(sent)
        """)
    )

    assert 0 < int(ran.word) < 1 << 20


async def test_a_process_hides_nothing_of_what_it_wrote_unseen(bot, run, session_key):
    await run("1")
    usage = bot.pool.kernels[session_key()].provisioner.meter()
    assert await asyncio.to_thread(usage.stored_bytes) is not None

    ran = await run(
        harness.code("""
        told, tell = os.pipe()
        if os.fork() == 0:
            libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
            file = open("/mnt/data/gone", "wb", buffering=0)
            os.unlink("/mnt/data/gone")
            file.write(bytes(20 << 20))
            os.write(tell, b".")
            time.sleep(60)
        print(os.read(told, 1))
        """)
    )
    assert ran.word == "b'.'", ran
    stored_bytes = await asyncio.to_thread(usage.stored_bytes)
    assert stored_bytes is None or stored_bytes >= 20 * harness.MIB


async def test_a_thread_has_no_files_of_its_own(attempt):
    unshared = "threading.Thread(target=lambda: attempt(lambda: call(436, 1000, 1000, 2)))"
    prelude = f"it = {unshared}; it.start(); it.join()"
    closed = "call(436, 1000, 1000, 0)"

    assert (await attempt(closed, prelude)).split("\n") == ["EPERM", "allowed: 0"]


# They begin together, once there are as many as there can be.
BUSY = """
begin, going = os.pipe()
for _ in range(200):
    try:
        if os.fork() == 0:
            {first}
            os.close(going)
            os.read(begin, 1)
            break
    except OSError: break
else: assert False, "there is no limit"
if os.getpid() == leader:
    os.close(going)
    open("going", "x").close()
end = time.monotonic() + 20
while time.monotonic() < end and not os.path.exists("over"): pass
if os.getpid() != leader: os._exit(0)
"""
BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


@pytest.mark.skipif(harness.SHARE_ONE_ID, reason="more processes end the session there")
@pytest.mark.parametrize("first", ["pass", "os.setsid()"])
async def test_all_processes_that_a_session_may_have_leave_a_neighbour_its_share_of_the_processor(
    bot, run, session_key, first
):
    keys = "neighbour", "busy"
    for key in keys:
        await run("import os\nleader = os.getpid()", key=key)
    shared = {min(os.sched_getaffinity(0))}
    for pid in [pid for key in keys for pid in bot.pids(session_key(key))[1:]]:
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                os.sched_setaffinity(int(thread), shared)
            except PermissionError:
                pytest.skip("choosing the processors of sessions takes CAP_SYS_NICE")
    attack = asyncio.create_task(
        run(harness.code(BUSY.format(first=first)), key="busy", seconds=25)
    )
    if not bot.has_groups and "setsid" in first:
        ran = await attack
        assert ran.ending is Ending.STOPPED
        assert ran.finished.reason.startswith(run_words.TOO_MANY_PROCESS_SESSIONS)
        return

    workspace = await bot.pool.workspace(session_key("busy"))
    assert await harness.wait_until((workspace.directory / "going").exists)
    pids = [bot.pids(session_key(key)) for key in keys]
    before = list(map(_processor_seconds, pids))
    assert (await run(BURN, key="neighbour", seconds=15)).ending is Ending.OK
    # What else there is on the processor takes from both alike, so that their ratio stays.
    own, theirs = map(float.__sub__, map(_processor_seconds, pids), before)
    assert theirs > own / 10, "nobody was busy"
    assert own > theirs / 3, (own, theirs)
    await workspace.put("over", _nothing())
    assert (await attack).ending is Ending.OK


def _processor_seconds(pids):
    """To the nanosecond: the share of each of many is less than a tick of the usual clocks."""
    times = [pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0] for pid in pids]
    return sum(map(int, times)) / 1e9


async def _nothing():
    yield b""


async def test_a_few_programs_in_sessions_of_their_own_are_no_attack(run):
    ran = await run(
        harness.code("""
        for _ in range(4): subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
        for _ in range(20): subprocess.run(["/bin/true"], start_new_session=True)
        time.sleep(1)
        """)
    )

    assert ran.ending is Ending.OK
