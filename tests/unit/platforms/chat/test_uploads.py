"""Files of an answer, fitted to what the network takes."""

import pytest

from interpreter_bot import events, values
from interpreter_bot.platforms.chat import transport, uploads
from interpreter_bot.platforms.discord import markdown

LIMIT_BYTES = 1000


@pytest.fixture
def spool():
    spool = uploads.UploadSpool(markdown, max_file_bytes=LIMIT_BYTES)
    yield spool
    spool.close()


@pytest.mark.parametrize("has_copy", [True, False])
async def test_a_compressed_file_that_was_refused_is_not_tried_again(spool, has_copy):
    copy = spool.directory / "copy.part"
    copy.write_bytes(b"x" * 10 * LIMIT_BYTES)
    artifact = values.Artifact("a.csv", 10 * LIMIT_BYTES, "digest")
    made = events.FileMade(0, artifact, copy if has_copy else None)
    compressed = await spool.prepare(made)
    assert (compressed.name, compressed.is_gone) == ("a.csv.zip", not has_copy)
    spool.refuse(transport.FilesRefusedError([compressed], reason="it is forbidden."))
    assert await spool.prepare(made) == "`a.csv` could not be sent: it is forbidden."
