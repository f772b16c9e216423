"""What one session could learn of another, or do to it."""

import asyncio
import hashlib
import json
import resource
import socket
import time

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels.provisioning import provisioners
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
# Place: (what the victim does, how the thief looks, how it is refused).
PLACES = {
    "the workspace": (
        "open('/mnt/data/same.txt', 'w').write('stolen')",
        "open('/mnt/data/same.txt').read()",
        "ENOENT",
    ),
    "the temporary directory": (
        "open(tempfile.gettempdir() + '/same.txt', 'w').write('stolen')",
        "open(tempfile.gettempdir() + '/same.txt').read()",
        "ENOENT",
    ),
    "the home directory": (
        "os.makedirs(os.path.expanduser('~/.cache')); "
        "open(os.path.expanduser('~/.cache/x'), 'w').write('stolen')",
        "open(os.path.expanduser('~/.cache/x')).read()",
        "ENOENT",
    ),
    "shared memory": (
        "open('/dev/shm/same', 'w').write('stolen')",
        "open('/dev/shm/same').read()",
        "ENOENT",
    ),
    "an abstract socket": (
        "held = socket.socket(socket.AF_UNIX); held.bind(chr(0) + 'same'); held.listen()",
        "socket.socket(socket.AF_UNIX).connect(chr(0) + 'same')",
        "ECONNREFUSED",
    ),
    "a socket in the workspace": (
        "held = socket.socket(socket.AF_UNIX); held.bind('/mnt/data/socket'); held.listen()",
        "socket.socket(socket.AF_UNIX).connect('/mnt/data/socket')",
        "ENOENT",
    ),
    "a port of loopback": (
        "held = socket.create_server(('127.0.0.1', 5000))",
        "socket.create_connection(('127.0.0.1', 5000))",
        "ECONNREFUSED",
    ),
    "the directory of workspaces": (
        "open('same.txt', 'w').write('stolen')",
        "os.listdir('/.host/workspaces')",
        "ENOENT",
    ),
    "a lock": (
        "held = open(tempfile.gettempdir() + '/lock', 'w')",
        "open(tempfile.gettempdir() + '/lock')",
        "ENOENT",
    ),
}
# Where a kernel finds the directory of its saved variables.
VARIABLES = "/proc/self/fd/901" if harness.IN_CONTAINER else "/var/lib/variables"
# System V: what makes one, and finds it.
SYSTEM_V = {
    "memory": "call('shmget', 99, 4096, 0o1666)",
    "messages": "call('msgget', 99, 0o1666)",
    "semaphores": "call('semget', 99, 1, 0o1666)",
}


@pytest.mark.every_case
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=pytest.mark.namespaces if "loopback" in place else ())
        for place in PLACES
    ],
)
async def test_nothing_of_another_session_is_in_sight(run, place):
    if harness.SHARE_ONE_ID and place == "shared memory":
        pytest.skip("what has a known name in /dev/shm is everybody's where all have one user id")
    if harness.IN_CONTAINER and "socket" in place:
        pytest.skip("no socket listens there")
    leave, look, refusal = PLACES[place]
    left = await run(harness.code(leave), key="victim")
    assert left.ending is values.Ending.OK, "there has to be something to steal"

    ran = await run(harness.attempt(look), key="thief")

    refusals = {refusal, *harness.REFUSED} if harness.IN_CONTAINER else {refusal}
    assert ran.word in refusals


@pytest.mark.parametrize("kind", SYSTEM_V)
async def test_nothing_of_system_v_can_be_made(attempt, kind):
    # What is counted for nobody, and might be another session's.
    assert await attempt(SYSTEM_V[kind]) == "EPERM"


@pytest.mark.namespaces
async def test_processes_of_another_session_are_not_there(run):
    await run("import subprocess; held = subprocess.Popen(['/bin/sleep', '99'])", key="victim")

    ran = await run(
        harness.attempt(
            "[open(f'/proc/{p}/cmdline').read().split(chr(0))[0]"
            " for p in os.listdir('/proc') if p.isdigit() and p not in ('1', str(os.getpid()))]"
        ),
        key="thief",
    )

    assert ran.word == "allowed: []"


