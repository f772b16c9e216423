"""Doors at the level `container`, where the keeper connects in code's place: the ways around it.

The traps of the feasibility study that sockets of TCP bring back are named T1 to T4 and T18.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import socket
import tempfile

import pytest
import pytest_asyncio

from interpreter_bot import settings, values
from interpreter_bot.hosts import cancellable_executions, local_startup
from tests import machine
from tests.attacks import harness, listeners

pytestmark = [
    pytest.mark.attack,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(machine.offers_namespaces(), reason="tried by `make test-in-container`"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls' numbers are of x86-64"),
]
PROXY, SERVICES = 61080, 61081
PRELUDE = """
DOOR = ("127.0.0.1", 61080)
tcp = socket.socket
def address(port, host="127.0.0.1"):
    family, number = struct.pack("=H", socket.AF_INET), struct.pack("!H", port)
    return family + number + socket.inet_aton(host) + bytes(8)
def raw(descriptor, place, size=16):
    return call(42, descriptor, place, size)
"""
# Attempt: (expression, how it ends). `{ear}` is a port of a listener of the host.
REFUSED = {
    "UDP": ("socket.socket(2, 2)", "ENETUNREACH"),
    "raw": ("socket.socket(2, 3, 255)", "ENETUNREACH"),
    "packets in order": ("socket.socket(2, 5)", "ENETUNREACH"),
    "MPTCP (T2)": ("socket.socket(2, 1, 262)", "ENETUNREACH"),
    "MPTCP, high bits set (T2)": ("call(41, 2, 1, 262 | 1 << 32)", "ENETUNREACH"),
    "SCTP": ("socket.socket(2, 1, 132)", "ENETUNREACH"),
    "IPv6": ("socket.socket(10)", "ENETUNREACH"),
    "netlink": ("socket.socket(16, 3)", "EAFNOSUPPORT"),
    "vsock": ("socket.socket(40)", "EAFNOSUPPORT"),
    "datagrams of Unix": ("socket.socket(1, 2)", "EPROTONOSUPPORT"),
    "a port of the host": ("tcp().connect(('127.0.0.1', {ear}))", "ECONNREFUSED"),
    "a port of the host at any address": ("tcp().connect(('0.0.0.0', {ear}))", "ECONNREFUSED"),
    "a door's port elsewhere (T4)": ("tcp().connect(('127.0.0.2', 61080))", "ECONNREFUSED"),
    "an address outside": ("tcp().connect(('192.0.2.1', 61080))", "ENETUNREACH"),
    "everybody": ("tcp().connect(('255.255.255.255', 61080))", "ENETUNREACH"),
    "data ahead, by sendto (T1)": (
        "tcp().sendto(b'x', 0x20000000, ('127.0.0.1', {ear}))",
        "ENOTSUP",
    ),
    "data ahead, by sendmsg (T1)": (
        "tcp().sendmsg([b'x'], [], 0x20000000, ('127.0.0.1', {ear}))",
        "ENOTSUP",
    ),
    "data ahead, by sendmmsg (T1)": (
        "call(307, tcp().fileno(), bytes(64), 1, 0x20000000)",
        "ENOTSUP",
    ),
    "sending without a connection": ("tcp().sendto(b'x', ('127.0.0.1', {ear}))", "EPIPE"),
    "listening (T3)": ("tcp().listen()", "EPERM"),
    "binding": ("tcp().bind(('127.0.0.1', 0))", "EPERM"),
    "joining a group": (
        "tcp().setsockopt(0, socket.IP_ADD_MEMBERSHIP, bytes([224, 0, 0, 9, 127, 0, 0, 1]))",
        "ENOPROTOOPT",
    ),
    "another protocol on top": ("tcp().setsockopt(6, 31, b'smc')", "EPERM"),
    "an abstract Unix socket": ("socket.socket(1).connect(chr(0) + 'x')", "EPERM"),
    "a path of a Unix socket": ("socket.socket(1).connect('/tmp/x')", "EPERM"),
    "an address of a Unix socket, by TCP": (
        "raw(tcp().fileno(), struct.pack('=H', 1) + b'/x')",
        "EPERM",
    ),
    "an address of IPv6": (
        "raw(tcp().fileno(), struct.pack('=H', 10) + bytes(26), 28)",
        "EAFNOSUPPORT",
    ),
    "no address at all": ("raw(tcp().fileno(), bytes(16))", "EAFNOSUPPORT"),
    "an address cut short": ("raw(tcp().fileno(), address(61080), 7)", "EAFNOSUPPORT"),
    "an address of size 0": ("raw(tcp().fileno(), address(61080), 0)", "EAFNOSUPPORT"),
    "memory that is not there": ("raw(tcp().fileno(), 8)", "EFAULT"),
    "memory of the kernel": ("raw(tcp().fileno(), -4096)", "EFAULT"),
    "a socket that is not there": ("raw(700, address(61080))", "EBADF"),
    "a number that is none": ("raw(-1, address(61080))", "EBADF"),
    "the session's directory, which stays open": ("raw(900, address(61080))", "ENOTSOCK"),
    "a file": ("raw(os.open('/dev/null', 0), address(61080))", "ENOTSOCK"),
    "a pair of other sockets": ("socket.socketpair(2)", "ENOTSUP"),
    "a filter of one's own": ("call(317, 1, 8, bytes(16))", "ENOSYS"),
}
# Left by the kernel's process when it was confined; with it, code would answer its own calls.
LISTENERS = """
found = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
         if os.path.lexists(f"/proc/self/fd/{name}")]
