"""Disk that deleted files hold, counted on real processes."""

import os
import pathlib

import pytest

from interpreter_bot.kernels.metering import deleted_files, procfs

MIB = 1024 * 1024
HOLD = """
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
def hold(name, size, mapped=0, keep=False):
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b'x' * size)
    if mapped: assert libc.mmap(None, mapped, 1, 1, descriptor, ctypes.c_long(0)) != 2**64 - 1
    os.unlink(name)
    if not keep: os.close(descriptor)
"""


@pytest.fixture
def counted(session, tmp_path):
    """Run code in a directory, and count what its processes hold there."""

    def count(code, file_bytes=100 * MIB):
        found = session(f"{HOLD}\nos.chdir({str(tmp_path)!r})\n{code}\ntime.sleep(0.2)")
        return found.deleted(deleted_files.Disk.of(tmp_path, file_bytes))

    return count


@pytest.fixture
def plain_user(monkeypatch):
    """Refuse what only root may look at."""
    real = os.stat

    def stat(path, **options):
        if "/map_files/" in str(path):
            raise PermissionError(1, "not permitted")
        return real(path, **options)

    monkeypatch.setattr(os, "stat", stat)


KEPT = {
    "open": "hold('a', 8 * MIB, keep=True)",
    "mapped": "hold('a', 8 * MIB, 8 * MIB)",
    "open and mapped": "hold('a', 8 * MIB, 8 * MIB, keep=True)",
    "mapped twice, by two": "hold('a', 8 * MIB, 8 * MIB)\nif os.fork() == 0: time.sleep(60)",
    "open, and mapped by a page": "hold('a', 8 * MIB, 4096, keep=True)",
    "with a name of two lines": "hold('a\\nb (deleted)', 8 * MIB, 8 * MIB)",
    "with a carriage return": "hold('a\\rb', 8 * MIB, 8 * MIB)",
    "by a thread that outlived the first": (
        "def run(): hold('a', 8 * MIB, 8 * MIB); time.sleep(60)\n"
        "if os.fork() == 0:\n"
        "    threading.Thread(target=run).start()\n"
        "    libc.pthread_exit(None)\n"
    ),
}


@pytest.mark.parametrize("how", KEPT)
def test_a_deleted_file_counts_once_however_it_is_held(counted, how):
    assert counted(KEPT[how]) == deleted_files.Deleted(8 * MIB, hidden=0, is_late=False)


@pytest.mark.parametrize("how", KEPT)
def test_it_counts_once_for_a_plain_user_too(counted, plain_user, how):
    assert counted(KEPT[how]) == deleted_files.Deleted(8 * MIB, hidden=0, is_late=False)


def test_root_knows_the_size_of_what_is_mapped_by_a_page(counted):
    try:
        os.stat(next(pathlib.Path("/proc/self/map_files").iterdir()))
    except PermissionError:
        pytest.skip("needs root with CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE")
    assert counted("hold('a', 8 * MIB, 4096)").bytes == 8 * MIB


def test_a_plain_user_bounds_what_is_mapped_by_a_page(counted, plain_user):
    few = "for n in range(8): hold(f'{n}', MIB, 4096)"
    assert counted(few).bytes == 8 * 4096
    assert counted(few.replace("8", "9")).bytes == 9 * 100 * MIB


THERE = {
    "a name": "f = open('a', 'wb'); f.write(bytes(MIB)); f.flush()",
    "a name that looks as if deleted": (
        "open('a (deleted)', 'wb').write(bytes(MIB))\n"
        "f = os.open('a (deleted)', os.O_RDONLY)\n"
        "libc.mmap(None, MIB, 1, 1, f, ctypes.c_long(0))\n"
        "os.close(f)"
    ),
    "memory": "x = mmap.mmap(-1, MIB); os.memfd_create('z')",
}


@pytest.mark.parametrize("what", THERE)
@pytest.mark.parametrize("user", ["root", "plain_user"])
def test_what_a_walk_over_names_sees_does_not_count(counted, request, user, what):
    if user == "plain_user":
        request.getfixturevalue(user)
    assert counted(THERE[what]).bytes == 0


SHARED = "x = [mmap.mmap(-1, MIB) for _ in range({})]\nif os.fork() == 0: time.sleep(60)"


@pytest.mark.parametrize(("pieces", "size"), [(1, 1), (4, 1), (5, 64)])
def test_shared_memory_is_found_and_many_pieces_of_it_count_in_full(counted, pieces, size):
    found = counted(SHARED.format(pieces))
    assert list(found.shared.values()) == [size * MIB] * pieces
    assert found.bytes == 0


def test_shared_memory_that_is_mapped_no_more_counts_once(session, tmp_path):
    found = session(
        "x = [mmap.mmap(-1, 20 * MIB) for _ in range(2)]\n"
        "for one in x: one.write(bytes(20 * MIB))\n"
        "x[1].madvise(mmap.MADV_DONTNEED)"
    )
    shared = found.deleted(deleted_files.Disk.of(tmp_path, MIB)).shared
    assert 20 * MIB <= found.reading().memory_bytes < 35 * MIB
    assert 40 * MIB <= found.reading(shared=shared).memory_bytes < 55 * MIB


def test_who_hides_is_told(session, tmp_path, monkeypatch):
    found = session("if os.fork() == 0: time.sleep(60)")
    hider = found.pids()[1]
    real = procfs.read_or_raise

    def look(path):
        if path == f"/proc/{hider}/maps":
            raise PermissionError(13, "hidden")
        return real(path)

    monkeypatch.setattr(procfs, "read_or_raise", look)
    assert found.deleted(deleted_files.Disk.of(tmp_path, MIB)).hidden == 1


def test_too_much_to_look_at_is_hiding(session, tmp_path, monkeypatch):
    found = session("if os.fork() == 0: time.sleep(60)\nx = [os.dup(0) for _ in range(50)]")
    monkeypatch.setattr(deleted_files, "_MOST_DESCRIPTORS", 20)
    assert found.deleted(deleted_files.Disk.of(tmp_path, MIB)).hidden == 1
    monkeypatch.setattr(procfs, "MOST_BYTES", 2000)
    monkeypatch.setattr(deleted_files, "_MOST_DESCRIPTORS", 2000)
    disk = deleted_files.Disk(device=1, mapped_device=1, file_bytes=MIB)
    assert found.deleted(disk).hidden == 1


def test_what_is_gone_holds_nothing(session, tmp_path):
    found = session("")
    found.process.kill()
    found.process.wait()
    assert found.deleted(deleted_files.Disk.of(tmp_path, MIB)) == deleted_files.Deleted(
        0, 0, is_late=False
    )


def test_a_look_ends_when_its_time_is_over(session, tmp_path, monkeypatch):
    found = session("")
    disk = deleted_files.Disk.of(tmp_path, MIB)
    monkeypatch.setattr("interpreter_bot.kernels.metering.session_metering._LOOK_SECONDS", 0)
    monkeypatch.setattr("interpreter_bot.kernels.metering.session_metering._PROCESS_SECONDS", 0)
    assert found.deleted(disk).is_late
