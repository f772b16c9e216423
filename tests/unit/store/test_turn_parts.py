import pytest

from interpreter_bot import values
from interpreter_bot.store import blobs, columns, turn_parts


@pytest.fixture
def files(tmp_path):
    return blobs.Blobs(tmp_path / "kept")


async def test_an_output_beyond_measure_leaves_a_notice(files):
    stored = await turn_parts.store_output(values.Json(json="x" * 5_000_000), files)
    assert isinstance(stored, values.Notice)


async def test_a_page_is_kept_as_it_is(files):
    stored = await turn_parts.store_output(values.Html(html=b"<b>\xff</b>"), files)
    assert await files.load(stored.sha256) == b"<b>\xff</b>"
    assert stored.size_bytes == 8


def test_what_a_preview_is_of_is_kept_without_it():
    formula = values.Latex(latex="$x$", preview=b"\x89PNG")
    document = columns.Output().process_bind_param(formula, None)
    assert columns.Output().process_result_value(document, None) == values.Latex(latex="$x$")