print([one for one in found if "seccomp" in one])
"""
# While one thread connects, another changes the address.
FLIP = """
place = ctypes.create_string_buffer(address(61080), 16)
door, ear = address(61080)[2:8], address({ear})[2:8]
goes_on = True
def flip():
    while goes_on:
        ctypes.memmove(ctypes.addressof(place) + 2, ear, 6)
        ctypes.memmove(ctypes.addressof(place) + 2, door, 6)
thread = threading.Thread(target=flip)
sys.setswitchinterval(1e-5)
thread.start()
reached = refused = 0
for _ in range(1500):
    with tcp() as one:
        result = libc.connect(one.fileno(), place, 16)
        reached += not result
        refused += result
goes_on = False
thread.join()
print(reached > 0, refused < 0)
"""
# While one thread connects, another replaces the socket by other files.
SWAP = """
goes_on = True
def swap():
    while goes_on:
        os.dup2(files[0], number)
        os.dup2(files[1], number)
with tcp() as one:
    files = [os.open("/dev/null", 0), os.dup(one.fileno())]
    number = os.dup(one.fileno())
thread = threading.Thread(target=swap)
sys.setswitchinterval(1e-5)
thread.start()
for _ in range(500):
    libc.connect(number, address(61080), 16)
goes_on = False
thread.join()
print(open("/mnt/data/kept").read(), os.listdir("/mnt/data"))
"""
# A connected socket belongs to the container's network, so it must not be usable otherwise.
AGAIN = """
with tcp() as one:
    one.connect(DOOR)
    attempt(lambda: raw(one.fileno(), bytes(16)))
    attempt(lambda: one.listen())
    one.shutdown(2)
    attempt(lambda: one.listen())
    attempt(lambda: one.connect(("127.0.0.1", {ear})))
"""
# Code sees the ports of all connections of the container, but cannot connect to any.
PORTS = """
ports = set()
for line in open("/proc/net/tcp").read().splitlines()[1:]:
    ports |= {int(place.rpartition(":")[2], 16) for place in line.split()[1:3]}
