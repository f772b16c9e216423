"""Memory of a session without a control group, counted on real processes."""

import pytest

from interpreter_bot.kernels.metering import procfs, session_metering

MIB = 1024 * 1024
ENDS_ITS_FIRST_THREAD = """
told, tell = os.pipe()
if os.fork() == 0:
    def hold():
        x = bytearray(50 * MIB)
        os.write(tell, b'.')
        time.sleep(60)
    threading.Thread(target=hold).start()
    ctypes.CDLL(None).pthread_exit(None)
os.read(told, 1)
time.sleep(0.2)
"""
FAMILY = """
told, tell = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        x = bytearray(40 * MIB)
        if os.fork() == 0:
            y = bytearray(20 * MIB)
            os.write(tell, b'.')
        time.sleep(60)
os.read(told, 1); os.read(told, 1)
"""


def test_children_and_grandchildren_count(session):
    found = session(FAMILY)
    reading = found.reading()
    assert reading.processes == 5
    assert found.pids()[0] == found.process.pid
    # Twice 40 shared between parent and child, and twice 20 of the grandchildren.
    assert 120 * MIB <= reading.memory_bytes < 160 * MIB
    assert reading.is_exact
    assert reading.hidden == 0


def test_a_memfd_nobody_maps_counts_once(session):
    found = session(
        "f = os.memfd_create('x')\n"
        "for _ in range(50): os.write(f, bytes(MIB))\n"
        "g = os.dup(f)\n"
        "if os.fork() == 0: time.sleep(60)\n"
    )
    assert 50 * MIB <= found.memory_bytes() < 80 * MIB


def test_a_mapped_memfd_counts_once(session):
    found = session(
        "f = os.memfd_create('x')\n"
        "os.truncate(f, 60 * MIB)\n"
        "m = mmap.mmap(f, 60 * MIB)\n"
        "m[:] = bytes(60 * MIB)\n"
        "told, tell = os.pipe()\n"
        "if os.fork() == 0: m[::4096]; os.write(tell, b'.'); time.sleep(60)\n"
        "os.read(told, 1)\n"
    )
    assert 60 * MIB <= found.memory_bytes() < 80 * MIB


def test_a_partly_mapped_memfd_counts_in_full(session):
    found = session(
        "f = os.memfd_create('x')\n"
        "for _ in range(50): os.write(f, bytes(MIB))\n"
        "m = mmap.mmap(f, 4096)\n"
        "m[0]\n"
    )
    assert 50 * MIB <= found.memory_bytes() < 70 * MIB


def test_shared_anonymous_memory_counts_once(session):
    found = session(
        "m = mmap.mmap(-1, 40 * MIB)\nm[:] = bytes(40 * MIB)\nif os.fork() == 0: time.sleep(60)\n"
    )
    assert 40 * MIB <= found.memory_bytes() < 60 * MIB


def test_a_file_that_is_called_like_a_memfd_is_no_memory(session, tmp_path):
    (tmp_path / "memfd:x").write_bytes(b"x" * MIB)
    found = session(f"a = open({str(tmp_path / 'memfd:x')!r})")
    assert found.memory_bytes() < 20 * MIB


@pytest.mark.parametrize("name", [") R 1 1", "a b) Z (", "\\n\\n0 0", "\\xff\\xfe"])
def test_hostile_process_names_change_nothing(session, name):
    found = session(
        f"ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0)\n"
        f"f = os.memfd_create(b'{name}')\n"
        "os.write(f, bytes(30 * MIB))\n"
    )
    reading = found.reading()
    assert reading.processes == 1
    assert 30 * MIB <= reading.memory_bytes < 60 * MIB


def test_an_upper_bound_is_enough_where_it_is_small(session):
    found = session("x = bytearray(30 * MIB)")
    cheap = found.reading(enough_bytes=500 * MIB)
    exact = found.reading(enough_bytes=20 * MIB)
    assert not cheap.is_exact
    assert exact.is_exact
    assert 30 * MIB <= exact.memory_bytes <= cheap.memory_bytes


def test_a_process_whose_first_thread_ended_counts(session):
    found = session(ENDS_ITS_FIRST_THREAD)
    reading = found.reading()
    assert reading.processes == 2
    assert 50 * MIB <= reading.memory_bytes < 80 * MIB


def test_page_tables_count(session):
    found = session(
        "m = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "m.madvise(mmap.MADV_NOHUGEPAGE)\n"
        "for n in range(0, 4 << 30, 2 << 20): m[n]\n"
    )
    # Two thousand pages that read as zeros, and a page of the tables for each.
    assert found.memory_bytes() >= session("").memory_bytes() + 8 * MIB


def test_a_look_ends_when_its_time_is_over(session, monkeypatch):
    found = session(FAMILY)
    assert not found.reading().is_late
    monkeypatch.setattr(session_metering, "_LOOK_SECONDS", 0)
    monkeypatch.setattr(session_metering, "_PROCESS_SECONDS", 0)
    reading = found.reading()
    assert reading.is_late
    assert reading.memory_bytes < 40 * MIB


def test_a_look_ends_when_enough_is_known(session, monkeypatch):
    found = session(FAMILY)
    looked = []
    real = procfs.read_or_raise

    def look(path):
        looked.append(path)
        return real(path)

    monkeypatch.setattr(procfs, "read_or_raise", look)
    assert found.reading(most_bytes=10 * MIB).memory_bytes > 10 * MIB
    assert len([path for path in looked if "smaps" in path]) == 1


def test_what_was_swapped_out_counts(session, monkeypatch):
    """Where there is no swap it is played."""
    found = session("")
    real = procfs.read_or_raise

    def look(path):
        swapped = b"SwapPss: 51200 kB\n" if "smaps" in path else b""
        return real(path) + swapped + b"VmSwap:\t 51200 kB\n" * path.endswith("/status")

    before = found.memory_bytes()
    cheap = found.reading(enough_bytes=1024 * MIB).memory_bytes
    monkeypatch.setattr(procfs, "read_or_raise", look)
    assert found.memory_bytes() >= before + 49 * MIB
    assert found.reading(enough_bytes=1024 * MIB).memory_bytes >= cheap + 49 * MIB
