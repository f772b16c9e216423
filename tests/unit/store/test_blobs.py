import hashlib
import os

import pytest

from interpreter_bot import errors
from interpreter_bot.store import blobs


@pytest.fixture
def blob_files(tmp_path):
    return blobs.Blobs(tmp_path / "kept")


async def test_what_is_kept_comes_back(blob_files):
    digest = await blob_files.save(b"\x00picture")
    assert (
        digest
        == hashlib.sha256(b"\x00picture").hexdigest()
        == await blob_files.save(b"\x00picture")
    )
    assert await blob_files.load(digest) == b"\x00picture"


@pytest.mark.parametrize("name", ["0" * 64, "../../etc/passwd", "", "A" * 64, "0" * 64 + "\n"])
async def test_a_file_that_is_not_kept_is_none(blob_files, name):
    await blob_files.save(b"something")
    assert await blob_files.load(name) is None


async def test_a_damaged_file_is_none_until_it_is_kept_again(blob_files, tmp_path):
    digest = await blob_files.save(b"whole")
    (tmp_path / "kept" / digest[:2] / digest).write_bytes(b"ha")
    assert await blob_files.load(digest) is None
    await blob_files.save(b"whole")
    assert await blob_files.load(digest) == b"whole"


async def test_a_fresh_file_is_never_discarded(blob_files):
    digest = await blob_files.save(b"about to be referred to")
    assert await blob_files.list_old() == frozenset()
    await blob_files.discard([digest])
    assert await blob_files.load(digest) is not None


async def test_what_a_killed_bot_left_half_written_is_discarded(blob_files, tmp_path):
    digest = await blob_files.save(b"whole")
    old_file, new_file = (tmp_path / "kept" / digest[:2] / name for name in (".left", ".writing"))
    for partial_file in (old_file, new_file):
        partial_file.write_bytes(b"ha")
    os.utime(old_file, (0, 0))
    await blob_files.discard([])
    assert not old_file.exists()
    assert new_file.exists()
    assert await blob_files.load(digest) == b"whole"


async def test_no_room_is_a_sentence(tmp_path):
    (tmp_path / "kept").write_text("in the way")
    with pytest.raises(errors.BotError, match="could not be stored"):
        await blobs.Blobs(tmp_path / "kept").save(b"x")
