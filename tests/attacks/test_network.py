"""Ways out of the sandbox by any socket; none may reach a listener of the host."""

import os
import pathlib
import tempfile

import pytest

from tests.attacks import harness, listeners

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
STREAM, DATAGRAM = "socket.socket(socket.AF_INET)", "socket.socket(socket.AF_INET, 2)"
UNIX = "socket.socket(socket.AF_UNIX)"
# Way: (expression, how it ends).
WAYS = {
    "tcp": (f"{STREAM}.connect(('127.0.0.1', {{tcp}}))", "ECONNREFUSED"),
    "tcp by name": ("socket.create_connection(('localhost', {tcp}), 2)", "ECONNREFUSED"),
    "tcp to any address": (f"{STREAM}.connect(('0.0.0.0', {{tcp}}))", "ECONNREFUSED"),
    "tcp elsewhere on loopback": (f"{STREAM}.connect(('127.8.8.8', {{tcp}}))", "ECONNREFUSED"),
    "tcp by IPv6": (
        "socket.socket(socket.AF_INET6).connect(('::ffff:127.0.0.1', {tcp}))",
        "ECONNREFUSED",
    ),
    "tcp with data ahead": (
        f"{STREAM}.sendto(b'x', 0x20000000, ('127.0.0.1', {{tcp}}))",
        "ENOTSUP",
    ),
    "udp": (f"{DATAGRAM}.sendto(b'x', ('127.0.0.1', {{udp}}))", "allowed: 1"),
    "udp to everybody": (f"{DATAGRAM}.sendto(b'x', ('255.255.255.255', {{udp}}))", "ENETUNREACH"),
    "unix": (f"{UNIX}.connect({{path!r}})", "ENOENT"),
    "unix by the process list": (f"{UNIX}.connect('/proc/1/root' + {{path!r}})", "EACCES"),
    "abstract": (f"{UNIX}.connect(chr(0) + {{abstract!r}})", "ECONNREFUSED"),
    "a kernel's own socket": (f"{UNIX}.connect({{kernel!r}})", "ENOENT"),
}
# Without namespaces the container's own network is all there is, and every family of it is closed.
NO_FAMILY = "EAFNOSUPPORT"
NO_NETWORK = "ENETUNREACH"
UNUSUAL = NO_NETWORK if harness.IN_CONTAINER else "EPROTONOSUPPORT"
CLOSED_FAMILIES = {
    "packet": 17,
    "key": 15,
    "rds": 21,
    "can": 29,
    "tipc": 30,
    "bluetooth": 31,
    "alg": 38,
    "nfc": 39,
    "vsock": 40,
    "qipcrtr": 42,
    "smc": 43,
    "xdp": 44,
}
NETLINK = """
def netlink(kind, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.send(struct.pack("IHHII", 16 + len(body), kind, 0x405, 1, 0) + body)
        error = struct.unpack_from("i", link.recv(4096), 16)[0]
    if error:
        raise OSError(-error, "")
"""
CHANGES = {
    "an address": "netlink(20, struct.pack('BBBBI', 2, 8, 0, 0, 1) + "
    "struct.pack('HH4s', 8, 2, bytes([127, 0, 0, 9])))",
    "a new interface": "netlink(16, struct.pack('BxHiII', 0, 0, 0, 0, 0) + "
    "struct.pack('HHHH8s', 20, 18, 12, 1, b'dummy'))",
    "a route": "netlink(24, struct.pack('BBBBBBBBI', 2, 0, 0, 0, 254, 4, 0, 1, 0) + "
    "struct.pack('HHI', 8, 4, 1))",
    "a rule": "netlink(32, struct.pack('BBBBBBBBI', 2, 0, 0, 0, 254, 0, 0, 1, 0))",
    "loopback up or down": f"fcntl.ioctl({DATAGRAM}, 0x8914, struct.pack('16sH22x', b'lo', 0))",
    "marks of packets": f"{DATAGRAM}.setsockopt(socket.SOL_SOCKET, 36, 1)",
    "buffers beyond limits": f"{DATAGRAM}.setsockopt(socket.SOL_SOCKET, 33, 1 << 30)",
    "another's namespace": "call('setns', os.open('/proc/1/ns/net', 0), 0)",
}


@pytest.fixture
def host_listeners():
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory:
        pathlib.Path(directory).chmod(0o755)
        host_listeners = listeners.HostListeners(pathlib.Path(directory))
        yield host_listeners
        host_listeners.connect_to_all()
        assert host_listeners.list_reached() == set(host_listeners.sockets), (
            "listeners that nobody can reach prove nothing"
        )
        host_listeners.close()


