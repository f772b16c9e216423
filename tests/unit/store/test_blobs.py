import hashlib
import os

import pytest

from interpreter_bot import errors
from interpreter_bot.store import blobs


@pytest.fixture
def files(tmp_path):
    return blobs.Blobs(tmp_path / "kept")


async def test_what_is_kept_comes_back(files):
    digest = await files.save(b"\x00picture")
    assert digest == hashlib.sha256(b"\x00picture").hexdigest() == await files.save(b"\x00picture")
    assert await files.load(digest) == b"\x00picture"


@pytest.mark.parametrize("name", ["0" * 64, "../../etc/passwd", "", "A" * 64, "0" * 64 + "\n"])
async def test_a_file_that_is_not_kept_is_none(files, name):
    await files.save(b"something")
    assert await files.load(name) is None


async def test_a_damaged_file_is_none_until_it_is_kept_again(files, tmp_path):
    digest = await files.save(b"whole")
    (tmp_path / "kept" / digest[:2] / digest).write_bytes(b"ha")
    assert await files.load(digest) is None
    await files.save(b"whole")
    assert await files.load(digest) == b"whole"


async def test_a_fresh_file_is_never_discarded(files):
    digest = await files.save(b"about to be referred to")
    assert await files.list_old() == frozenset()
    await files.discard([digest])
    assert await files.load(digest) is not None


async def test_what_a_killed_bot_left_half_written_is_discarded(files, tmp_path):
    digest = await files.save(b"whole")
    left, writing = (tmp_path / "kept" / digest[:2] / name for name in (".left", ".writing"))
    for one in (left, writing):
        one.write_bytes(b"ha")
    os.utime(left, (0, 0))
    await files.discard([])
    assert not left.exists()
    assert writing.exists()
    assert await files.load(digest) == b"whole"


async def test_no_room_is_a_sentence(tmp_path):
    (tmp_path / "kept").write_text("in the way")
    with pytest.raises(errors.BotError, match="could not be stored"):
        await blobs.Blobs(tmp_path / "kept").save(b"x")