async def test_host_pids_of_another_session_mean_nothing(bot, run, session_key):
    await run("x = 5", key="victim")
    pids = bot.pids(session_key("victim"))

    ran = await run(
        harness.code(f"for pid in {pids}: attempt(lambda: os.kill(pid, signal.SIGKILL))"),
        key="thief",
    )

    assert set(ran.text.split()) == {"EPERM" if harness.IN_CONTAINER else "ESRCH"}
    assert (await run("x", key="victim")).plain == "5"


async def test_no_open_file_is_shared(run):
    code = """
    import json
    seen = []
    for name in os.listdir("/proc/self/fd"):
        try:
            status, target = os.fstat(int(name)), os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue
        # Every anonymous inode is the same one, devices keep nothing, and what no session can
        # write to is everybody's where nothing can be mounted.
        if re.match(r"anon_inode|.*/(skills$|tools-)", target):
            continue
        if not stat.S_ISCHR(status.st_mode):
            seen.append((status.st_dev, status.st_ino))
    print(json.dumps(seen))
    """
    seen = []
    for key in "ab":
        ran = await run(harness.code(code), key=key)
        seen.append({tuple(entry) for entry in json.loads(ran.text)})

    assert seen[0]
    assert not seen[0] & seen[1]


async def test_no_descriptor_carries_a_message(run):
    send = """
    sent = 0
    for name in os.listdir("/proc/self/fd"):
        try: sent += os.pwrite(int(name), b"stolen", 1 << 20) == 6
        except OSError: pass
    print(sent)
    """
    receive = """
    for name in os.listdir("/proc/self/fd"):
        try: print(os.pread(int(name), 6, 1 << 20))
        except OSError: pass
    """
    await run("1", key="thief")
    await run(harness.code(send), key="victim")

    ran = await run(harness.code(receive), key="thief")

    assert "stolen" not in ran.text


RANDOM = {
    "random": "__import__('random').random()",
    "numpy": "__import__('numpy').random.random()",
    "a generator of numpy": "__import__('numpy').random.default_rng().random()",
    "uuid1": "__import__('uuid').uuid1()",
    "uuid4": "__import__('uuid').uuid4()",
    "secrets": "__import__('secrets').token_hex()",
    "temporary names": "__import__('tempfile').mktemp()",
    "ssl": "__import__('ssl').RAND_bytes(16)",
    "a new interpreter": "subprocess.check_output([sys.executable, '-c',"
    " 'import random; print(random.random())'])",
}


@pytest.mark.parametrize("kind", RANDOM)
async def test_random_state_is_not_shared(run, kind):
    drawn = [await run(harness.code(f"print({RANDOM[kind]})"), key=key) for key in "abcd"]

    assert all(ran.word for ran in drawn)
    assert len({ran.word for ran in drawn}) == len(drawn)


async def test_session_that_comes_back_finds_its_files_and_nothing_else(bot, run, session_key):
    await run(
        harness.code(f"""
        x = 5
        variables = {VARIABLES!r}
        for folder in (tempfile.gettempdir(), "/dev/shm", "/mnt/data", variables):
            put(folder + "/left", "x", {"os.O_WRONLY | os.O_CREAT"})
        """)
    )
    await bot.pool.release(session_key())

    ran = await run(
        "import os, tempfile; print('x' in globals(), *(os.path.exists(f + '/left')"
        " for f in (tempfile.gettempdir(), '/dev/shm', '/mnt/data')))"
    )

    # Nobody can tell whose a file in /dev/shm is where all sessions have one user id.
    is_left = str(harness.SHARE_ONE_ID)
    assert ran.text.split() == ["False", "False", is_left, "True"]


async def test_forgotten_session_leaves_no_file_to_the_next_of_its_name(bot, run, session_key):
    await run("open('/mnt/data/left', 'w').write('x')")
    await bot.pool.forget(session_key())

    ran = await run("import os; print(os.listdir('/mnt/data'))")

    assert ran.word == "[]"


async def test_file_of_a_former_kernel_can_be_used_by_the_next(bot, run, session_key):
    await run("import os; os.mkdir('d'); open('d/f', 'w').write('x'); os.chmod('d', 0o700)")
    await bot.pool.release(session_key())

    ran = await run("open('d/f', 'a').write('y'); print(open('d/f').read())")

    assert ran.word == "xy"


