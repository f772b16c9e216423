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
    assert len(found.pids()) == 5
    assert found.pids()[0] == found.process.pid
    # Twice 40 shared between parent and child, and twice 20 of the grandchildren.
    assert 120 * MIB <= found.memory_bytes() < 160 * MIB


def test_shared_anonymous_memory_counts_once(session):
    found = session(
        "m = mmap.mmap(-1, 40 * MIB)\nm[:] = bytes(40 * MIB)\nif os.fork() == 0: time.sleep(60)\n"
    )
    assert 40 * MIB <= found.memory_bytes() < 60 * MIB


def test_shared_anonymous_memory_counts_though_its_maker_has_ended(session):
    found = session(
        "m = mmap.mmap(-1, 80 * MIB)\nif os.fork() == 0:\n    m[:] = bytes(80 * MIB)\n"
        "    os._exit(0)\nos.wait()\n"
    )
    assert 80 * MIB <= found.memory_bytes() < 120 * MIB


def test_where_there_is_no_time_to_read_more_the_rest_counts_in_full(session, monkeypatch):
    found = session(FAMILY)
    monkeypatch.setattr(session_metering, "_READING_SECONDS", 0)
    assert found.memory_bytes() > 160 * MIB


@pytest.mark.parametrize("name", [") R 1 1", "a b) Z (", "\\n\\n0 0", "\\xff\\xfe"])
def test_hostile_process_names_change_nothing(session, name):
    found = session(f"ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0)\nx = bytearray(30 * MIB)\n")
    assert found.reading(0).task_count == 1
    assert 30 * MIB <= found.memory_bytes() < 60 * MIB


def test_an_upper_bound_is_enough_where_it_is_small(session, monkeypatch):
    found = session("x = bytearray(30 * MIB)\nif os.fork() == 0: time.sleep(60)")
    exact = found.memory_bytes()
    looked = count_looks(monkeypatch)
    assert found.memory_bytes(500 * MIB) > exact
    assert not looked


def test_a_process_whose_first_thread_ended_counts(session):
    found = session(ENDS_ITS_FIRST_THREAD)
    assert len(found.pids()) == 2
    assert 50 * MIB <= found.memory_bytes() < 80 * MIB


def test_page_tables_count(session):
    found = session(
        "size, flags = 16 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS\n"
        "m = mmap.mmap(-1, size, flags=flags, prot=mmap.PROT_READ)\n"
        "m.madvise(mmap.MADV_NOHUGEPAGE)\n"
        "for n in range(0, size, 2 << 20): m[n]\n"
    )
    # 8,192 pages that read as zeros, and a page of the tables for each: 32 MiB. The margin is more
    # than all that a plain interpreter has, whose part of shared pages changes as others end.
    assert found.memory_bytes() >= session("").memory_bytes() + 16 * MIB


def count_looks(monkeypatch):
    """List the sets of pages that are read from now on."""
    looked = []
    real = procfs.read_or_raise

    def look(path):
        if "smaps" in path:
            looked.append(path)
        return real(path)

    monkeypatch.setattr(procfs, "read_or_raise", look)
    return looked


def test_a_look_ends_when_enough_is_known(session, monkeypatch):
    found = session(FAMILY)
    looked = count_looks(monkeypatch)
    assert found.memory_bytes(10 * MIB) > 10 * MIB
    assert len(looked) == 1


def test_what_was_swapped_out_counts(session, monkeypatch):
    """Where there is no swap it is played."""
    found = session("")
    real = procfs.read_or_raise

    def look(path):
        swapped = b"SwapPss: 51200 kB\n" if "smaps" in path else b""
        return real(path) + swapped + b"VmSwap:\t 51200 kB\n" * path.endswith("/status")

    before = found.memory_bytes()
    cheap = found.memory_bytes(1024 * MIB)
    monkeypatch.setattr(procfs, "read_or_raise", look)
    assert found.memory_bytes() >= before + 49 * MIB
    assert found.memory_bytes(1024 * MIB) >= cheap + 49 * MIB
