"""Files of snapshots: pickles, and large buffers by digest."""

import os

import pytest

from interpreter_bot.guest import snapshot_files

MIB = 1024 * 1024


@pytest.fixture
def files(tmp_path):
    snapshot_files.create_generation(str(tmp_path), 1)
    return snapshot_files.Writer(str(tmp_path), 1, 1 << 30, 0)


def append(files, *buffers):
    record = snapshot_files.Record(["a"])
    files.append(memoryview(b"pickle"), list(map(memoryview, buffers)), record)
    return record


def read(directory, record):
    reader = snapshot_files.Reader(str(directory), 1, is_check=False)
    return list(map(bytes, reader.pickles(record))), list(map(bytes, reader.buffers(record)))


def state(path):
    about = path.stat()
    return about.st_ino, about.st_mtime_ns, about.st_size


def test_no_call_into_the_system_writes_much(tmp_path, files, monkeypatch):
    """The session would be stopped until the time that took is made up for, its kernel with it."""
    written, write = [], os.write

    def note(file, part):
        written.append(write(file, part))
        return written[-1]

    monkeypatch.setattr(os, "write", note)
    buffers = [os.urandom(size) for size in (21 * MIB + 5, 3 * MIB, *[70_000] * 40)]
    record = append(files, *buffers)
    files.close()
    assert sum(written) > sum(map(len, buffers))
    assert max(written) <= 2 * MIB
    assert read(tmp_path, record) == ([b"pickle"], buffers)


def test_a_large_buffer_that_is_there_is_not_written_again(tmp_path, files):
    content = os.urandom(5_000_000)
    first = append(files, content)
    (path,) = (tmp_path / "blobs").iterdir()
    before = state(path)
    assert append(files, bytearray(content), content).blobs() == first.blobs()
    assert [state(one) for one in (tmp_path / "blobs").iterdir()] == [before]


@pytest.mark.parametrize("at", [0, 2_500_000, 4_999_999])
def test_what_differs_in_one_byte_is_another(tmp_path, files, at):
    content = os.urandom(5_000_000)
    other = bytearray(content)
    other[at] ^= 1
    record = append(files, content, other)
    assert len(record.blobs()) == 2
    assert read(tmp_path, record)[1] == [content, bytes(other)]


@pytest.mark.parametrize(
    "put", [lambda path: path.symlink_to("/nowhere"), lambda path: path.write_bytes(b"short")]
)
def test_what_code_puts_in_the_place_of_a_large_buffer_is_replaced(tmp_path, files, put):
    content = os.urandom(5_000_000)
    append(files, content)
    (path,) = (tmp_path / "blobs").iterdir()
    path.unlink()
    put(path)
    assert read(tmp_path, append(files, content))[1] == [content]


def test_the_disk_is_never_far_behind(files, monkeypatch):
    """What it cannot take in time is cut off by the clock of who writes, not of who waits."""
    monkeypatch.setattr(snapshot_files, "_SYNC_BYTES", 10_000_000)
    synced, fsync = [], os.fsync

    def note(file):
        fsync(file)
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{file}")))

    monkeypatch.setattr(os, "fsync", note)
    append(files, bytes(42_000_000))
    assert 4 <= len(synced) <= 5
