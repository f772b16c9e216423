"""Records of variables in a file."""

import os

import pytest

from interpreter_bot.guest import snapshot_files


@pytest.mark.parametrize("key", [b"", b"k" * 32])
def test_of_a_record_that_was_written_in_part_nothing_is_left(tmp_path, monkeypatch, key):
    def fail(file, parts):
        os.write(file, b"half of it")
        raise MemoryError

    files = snapshot_files.Writer(str(tmp_path), 1, 1 << 20, key)
    for name in "abc":
        with monkeypatch.context() as patched:
            if name == "b":
                patched.setattr(snapshot_files, "_write_all", fail)
                with pytest.raises(MemoryError):
                    files.record(snapshot_files.VARIABLE, name, b"payload", [], 1)
            else:
                files.record(snapshot_files.VARIABLE, name, b"payload", [], 1)
    files.close()
    records = list(snapshot_files.read(str(tmp_path), 1, key=key))
    assert [(one.name, bytes(one.payload)) for one in records] == [
        *(("a", b"payload"), ("c", b"payload"))
    ]
