"""Large buffers in files of their own: which are written, and which are there already."""

import os

import pytest

from interpreter_bot.guest import snapshot_blobs

KEYS = [b"", b"k" * 32]


def state(path):
    about = path.stat()
    return about.st_ino, about.st_mtime_ns, about.st_size


@pytest.mark.parametrize("key", KEYS)
def test_what_is_there_is_not_written_again(tmp_path, key):
    content = os.urandom(3_000_000)
    name = snapshot_blobs.BlobWriter(str(tmp_path), key).write(memoryview(content))
    (path,) = (tmp_path / "blobs").iterdir()
    before = state(path)
    writer = snapshot_blobs.BlobWriter(str(tmp_path), key)
    assert {writer.write(memoryview(bytes(content))) for _ in range(2)} == {name}
    assert [state(one) for one in (tmp_path / "blobs").iterdir()] == [before]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("at", [0, 1_500_000, 2_999_999])
def test_what_differs_in_one_byte_is_another(tmp_path, key, at):
    content = os.urandom(3_000_000)
    other = bytearray(content)
    other[at] ^= 1
    writer = snapshot_blobs.BlobWriter(str(tmp_path), key)
    names = [writer.write(memoryview(one)).hex() for one in (content, other)]
    for name, one in zip(names, (content, other), strict=True):
        read = snapshot_blobs.read(str(tmp_path), name, len(one), key, is_check=False)
        assert read == memoryview(one)


def test_one_that_a_crash_has_damaged_is_not_taken_for_whole(tmp_path):
    content = os.urandom(3_000_000)
    name = snapshot_blobs.BlobWriter(str(tmp_path), b"").write(memoryview(content)).hex()
    (tmp_path / "blobs" / name).write_bytes(bytes(3_000_000))
    again = snapshot_blobs.BlobWriter(str(tmp_path), b"").write(memoryview(content)).hex()
    assert (tmp_path / "blobs" / again).read_bytes() == content


def test_what_code_put_there_is_passed_over(tmp_path):
    content = bytes(3_000_000)
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    (blobs / ("a" * 64)).symlink_to("/nowhere")
    (blobs / ("b" * 64)).mkdir()
    (blobs / "name").write_bytes(content)
    os.mkfifo(blobs / ("c" * 64))
    gone, replaced = blobs / ("e" * 64), blobs / ("f" * 64)
    for path in (gone, replaced):
        path.write_bytes(content)
    writer = snapshot_blobs.BlobWriter(str(tmp_path), b"")
    for path in (gone, replaced):
        path.unlink()
    replaced.mkdir()
    name = writer.write(memoryview(content)).hex()
    assert (blobs / name).read_bytes() == content
    assert name not in {"name", *(letter * 64 for letter in "abcef")}


def test_many_that_differ_late_are_not_compared_for_longer_than_it_takes_to_write_them(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(snapshot_blobs, "_MOST_COMPARED_IN_VAIN_BYTES", 0)
    read_bytes = []

    class Counted(bytearray):
        def __ne__(self, other):
            read_bytes.append(other.nbytes)
            return super().__ne__(other)

    monkeypatch.setattr(snapshot_blobs, "bytearray", Counted, raising=False)
    contents = [bytes(100_000) + number.to_bytes(4) for number in range(40)]
    writer = snapshot_blobs.BlobWriter(str(tmp_path), b"")
    names = [writer.write(memoryview(one)) for one in contents]
    assert len(set(names)) == 40
    # Each would be compared with all before it, 20 times as much as is written.
    assert len(contents) / 4 < len(read_bytes) <= len(contents) + 1
    for number, name in enumerate(names):
        # The clock of files stands still for milliseconds.
        os.utime(tmp_path / "blobs" / name.hex(), ns=(number, number))
    read_bytes.clear()
    # Nothing is new: each is found at once.
    writer = snapshot_blobs.BlobWriter(str(tmp_path), b"")
    assert [writer.write(memoryview(one)) for one in contents] == names
    assert len(read_bytes) == 40


def test_the_disk_is_never_far_behind(tmp_path, monkeypatch):
    """What it cannot take in time is cut off by the clock of who writes, not of who waits."""
    monkeypatch.setattr(snapshot_blobs, "MOST_UNSYNCED_BYTES", 10_000_000)
    synced, fsync = [], os.fsync

    def note(file):
        fsync(file)
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{file}")))

    monkeypatch.setattr(os, "fsync", note)
    writer = snapshot_blobs.BlobWriter(str(tmp_path), b"")
    names = [writer.write(memoryview(bytes([n]) * 4_000_000)).hex() for n in range(10)]
    assert 3 * len(set(names) - set(synced)) <= len(names)
    synced.clear()
    writer.write(memoryview(bytes(40_000_000)))
    partial = f"partial.{os.getpid()}"
    assert 2 <= synced.count(partial) <= 4
