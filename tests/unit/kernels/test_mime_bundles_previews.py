"""Previews and titles of displays, which a kernel may send as it likes."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot import values
from interpreter_bot.kernels import mime_bundles

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
RICH = {
    "text/html": "<p>x</p>",
    "text/latex": "$x$",
    "image/svg+xml": "<svg></svg>",
}


def choose(data):
    return mime_bundles.choose_form(data, max_bytes=10_000_000)


def encoded(data):
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("mime", RICH)
def test_what_needs_a_preview_has_one(mime):
    assert choose({mime: RICH[mime], mime_bundles.PREVIEW_MIME: encoded(PNG)}).preview == PNG
    assert choose({mime: RICH[mime]}).preview == b""


@pytest.mark.parametrize("form", ["", "?", 3, None, encoded(b"GIF89a"), "A" * 5_000_000])
def test_what_is_no_preview_is_none(form):
    assert choose({"text/html": "x", mime_bundles.PREVIEW_MIME: form}).preview == b""


def test_a_preview_alone_shows_nothing():
    shown = choose({mime_bundles.PREVIEW_MIME: encoded(PNG), "text/plain": "words"})
    assert shown == values.Result(plain="words")


def test_a_picture_that_can_be_shown_everywhere_has_no_preview():
    assert (
        choose({"image/png": encoded(PNG), mime_bundles.PREVIEW_MIME: encoded(PNG)}).preview == b""
    )


@given(st.text(st.characters(codec=None)))
def test_a_title_is_one_short_line(title):
    shown = choose({"text/html": "x", mime_bundles.TITLE_MIME: title}).title
    assert len(shown) <= 200
    assert shown == " ".join(shown.split())
    assert "\x1b" not in shown


@pytest.mark.parametrize("title", [None, 3, ["a", 3]])
def test_what_is_no_title_is_none(title):
    assert choose({"text/html": "x", mime_bundles.TITLE_MIME: title}).title == ""
