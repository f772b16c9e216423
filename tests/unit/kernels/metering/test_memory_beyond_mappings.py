"""Memory that no mapping shows: temporary files and sockets, of processes in namespaces."""

import os

import pytest

from interpreter_bot.kernels.metering import deleted_files, memory

MIB = 1024 * 1024
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make namespaces"),
]
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


@pytest.mark.parametrize(("sockets", "is_full", "is_over"), [(200, 1, 1), (200, 0, 0), (100, 1, 0)])
def test_sockets_of_the_internet_may_hold_little_together(session, sockets, is_full, is_over):
    found = session(
        OWN
        + "socket.socketpair()\nimport fcntl, struct\n"
        + "up = struct.pack('16sH22x', b'lo', 1)\n"
        + "fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, up)\n"
        + f"x = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range({sockets})]\n"
        + "for one in x:\n"
        + "    one.bind(('127.0.0.1', 0))\n"
        + f"    for _ in range(2 * {is_full}): x[0].sendto(bytes(60_000), one.getsockname())"
    )
    assert (found.uncounted_bytes() > 1 << 40) == bool(is_over)


@pytest.mark.parametrize("how", ["mappings", "watches"])
def test_what_the_kernel_holds_for_a_process_counts(session, tmp_path, how):
    code = {
        "mappings": "import mmap\nx = mmap.mmap(-1, 160 << 20, flags=34)\n"
        "libc = ctypes.CDLL(None)\nat = ctypes.addressof(ctypes.c_char.from_buffer(x))\n"
        "for n in range(0, 160 << 20, 8192): libc.mprotect(ctypes.c_void_p(at + n), 4096, 0)",
        "watches": "import select, os\nx = [os.pipe()[0] for _ in range(200)]\n"
        "y = [select.epoll() for _ in range(200)]\nfor e in y:\n    for n in x: e.register(n, 1)",
    }[how]
    calm, found = session(""), session(code)
    least = {"mappings": 20_000 * 256, "watches": 40_000 * 192}[how]
    shared = found.deleted(deleted_files.Disk.of(tmp_path, MIB)).shared
    grown = found.reading(shared=shared).memory_bytes - calm.memory_bytes()
    assert least <= grown < 3 * least