async def test_busy_neighbour_does_not_keep_others_waiting(run):
    await run("1", key="quiet")
    busy = asyncio.create_task(
        run(
            "import os\nfor _ in range(6): os.fork() or exec('while True: pass')\n"
            "while True: print('x' * 1000)",
            key="busy",
            seconds=2,
        )
    )
    await asyncio.sleep(0.3)
    waits = []
    while not busy.done():
        started = time.monotonic()
        assert (await run("1 + 1", key="quiet")).plain == "2"
        waits.append(time.monotonic() - started)
        await asyncio.sleep(0.05)
    await busy

    assert sorted(waits)[len(waits) // 2] < 1


# Prints digests: what is looked for must not be in memory because it is looked for.
KEYS_IN_MEMORY = """
import hashlib, numpy
of_keys = numpy.isin(numpy.arange(256), list(b"0123456789abcdef"))
found = set()
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps.readlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if line.split()[1].startswith("rw") and end < 1 << 47:
            memory.seek(start)
            while left := end - memory.tell():
                block = memory.read(min(left, 1 << 22))
                is_of_key = of_keys[numpy.frombuffer(block, "u1")]
                edges = numpy.flatnonzero(numpy.diff(is_of_key, prepend=False, append=False))
                spans = edges.reshape(-1, 2)
                found |= {block[a:b] for a, b in spans[spans[:, 1] - spans[:, 0] == 64]}
for key in found: print(hashlib.sha256(key).hexdigest())
"""


async def test_key_of_an_earlier_kernel_is_nowhere_in_memory(bot, run, session_key, monkeypatch):
    kind, digests = provisioners.ForkProvisioner, {}
    launch = kind.launch

    async def launch_and_tell(self):
        key = await launch(self)
        digests[self.kernel_id] = hashlib.sha256(key.encode()).hexdigest()
        return key

    monkeypatch.setattr(kind, "launch", launch_and_tell)
    # The first are spares from before, and those between may be as old as the next.
    for number in range(2 * harness.SPARES + 2):
        await run("1", key=str(number))
    own = digests.pop(bot.pool.kernels[session_key(str(number))].id)
    ran = await run(harness.code(KEYS_IN_MEMORY), key=str(number))

    assert own in ran.text, "its own is there to be found"
    assert len(digests) > harness.SPARES
    assert not [digest for digest in digests.values() if digest in ran.text]


IN_FLIGHT = """
null = os.open("/dev/null", os.O_RDONLY)
held = [socket.socketpair() for _ in range(8)]
sent = 0
try:
    for one, _ in held:
        for _ in range(40):
            socket.send_fds(one, [b"x"], [null] * 200)
            sent += 200
except OSError as error:
    print(errno.errorcode[error.errno])
print(sent)
"""


PRELOADED = """
preloaded = os.__doc__
ctypes.memset(id(preloaded) + sys.getsizeof("") - 1, ord("x"), len(preloaded))
print(os.__doc__[:3])
"""


async def test_memory_that_all_sessions_begin_with_cannot_be_changed_for_others(run):
    ran = await run(harness.code(PRELOADED), key="thief")

    assert ran.word == "xxx"
    ran = await run("import os; print(os.__doc__[:3])", key="victim")
    assert ran.word == "OS"


@pytest.mark.skipif(not harness.HAS_OWN_IDS, reason="sessions are the bot's own user")
async def test_what_the_host_counts_by_user_is_each_sessions_own(run):
    ran = await run(harness.code(IN_FLIGHT))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        one, other = socket.socketpair()
        with one, other:
            assert int(ran.text.split()[1]) > 300
            socket.send_fds(one, [b"x"], [one.fileno()])
            assert socket.recv_fds(other, 1, 0)[0] == b"x"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_descriptors_in_flight_keep_nobody_from_a_kernel(short_path):
    """A plain user's sessions are the bot's own user on the host, for whom all of them count."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # As a shell sets it.
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        async with harness.Bot.open(short_path, settings.Limits(), preload=(), spares=0) as bot:
            ran = await bot.run(harness.code(IN_FLIGHT), key="thief")
            refusal, sent = ran.text.split()
            assert refusal == "ETOOMANYREFS"
            assert int(sent) > 1024
            for key in "abcd":
                assert (await bot.run("1 + 1", key=key)).plain == "2"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