print(len(ports - {0}) >= 2, {tcp().connect_ex(("127.0.0.1", port)) for port in ports - {0, 61080}})
"""
NOT_READ = """
libc.prctl(4, 0, 0, 0, 0)
attempt(lambda: tcp().connect(DOOR))
_ = libc.prctl(4, 1, 0, 0, 0)
"""
CONNECT_AND_SEND = """
import socket
one = socket.socket()
one.connect(("127.0.0.1", 61080))
one.send(b"held")
"""


class Place:
    """A host whose sessions have doors, and listeners that no session may reach."""

    def __init__(self, host, host_listeners):
        self.host = host
        self.listeners = host_listeners

    async def run(self, text: str, key: str = "web/a") -> str:
        outputs: list[values.Output] = []
        async with self.host.lease(key) as lease:
            kernel = await lease.kernel()
            await cancellable_executions.run(self.host, kernel, text, show=outputs.append)
        return "".join(output.plain for output in outputs).strip()

    async def attack(self, text: str, key: str = "web/a") -> str:
        return await self.run(harness.code(PRELUDE + text), key)

    @contextlib.asynccontextmanager
    async def listening(self, key: str):
        """Listen at a session's doors; yield the accepted connections by door."""
        await self.run("1", key)
        kernel_id = (await self.host.statuses())[key].kernel_id
        doors = await self.host.doors(kernel_id)
        connections: dict[int, list] = {0: [], 1: []}

        async def accept_all(door):
            while True:
                connections[door].append(await doors.accept(door))

        tasks = [asyncio.create_task(accept_all(door)) for door in connections]
        await asyncio.sleep(0)
        try:
            yield connections
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            doors.close()
            for endpoint in connections[0] + connections[1]:
                endpoint.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place():
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        config = settings.Settings(
            paths=settings.Paths(data=pathlib.Path(name, "d"), runtime=pathlib.Path(name, "r")),
            kernels=settings.Kernels(preload=(), spares=0, doors=True),
            limits=settings.Limits(execution_seconds=60),
        )
        host_listeners = listeners.HostListeners(pathlib.Path(name))
        async with local_startup.open_host(config) as host:
            yield Place(host, host_listeners)
        host_listeners.close()


@pytest_asyncio.fixture(loop_scope="module")
async def silent(place):
    """The place; no test may reach a listener of the host."""
    yield place
    assert place.listeners.list_reached() == set()


async def receive(endpoint) -> bytes:
    return await asyncio.get_running_loop().sock_recv(endpoint, 99)


@pytest.mark.parametrize("way", REFUSED)
async def test_what_is_no_door_is_refused(silent, way):
    expression, ending = REFUSED[way]
    async with silent.listening("web/a") as connections:
        text = f"attempt(lambda: {expression.format(ear=silent.listeners.tcp_port)})"
        assert await silent.attack(text) == ending
        assert connections == {0: [], 1: []}


async def test_a_door_leads_to_the_bot_and_is_the_sessions_own(silent):
    async with (
        silent.listening("web/a") as connections,
        silent.listening("web/b") as other_connections,
    ):
        output = await silent.attack(
            "for port in 61080, 61081:\n"
            "    one = tcp(); one.connect(('127.0.0.1', port)); one.send(b'%d' % port)\n"
            "    print(one.family.name, one.getpeername()[0]); one.close()"
        )
        assert output.split() == ["AF_INET", "127.0.0.1"] * 2
        assert [await receive(connections[door][0]) for door in (0, 1)] == [b"61080", b"61081"]
        assert other_connections == {0: [], 1: []}
        await silent.attack("one = tcp(); one.connect(DOOR); one.send(b'b')", "web/b")
        assert await receive(other_connections[0][0]) == b"b"
        assert len(connections[0]) == 1


async def test_nobody_comes_through_anothers_door_by_the_ports_of_its_connections(silent):
    async with (
        silent.listening("web/a") as connections,
        silent.listening("web/b") as other_connections,
    ):
        await silent.run(CONNECT_AND_SEND)
        assert await receive(connections[0][0]) == b"held"
        output = await silent.attack(PORTS, "web/b")
        assert output == "True {111}"
        assert other_connections == {0: [], 1: []}
        assert (len(connections[0]), len(connections[1])) == (1, 0)


