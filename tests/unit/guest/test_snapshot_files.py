"""Files of snapshots: pickles, and large buffers by digest."""

import os

import pytest

from interpreter_bot.guest import snapshot_files

MIB = 1024 * 1024


@pytest.fixture
def writer(tmp_path):
    snapshot_files.create_generation(str(tmp_path), 1)
    return snapshot_files.Writer(str(tmp_path), 1, 1 << 30, 0)


def append(writer, *buffers):
    record = snapshot_files.Record(["a"])
    writer.append(memoryview(b"pickle"), list(map(memoryview, buffers)), record)
    return record


def read_record(directory, record):
    reader = snapshot_files.Reader(str(directory), 1, is_check=False)
    pickles = [reader.open_pickle(start, size).read(size) for start, size in record.pickles]
    return pickles, list(map(bytes, reader.buffers(record)))


def read_file_state(path):
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def test_each_system_call_writes_little(tmp_path, writer, monkeypatch):
    """A long system call may exceed the session's processor time, and so pause its kernel."""
    sizes, write = [], os.write

    def record_write(descriptor, part):
        sizes.append(write(descriptor, part))
        return sizes[-1]

    monkeypatch.setattr(os, "write", record_write)
    buffers = [os.urandom(size) for size in (21 * MIB + 5, 3 * MIB, *[70_000] * 40)]
    record = append(writer, *buffers)
    writer.close()
    assert sum(sizes) > sum(map(len, buffers))
    assert max(sizes) <= 2 * MIB
    assert read_record(tmp_path, record) == ([b"pickle"], buffers)


def test_an_existing_blob_is_not_written_again(tmp_path, writer):
    content = os.urandom(5_000_000)
    record = append(writer, content)
    (path,) = (tmp_path / "blobs").iterdir()
    initial_state = read_file_state(path)
    assert append(writer, bytearray(content), content).blobs() == record.blobs()
    assert [read_file_state(blob) for blob in (tmp_path / "blobs").iterdir()] == [initial_state]


@pytest.mark.parametrize("position", [0, 2_500_000, 4_999_999])
def test_buffers_that_differ_in_one_byte_are_two_blobs(tmp_path, writer, position):
    content = os.urandom(5_000_000)
    other = bytearray(content)
    other[position] ^= 1
    record = append(writer, content, other)
    assert len(record.blobs()) == 2
    assert read_record(tmp_path, record)[1] == [content, bytes(other)]


@pytest.mark.parametrize(
    "replace", [lambda path: path.symlink_to("/nowhere"), lambda path: path.write_bytes(b"short")]
)
def test_a_file_of_code_in_the_place_of_a_blob_is_replaced(tmp_path, writer, replace):
    content = os.urandom(5_000_000)
    append(writer, content)
    (path,) = (tmp_path / "blobs").iterdir()
    path.unlink()
    replace(path)
    assert read_record(tmp_path, append(writer, content))[1] == [content]


def test_little_is_unsynced_at_any_time(writer, monkeypatch):
    """The time limit of a save includes the disk's time, so it must not all come at the end."""
    monkeypatch.setattr(snapshot_files, "_SYNC_BYTES", 10_000_000)
    synced_files, fsync = [], os.fsync

    def record_sync(descriptor):
        fsync(descriptor)
        synced_files.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "fsync", record_sync)
    append(writer, bytes(42_000_000))
    assert 4 <= len(synced_files) <= 5
