import json

import pytest

from interpreter_bot import values
from interpreter_bot.store import blobs, turn_parts


@pytest.fixture
def files(tmp_path):
    return blobs.Blobs(tmp_path / "kept")


async def test_an_output_beyond_measure_leaves_a_notice(files):
    document, sha256 = await turn_parts.encode(values.Json(json="x" * 5_000_000), files)
    assert isinstance(turn_parts.decode(document), values.Notice)
    assert sha256 is None


async def test_a_page_is_kept_as_it_is(files):
    document, sha256 = await turn_parts.encode(values.Html(html=b"<b>\xff</b>"), files)
    assert await files.load(sha256) == b"<b>\xff</b>"
    assert turn_parts.decode(document).size_bytes == 8


async def test_what_a_preview_is_of_is_kept_without_it(files):
    formula = values.Latex(latex="$x$", preview=b"\x89PNG")
    document, _ = await turn_parts.encode(formula, files)
    json.dumps(document)
    assert turn_parts.decode(document) == values.Latex(latex="$x$")