async def test_one_port_of_the_container_leads_to_the_session_and_to_nobody_else(silent):
    connect = "one = tcp(); one.connect(DOOR); one.send(b'own'); print(one.getpeername()[1]); "
    async with silent.listening("web/a") as connections:
        ports = set((await silent.attack(f"for _ in range(300): {connect} one.close()")).split())
        assert len(ports) == 1
        with contextlib.ExitStack() as stack:
            strangers = [
                stack.enter_context(socket.create_connection(("127.0.0.1", int(port)), 20))
                for port in [*ports] * 3
            ]
            await silent.attack(connect)
            assert [await receive(endpoint) for endpoint in connections[0]] == [b"own"] * 301
            assert [stranger.recv(1) for stranger in strangers] == [b""] * 3


async def test_a_door_is_shut_before_the_bot_listens_and_gone_with_its_session(silent):
    assert await silent.attack("attempt(lambda: tcp().connect(DOOR))", "web/new") == "ECONNREFUSED"
    async with silent.listening("web/new") as connections:
        await silent.run(CONNECT_AND_SEND, "web/new")
        (endpoint,) = connections[0]
        await silent.run(
            "import os\nif not os.fork():\n    os.setsid()\n    import time; time.sleep(600)",
            "web/new",
        )
        await silent.host.forget("web/new")
        assert await receive(endpoint) == b"held"
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                assert not await receive(endpoint), "a process that was left still holds it"


async def test_an_address_that_changes_is_the_one_that_was_read(silent):
    async with silent.listening("web/a") as connections:
        output = await silent.attack(FLIP.replace("{ear}", str(silent.listeners.tcp_port)))
        assert output == "True True", "both addresses were tried"
        assert len(connections[0]) > 0


async def test_a_socket_that_changes_takes_nothing_of_the_sessions_away(silent):
    async with silent.listening("web/a"):
        await silent.run("open('/mnt/data/kept', 'w').write('kept')")
        assert await silent.attack(SWAP) == "kept ['kept']"


async def test_nothing_else_becomes_of_a_connection(silent):
    async with silent.listening("web/a"):
        output = await silent.attack(AGAIN.replace("{ear}", str(silent.listeners.tcp_port)))
        assert output.split() == ["EAFNOSUPPORT", "EPERM", "EPERM", "ECONNREFUSED"]


async def test_code_cannot_answer_in_its_keepers_place(silent):
    assert await silent.attack(LISTENERS) == "[]"
    keeper = "attempt(lambda: os.listdir(f'/proc/{os.getppid()}/fd'))"
    assert await silent.attack(keeper) == "EACCES"
    memory = "attempt(lambda: open(f'/proc/{os.getppid()}/mem', 'rb'))"
    assert await silent.attack(memory) == "EACCES"


async def test_a_process_that_cannot_be_read_is_refused_alone(silent):
    async with silent.listening("web/a") as connections:
        assert await silent.attack(NOT_READ) == "EACCES"
        await silent.attack("tcp().connect(DOOR)")
        assert len(connections[0]) == 1


async def test_a_child_of_a_child_comes_through_the_same_door(silent):
    async with silent.listening("web/a") as connections:
        program = "import socket; socket.create_connection(('127.0.0.1', 61080)).send(b'child')"
        shell = ["sh", "-c", '(setsid "$0" -c "$1")']
        output = await silent.run(
            "import subprocess, sys\n"
            f"subprocess.run([*{shell}, sys.executable, {program!r}]).returncode"
        )
        assert output == "0"
        assert await receive(connections[0][0]) == b"child"


async def test_programs_find_a_socket_as_they_left_it(silent):
    async with silent.listening("web/a"):
        output = await silent.attack(
            "for blocks in (True, False):\n"
            "    one = tcp(); one.setblocking(blocks); os.set_inheritable(one.fileno(), blocks)\n"
            "    one.connect(DOOR)\n"
            "    flags = fcntl.fcntl(one, fcntl.F_GETFL) & os.O_NONBLOCK\n"
            "    print(bool(flags), os.get_inheritable(one.fileno()))"
        )
    assert output.split() == ["False", "True", "True", "False"]