@pytest.mark.every_case
@pytest.mark.parametrize("way", WAYS)
async def test_host_is_not_reached(bot, run, host_listeners, way):
    expression, ending = WAYS[way]
    await run("'now there is a kernel, with sockets'")
    kernel = next(iter(bot.settings.paths.runtime.rglob("k-1")))
    expression = expression.format(
        tcp=host_listeners.tcp_port,
        udp=host_listeners.udp_port,
        path=str(host_listeners.path),
        abstract=host_listeners.abstract,
        kernel=str(kernel),
    )

    ran = await run(harness.attempt(expression))

    if harness.IN_CONTAINER:
        ending = "EPERM" if UNIX in WAYS[way][0] else NO_NETWORK
    assert ran.word == ending
    assert host_listeners.list_reached() == set()


@pytest.mark.namespaces
async def test_scan_of_all_ports_finds_nobody(run, host_listeners):
    ran = await run(
        harness.code("""
        def is_open(port):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)):
                    return False
                # A socket connects to itself if it gets the port that it asks for.
                return probe.getsockname() != probe.getpeername()
        print([port for port in range(1, 65536) if is_open(port)])
        """),
        seconds=60,
    )

    assert ran.word == "[]"
    assert host_listeners.list_reached() == set()


@pytest.mark.parametrize("kind", ["AF_INET", "AF_INET6"])
async def test_raw_sockets_are_refused(attempt, kind):
    assert await attempt(f"socket.socket(socket.{kind}, socket.SOCK_RAW, 255)") == (
        NO_NETWORK if harness.IN_CONTAINER else "EPERM"
    )


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
@pytest.mark.parametrize("kind", [0, *range(4, 16)])
async def test_unusual_kinds_are_closed(attempt, family, kind):
    # The system would answer ESOCKTNOSUPPORT, after looking for a kernel module.
    for flags in (0, "socket.SOCK_CLOEXEC", "socket.SOCK_NONBLOCK"):
        opening = f"socket.socket(socket.{family}, {kind} | {flags}, 0)"
        assert await attempt(opening) == UNUSUAL


@pytest.mark.parametrize("family", CLOSED_FAMILIES)
async def test_unusual_socket_families_are_closed(attempt, family):
    assert await attempt(f"socket.socket({CLOSED_FAMILIES[family]}, 2, 0)") == "EAFNOSUPPORT"


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
@pytest.mark.parametrize("protocol", [33, 115, 132, 136, 256, 262])
async def test_unusual_protocols_are_closed(attempt, family, protocol):
    for kind in ("SOCK_STREAM", "SOCK_DGRAM", "SOCK_SEQPACKET"):
        opening = f"socket.socket(socket.{family}, socket.{kind}, {protocol})"
        assert await attempt(opening) == UNUSUAL
    high_bits = f"call('socket', 2, 1, {protocol} | 1 << 32)"
    assert await attempt(high_bits) == UNUSUAL


@pytest.mark.parametrize("protocol", range(1, 32))
async def test_netlink_speaks_of_routes_only(attempt, protocol):
    refusal = NO_FAMILY if harness.IN_CONTAINER else "EPROTONOSUPPORT"
    kinds = ("SOCK_RAW", "SOCK_DGRAM")
    for kind in kinds:
        opening = f"socket.socket(socket.AF_NETLINK, socket.{kind}, {protocol})"
        assert await attempt(opening) == refusal
    high_bits = f"call('socket', 16, 2, {protocol} | 1 << 32)"
    assert await attempt(high_bits) == refusal


@pytest.mark.namespaces
async def test_loopback_is_the_only_interface_and_leads_nowhere(run):
    ran = await run(
        "import socket; print([name for _, name in socket.if_nameindex()])\n"
        "print(len(open('/proc/net/route').read().splitlines()) - 1)"
    )

    assert ran.text.splitlines() == ["['lo']", "0"]


# Requests by which a kernel's sockets could reveal the host's network, as the host connected them.
TELLING = {
    "list of interfaces": "fcntl.ioctl(one, 0x8912, struct.pack('iP', 4096, 0))",
    "name of an interface": "fcntl.ioctl(one, 0x8910, struct.pack('16si20x', b'', 2))",
    "index of an interface": "fcntl.ioctl(one, 0x8933, struct.pack('16si20x', b'lo', 0))",
    "address of an interface": "fcntl.ioctl(one, 0x8915, struct.pack('16s24x', b'lo'))",
    "hardware address": "fcntl.ioctl(one, 0x8927, struct.pack('16s24x', b'lo'))",
    "driver": "fcntl.ioctl(one, 0x8946, struct.pack('16s24x', b'lo'))",
    "namespace": "fcntl.ioctl(one, 0x894C)",
    "file": "fcntl.ioctl(one, 0x89E0)",
    "private call": "fcntl.ioctl(one, 0x89FF, bytes(40))",
    "beyond 32 bits": "call('ioctl', one, 0x8910 | 1 << 32, bytes(40))",
    "who is there": "call('getsockopt', one, 1, 77, bytes(4), struct.pack('i', 4))",
    "who sends": "call('setsockopt', one, 1, 76, struct.pack('i', 1), 4)",
}


