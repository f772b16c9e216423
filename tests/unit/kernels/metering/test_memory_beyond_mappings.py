"""Memory that no mapping shows: temporary files and sockets, of processes in namespaces."""

import os

import pytest

from interpreter_bot.kernels.metering import memory

MIB = 1024 * 1024
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make namespaces")
OWN = "import socket\nlibc = ctypes.CDLL(None)\nassert libc.unshare(0x40020000) == 0\n"
TEMPORARY = OWN + (
    "assert libc.mount(None, b'/', None, 16384 | 1 << 18, None) == 0\n"
    "for place in (b'/tmp', b'/dev/shm'): assert libc.mount(b't', place, b'tmpfs', 0, None) == 0\n"
)


def test_own_temporary_files_count_once_mapped_or_deleted_or_not(session):
    found = session(
        TEMPORARY
        + "f = open('/tmp/x', 'w+b', 0); f.write(bytes(20 * MIB)); os.unlink('/tmp/x')\n"
        + "g = open('/dev/shm/y', 'w+b', 0); g.write(bytes(30 * MIB))\n"
        + "m = mmap.mmap(g.fileno(), 0); m[::4096]\n"
        + "if os.fork() == 0: m[::4096]; time.sleep(60)\n"
        + "time.sleep(0.2)"
    )
    reading = found.reading()
    assert 50 * MIB <= reading.memory_bytes < 70 * MIB
    # Twice is no more than a bound, and the bound is looked into where it matters.
    assert 50 * MIB <= found.reading(most_bytes=70 * MIB).memory_bytes < 70 * MIB


def test_the_hosts_temporary_files_are_not_the_sessions(session, tmp_path):
    assert memory.tmpfs_bytes([session("").process.pid]) == {}


@pytest.mark.parametrize(("pairs", "kind", "counted"), [(256, 1, 0), (257, 1, 514), (30, 2, 660)])
def test_sockets_count_where_they_are_many(session, pairs, kind, counted):
    found = session(OWN + f"x = [socket.socketpair(type={kind}) for _ in range({pairs})]")
    size = memory.socket_bytes([found.process.pid])
    assert size == counted * memory._queue_bytes()
    assert found.reading().socket_bytes == size
    assert found.uncounted_bytes() == 0, "a control group counts these"


def test_sockets_that_wait_to_be_accepted_count(session):
    found = session(
        OWN
        + "a = socket.socket(socket.AF_UNIX); a.bind('\\0x'); a.listen(1000)\n"
        + "for _ in range(600):\n"
        + "    b = socket.socket(socket.AF_UNIX); b.connect('\\0x'); b.send(b'x'); b.close()\n"
    )
    assert memory.socket_bytes([found.process.pid]) == 601 * memory._queue_bytes()


def test_sockets_of_the_internet_count(session):
    found = session(
        OWN + "x = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(600)]\n"
        "for n, one in enumerate(x): one.bind(('0.0.0.0', 2000 + n))"
    )
    assert memory.socket_bytes([found.process.pid]) == 1200 * memory._queue_bytes()


def test_sockets_that_ask_about_the_network_count(session):
    found = session(
        OWN + "x = [socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) for _ in range(600)]\n"
        "for one in x: one.bind((0, 0))"
    )
    assert found.uncounted_bytes() == found.reading().socket_bytes == 1200 * memory._queue_bytes()


def test_the_hosts_sockets_are_not_the_sessions(session):
    assert memory.socket_bytes([session("").process.pid]) == 0
