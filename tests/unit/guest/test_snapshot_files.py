"""Records of variables in a file."""

import os

import pytest

from interpreter_bot.guest import snapshot_blobs, snapshot_files

MIB = 1024 * 1024


@pytest.mark.parametrize("key", [b"", b"k" * 32])
def test_of_a_record_that_was_written_in_part_nothing_is_left(tmp_path, monkeypatch, key):
    def fail(file, parts):
        os.write(file, b"half of it")
        raise MemoryError

    files = snapshot_files.Writer(str(tmp_path), 1, 1 << 20, key)
    for name in "abc":
        with monkeypatch.context() as patched:
            if name == "b":
                patched.setattr(snapshot_blobs, "write_all", fail)
                with pytest.raises(MemoryError):
                    files.record(snapshot_files.VARIABLE, name, b"payload", [], 1)
            else:
                files.record(snapshot_files.VARIABLE, name, b"payload", [], 1)
    files.close()
    records = list(snapshot_files.read(str(tmp_path), 1, key=key))
    assert [(one.name, bytes(one.payload)) for one in records] == [
        *(("a", b"payload"), ("c", b"payload"))
    ]


@pytest.mark.parametrize("key", [b"", b"k" * 32])
def test_no_call_into_the_system_writes_much(tmp_path, monkeypatch, key):
    """The session would be stopped until the time that took is made up for, its kernel with it."""
    written, write = [], os.writev

    def note(file, parts):
        written.append(write(file, parts))
        return written[-1]

    monkeypatch.setattr(os, "writev", note)
    sizes = [21 * MIB + 5, 3 * MIB, *[70_000] * 40]
    buffers = [memoryview(os.urandom(size)) for size in sizes]
    files = snapshot_files.Writer(str(tmp_path), 1, 1 << 30, key)
    files.record(snapshot_files.VARIABLE, "a", b"payload", buffers, 1)
    files.close()
    assert sum(written) > sum(sizes)
    assert max(written) <= 2 * MIB
    (record,) = snapshot_files.read(str(tmp_path), 1, key=key)
    assert list(map(bytes, record.buffers)) == list(map(bytes, buffers))