@pytest.mark.namespaces
async def test_what_asks_for_figures_of_interfaces_finds_none_and_goes_on(run):
    ran = await run(
        harness.code("""
        import psutil
        print(psutil.net_if_stats(), list(psutil.net_if_addrs()))
        for name in sorted(os.listdir("/proc/self/fd")):
            path = f"/proc/self/fd/{name}"
            if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
                attempt(lambda: fcntl.ioctl(int(name), 0x8921, struct.pack('16s24x', b'lo')))
        """)
    )

    stats, *answers = ran.text.splitlines()
    assert stats == "{} ['lo']"
    assert answers == ["ENODEV"] * len(answers)
    assert len(answers) >= 3


@pytest.mark.parametrize("what", TELLING)
async def test_no_socket_tells_of_the_hosts_network(run, what):
    ran = await run(
        harness.code(f"""
        inherited = [int(n) for n in os.listdir("/proc/self/fd") if int(n) > 2]
        inherited = [one for one in inherited if os.path.exists(f"/proc/self/fd/{{one}}")]
        sockets = [one for one in inherited if stat.S_ISSOCK(os.fstat(one).st_mode)]
        print(len(sockets))
        with socket.socket(socket.AF_UNIX) as fresh:
            for one in [*sockets, fresh.fileno()]:
                attempt(lambda: {TELLING[what]})
        """)
    )

    count, *answers = ran.text.splitlines()
    assert int(count) >= 3
    assert answers == ["EPERM"] * (int(count) + 1)


@pytest.mark.namespaces
async def test_every_socket_is_of_the_kernels_own_network(run):
    # Each network has a cookie, which any of its sockets reveals: SO_NETNS_COOKIE.
    ran = await run(
        harness.code("""
        def cookie(one):
            return struct.unpack("Q", one.getsockopt(socket.SOL_SOCKET, 71, 8))[0]

        fresh = cookie(socket.socket())
        for name in os.listdir("/proc/self/fd"):
            path = f"/proc/self/fd/{name}"
            if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as one:
                    print(one.family.name, one.type.name, cookie(one) == fresh)
        """)
    )

    sockets = ran.text.splitlines()
    assert len(sockets) >= 6, "three that listen, three that are connected"
    assert [one for one in sockets if not one.endswith("True")] == []


async def test_no_socket_tells_where_the_bot_keeps_it(bot, run):
    ran = await run(
        harness.code("""
        for name in os.listdir("/proc/self/fd"):
            try:
                with socket.socket(fileno=os.dup(int(name))) as one:
                    print(one.family.name, repr(one.getsockname()), repr(one.getpeername()))
            except OSError as error:
                print(error.errno)
        """)
    )

    assert "AF_UNIX" in ran.text
    assert str(bot.settings.paths.runtime) not in ran.text
    assert f"{os.getpid()}-" not in ran.text, "the name of its directory of sockets"


@pytest.mark.namespaces
async def test_network_namespace_is_not_the_hosts(run):
    ran = await run("import os; print(os.readlink('/proc/self/ns/net'))")

    assert ran.word != os.readlink("/proc/self/ns/net")


@pytest.mark.parametrize("change", CHANGES)
async def test_network_cannot_be_changed(attempt, change):
    refusals = {NO_FAMILY, NO_NETWORK, "EACCES"} if harness.IN_CONTAINER else {"EPERM", "EACCES"}
    assert await attempt(CHANGES[change], NETLINK) in refusals


async def test_names_are_not_resolved_and_say_so_quickly(run):
    ran = await run(
        "import socket, time\n"
        "start = time.monotonic()\n"
        "try: socket.getaddrinfo('name.invalid', 80)\n"
        "except socket.gaierror as error: print('gaierror', time.monotonic() - start < 5)"
    )

    assert ran.word == "gaierror True"


@pytest.mark.namespaces
async def test_own_loopback_works(run):
    ran = await run(
        "import socket\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "client = socket.create_connection(server.getsockname())\n"
        "client.send(b'hello'); print(server.accept()[0].recv(5).decode())"
    )

    assert ran.word == "hello"
