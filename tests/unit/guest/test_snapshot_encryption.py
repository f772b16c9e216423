"""Snapshots that are encrypted: nothing of them to read, and nothing to change unseen."""

import json
import os
import shutil

import numpy
import pytest

from interpreter_bot import encryption
from interpreter_bot.guest import snapshot_encryption, snapshots

KEY, OTHER = bytes(range(32)), bytes(32)
MISSING = "its file was cut off, changed or damaged"
SECRET = b"a secret of somebody's"


class Session:
    """A namespace, and the directory of its snapshots."""

    def __init__(self, directory, **names):
        self.directory = directory
        self.names = {"__name__": "__main__", **names}

    def save(self, number, key=KEY):
        directory = str(self.directory)
        names = [name for name in self.names if not name.startswith("__")]
        bounds = {"seconds": 60.0, "most_bytes": 1 << 30}
        child = snapshots.begin(self.names, names, directory, number, **bounds, key=key)
        os.waitpid(child, 0)
        manifest = (self.directory / f"{number}" / "manifest.json").read_bytes()
        return json.loads(encryption.unseal(key, f"{number}/manifest.json", manifest))

    def restored(self, number, key=KEY):
        """What another process has of it, and what failed there."""
        names = {"__name__": "__main__"}
        failed = snapshots.restore(names, str(self.directory), number, key)
        return names, failed


@pytest.fixture
def session(tmp_path):
    """One with a variable of each kind: alone, shared, of several buffers, and a large one."""
    words = [SECRET.decode()] * 1000
    small = numpy.arange(20_000.0)
    large = numpy.arange(1_500_000.0)
    return Session(tmp_path, words=words, small=small, again=[words, small], large=large)


def test_all_comes_back_and_nothing_can_be_read_without_the_key(session):
    manifest = session.save(1)
    assert manifest["kept_count"] == 4
    names, failed = session.restored(1)
    assert failed == {}
    assert names["again"][0] is names["words"]
    assert names["again"][1] is names["small"]
    assert (names["large"] == session.names["large"]).all()
    names["large"][0] = 7
    assert session.restored(1)[0]["large"][0] == 0
    pieces = [session.names["large"][1000:1010].tobytes(), SECRET, b"words"]
    files = [path for path in session.directory.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"variables", "details.json", "failed.json"}
    for path in files:
        content = path.read_bytes()
        assert not [piece for piece in pieces if piece in content], path
    with pytest.raises(snapshot_encryption.DamagedError):
        session.restored(1, OTHER)


def test_what_did_not_change_is_not_encrypted_again(session):
    session.save(1)
    [blob] = (session.directory / "blobs").iterdir()
    before = blob.stat().st_mtime_ns
    session.names["small"][0] = 1
    session.save(2)
    assert [path.stat().st_mtime_ns for path in blob.parent.iterdir()] == [before]
    assert session.restored(2)[0]["small"][0] == 1


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_a_flipped_bit_loses_what_it_is_in_and_says_so(session, share):
    session.save(1)
    path = session.directory / "1" / "variables"
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 1
    path.write_bytes(content)
    try:
        names, failed = session.restored(1)
    except snapshot_encryption.DamagedError:
        assert share == 0.0
        return
    assert set(failed) == session.names.keys() - names.keys() - {"__name__"} != set()
    assert set(failed.values()) == {MISSING}
    for name in names.keys() & {"words", "small", "large"}:
        assert numpy.array_equal(names[name], session.names[name])


@pytest.mark.parametrize("kept", [0, 30, 200, 0.5, 0.999])
def test_a_file_that_was_cut_off_says_what_is_missing(session, kept):
    session.save(1)
    path = session.directory / "1" / "variables"
    size = path.stat().st_size
    os.truncate(path, kept if isinstance(kept, int) else int(kept * size))
    try:
        names, failed = session.restored(1)
    except snapshot_encryption.DamagedError:
        assert kept in (0, 30)
        return
    except ValueError:
        assert kept in (0, 30)
        return
    assert failed.keys() | names.keys() >= session.names.keys() - {"__name__"}
    assert "large" in failed


def test_a_large_buffer_that_was_changed_is_lost_alone(session):
    session.save(1)
    [blob] = (session.directory / "blobs").iterdir()
    content = bytearray(blob.read_bytes())
    content[-5] ^= 4
    blob.write_bytes(content)
    names, failed = session.restored(1)
    assert failed == {"large": "its file was changed, or is damaged"}
    assert {"words", "small", "again"} <= names.keys()


def test_no_file_stands_in_for_another_generation_s_or_session_s(session, tmp_path_factory):
    session.save(1)
    session.names["words"] = ["newer"]
    session.save(2)
    # An older state under the name of a newer one, and one file of it alone.
    own = session.directory
    shutil.copy(own / "2" / "variables", own / "kept")
    shutil.copy(own / "1" / "variables", own / "2" / "variables")
    with pytest.raises(snapshot_encryption.DamagedError):
        session.restored(2)
    shutil.copy(own / "kept", own / "2" / "variables")
    shutil.copy(own / "1" / "details.json", own / "2" / "details.json")
    with pytest.raises(snapshot_encryption.DamagedError):
        session.restored(2)
    # What another session wrote, whose key is another.
    other = Session(tmp_path_factory.mktemp("other"), words=["theirs"], large=numpy.ones(1_000_000))
    other.save(3, OTHER)
    [theirs], [ours] = [sorted((one.directory / "blobs").iterdir())[:1] for one in (other, session)]
    shutil.copy(theirs, ours)
    assert "large" in session.restored(1)[1]
    shutil.copytree(other.directory / "3", own / "3")
    with pytest.raises(snapshot_encryption.DamagedError):
        session.restored(3)


def test_pieces_can_neither_be_swapped_nor_left_out(tmp_path):
    cipher = snapshot_encryption.FileCipher(KEY, "name")
    parts = [memoryview(bytes([n]) * 100_000) for n in range(4)]
    pieces = [bytes(piece) for piece in cipher.pieces(parts, 0)]
    whole = list(zip(pieces[::2], pieces[1::2], strict=True))
    path = tmp_path / "file"

    def read(*order):
        path.write_bytes(cipher.head + b"".join(b"".join(whole[n]) for n in order))
        return len(snapshot_encryption.read(str(path), KEY, "name", is_check=False))

    assert read(0, 1, 2, 3) == 400_000
    for order in ((0, 2, 1, 3), (0, 1, 3), (0, 1, 1, 2)):
        assert read(*order) < 100_000 * len(order)
    with pytest.raises(snapshot_encryption.DamagedError):
        read(1, 0, 2, 3)
    with pytest.raises(snapshot_encryption.DamagedError):
        snapshot_encryption.read(str(path), KEY, "another", is_check=False)
