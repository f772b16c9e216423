"""What is bounded by looking: held where nobody looked, and what only looks like that."""

import asyncio
import os
import pathlib
import textwrap

import pytest

from interpreter_bot import values
from interpreter_bot.wording import run_words
from tests.attacks import boxes

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
Ending = values.Ending
MIB = boxes.MIB
# Python's own mmap keeps a descriptor; the C library's does not.
MAP = """
libc.mmap.restype = ctypes.c_void_p
def held(name, size, mapped):
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT)
    os.write(descriptor, os.urandom(size))
    assert libc.mmap(None, mapped, 1, 1, descriptor, ctypes.c_long(0)) not in (None, 2**64 - 1)
    os.unlink(name)
    os.close(descriptor)
"""
ONLY_MAPPED = {
    "in full": "for n in range(12): held(f'/mnt/data/{n}', 16 << 20, 16 << 20); time.sleep(0.1)",
    "by a page": "for n in range(12): held(f'/mnt/data/{n}', 16 << 20, 4096); time.sleep(0.1)",
    "by a child whose first thread ended": """
        if os.fork() == 0:
            def hold():
                for n in range(12): held(str(n), 16 << 20, 4096)
                time.sleep(60)
            threading.Thread(target=hold).start()
            call("syscall", 60, 0)
    """,
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the call's number is of x86-64")
@pytest.mark.parametrize("how", ONLY_MAPPED)
async def test_deleted_files_that_are_only_mapped_count(run, how):
    hoard = MAP + textwrap.dedent(ONLY_MAPPED[how])
    ran = await run(boxes.code(hoard + boxes.UNTIL_ENDED), seconds=25)

    assert ran.ending is Ending.STOPPED
    assert ran.finished.reason.startswith(run_words.workspace_full(boxes.LIMITS))


async def test_a_file_that_was_replaced_while_it_was_mapped_is_no_trouble(run):
    replaced = "for n in range(3): held('/mnt/data/x', 8 << 20, 8 << 20)\ntime.sleep(2)"
    ran = await run(boxes.code(MAP + replaced))

    assert ran.ending is Ending.OK


HOARDS = {
    "processes whose first thread ended": """
        def hold():
            x = bytearray(os.urandom(1 << 20)) * 120
            time.sleep(60)
        for _ in range(8):
            if os.fork() == 0:
                threading.Thread(target=hold).start()
                time.sleep(0.1)
                call("syscall", 60, 0)
    """,
    "temporary files": """
        for folder in ("/tmp", "/dev/shm"):
            with open(f"{folder}/x", "wb", 0) as file:
                for _ in range(2): file.write(bytes(28 << 20))
        for _ in range(4):
            if os.fork() == 0:
                x = bytearray(os.urandom(1 << 20)) * 120
                time.sleep(60)
    """,
}


HOARDS["shared memory that is mapped no more"] = """
    step = 16 << 20
    held = []
    for _ in range(40):
        piece = mmap.mmap(-1, step)
        piece.write(b"x" * step)
        piece.madvise(mmap.MADV_DONTNEED)
        held.append(piece)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the call's number is of x86-64")
async def test_memory_that_processes_do_not_show_counts(run):
    # A control group kills whoever asks for too much; the bot ends the session.
    partly = run_words.partly_out_of_memory(boxes.LIMITS.memory_bytes)

    async def is_seen(what):
        ran = await run(boxes.code(HOARDS[what]) + boxes.UNTIL_KILLED, key=what, seconds=25)
        return what, ran.ending is Ending.OUT_OF_MEMORY or partly in ran.notices

    # In a container its own /dev/shm is everybody's, and bounded as a whole.
    hoards = [what for what in HOARDS if not (boxes.IN_CONTAINER and what == "temporary files")]
    assert await asyncio.gather(*map(is_seen, hoards)) == [(what, True) for what in hoards]


async def test_shared_memory_is_in_small_pieces_where_nobody_could_see_its_size(bot, run):
    ran = await run(
        boxes.code("""
        def is_had(size):
            try: mmap.mmap(-1, size).close()
            except OSError as error: return error.errno != errno.ENOMEM
            return True
        print(*map(is_had, (1 << 26, (1 << 26) + 1, 1 << 31, (1 << 32) + 4096)))
        """)
    )

    assert ran.text.split() == ["True"] + [str(bot.has_groups)] * 3


async def test_memory_of_zeros_is_read_and_never_mapped(attempt):
    if boxes.IN_CONTAINER:
        assert await attempt("os.open('/dev/zero', os.O_RDONLY)") == "EACCES"
        return
    opened = "os.open('/dev/zero', os.O_RDWR)"
    assert await attempt(f"set(os.read({opened}, 1 << 20))") == "allowed: {0}"
    for kind in ("MAP_SHARED", "MAP_PRIVATE"):
        assert await attempt(f"mmap.mmap({opened}, 4096, mmap.{kind})") == "ENODEV"


async def test_memory_in_many_sockets_is_not_allowed_where_nobody_counts_it(bot, run):
    ran = await run(
        boxes.code(f"""
        for _ in range(16):
            if os.fork() == 0:
                pairs = [socket.socketpair() for _ in range(100)]
                for pair in pairs:
                    for end in pair:
                        end.setblocking(False)
                        try:
                            while True: end.send(bytes(1 << 16))
                        except BlockingIOError: pass
                time.sleep(60)
        # Where it is to be ended, a busy machine may take its time.
        time.sleep({3 if bot.has_groups else 30})
        """)
    )

    if bot.has_groups:
        partly = run_words.partly_out_of_memory(boxes.LIMITS.memory_bytes)
        assert ran.ending in {Ending.OK, Ending.OUT_OF_MEMORY} or partly in ran.notices
    else:
        assert ran.ending is Ending.STOPPED
        assert ran.finished.reason.startswith(run_words.HIDING)


async def test_a_process_that_hides_is_not_allowed_where_it_would_not_be_counted(bot, run):
    # Whoever has ids to give sees it all the same, but for the root of a container.
    is_seen = boxes.HAS_OWN_IDS and not boxes.IN_CONTAINER
    ran = await run(
        boxes.code(f"""
        if os.fork() == 0:
            call("prctl", 4, 0, 0, 0, 0)
            time.sleep(60)
        time.sleep({4 if is_seen else 20})
        """),
        seconds=25,
    )

    if ran.ending is not Ending.OK:
        assert ran.ending is Ending.STOPPED
        assert ran.finished.reason.startswith(run_words.HIDING)
    assert (ran.ending is Ending.OK) == is_seen


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


async def test_many_ways_to_share_are_no_attack(run):
    async def harmless(what):
        ran = await run(boxes.code(HARMLESS[what]), key=what, seconds=40)
        return what, ran.ending, ran.notices

    endings = await asyncio.gather(*map(harmless, HARMLESS))
    assert endings == [(what, Ending.OK, []) for what in HARMLESS]


async def test_nine_tenths_of_the_memory_can_be_used_beside_eight_threads(run):
    ran = await run(
        boxes.code(f"""
        over = threading.Event()
        for _ in range(8): threading.Thread(target=over.wait).start()
        x = bytearray(os.urandom(1 << 20)) * {boxes.LIMITS.memory_bytes * 9 // 10 // MIB}
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
    ran = await run(boxes.code(deep) + boxes.UNTIL_ENDED, seconds=25)

    assert ran.ending is Ending.STOPPED
    assert ran.finished.reason.startswith(run_words.UNCOUNTABLE)


FULL = {
    "of datagrams": """
        def fill(ours):
            ours.bind(("127.0.0.1", 0))
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            for _ in range(4): other.sendto(bytes(60_000), ours.getsockname())
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        kind = socket.AF_INET, socket.SOCK_DGRAM
    """,
    "about the network": """
        question = struct.pack("IHHIIBxHiII", 32, 18, 1, 1, 0, 0, 0, 1, 0, 0)
        def fill(ours):
            ours.bind((0, 0))
            for _ in range(50): ours.send(question)
        kind = socket.AF_NETLINK, socket.SOCK_RAW
    """,
}


@pytest.mark.namespaces
@pytest.mark.parametrize("what", FULL)
async def test_memory_in_sockets_that_no_control_group_counts_is_bounded(run, what):
    ran = await run(
        boxes.code(FULL[what])
        + textwrap.dedent("""
        for _ in range(8):
            if os.fork() == 0:
                held = [socket.socket(*kind) for _ in range(200)]
                for one in held:
                    try: fill(one)
                    except OSError: pass
                time.sleep(60)
        time.sleep(40)
        """),
        seconds=50,
    )

    assert ran.ending is Ending.STOPPED
    assert ran.finished.reason.startswith(run_words.HIDING)


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
    kinds = ["unix"] if boxes.IN_CONTAINER else ["unix", "internet"]
    assert (await run(f"kinds = {kinds}\n{BUFFERS}")).text.split() == ["True"] * 2 * len(kinds)


@pytest.mark.namespaces
async def test_what_tcp_sockets_queue_is_little(run):
    ran = await run(
        boxes.code("""
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


@pytest.mark.parametrize("first", ["pass", "os.setsid()"])
async def test_all_processes_that_a_session_may_have_leave_a_neighbour_its_share_of_the_processor(
    bot, run, key_of, first
):
    keys = "neighbour", "busy"
    for key in keys:
        await run("import os\nleader = os.getpid()", key=key)
    shared = {min(os.sched_getaffinity(0))}
    for pid in [pid for key in keys for pid in bot.pids(key_of(key))[1:]]:
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                os.sched_setaffinity(int(thread), shared)
            except PermissionError:
                pytest.skip("choosing the processors of sessions takes CAP_SYS_NICE")
    attack = asyncio.create_task(run(boxes.code(BUSY.format(first=first)), key="busy", seconds=25))
    if not bot.has_groups and "setsid" in first:
        ran = await attack
        assert ran.ending is Ending.STOPPED
        assert ran.finished.reason.startswith(run_words.GRABBING)
        return

    workspace = await bot.pool.workspace(key_of("busy"))
    assert await boxes.until((workspace.directory / "going").exists)
    pids = [bot.pids(key_of(key)) for key in keys]
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
        boxes.code("""
        for _ in range(4): subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
        for _ in range(20): subprocess.run(["/bin/true"], start_new_session=True)
        time.sleep(1)
        """)
    )

    assert ran.ending is Ending.OK
