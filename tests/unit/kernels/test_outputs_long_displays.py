"""A display of many megabytes is read in bounded time, and as it was sent."""

import base64
import json
import time

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels import mime_bundles, outputs
from interpreter_bot.kernels.wire import jupyter_messages

LONG = 11_000_000
PNG = b"\x89PNG\r\n\x1a\n"
DISPLAYS = {
    "letters": {"text/html": "a" * LONG},
    "wide letters": {"text/html": "a€😀" * (LONG // 8)},
    "a wide letter at the end": {"text/html": "a" * LONG + "😀"},
    "halves of letters": {"text/html": "\ud800abcdef" * (LONG // 12)},
    "escapes and commas": {"text/html": '<a b="c">,[{\n' * (LONG // 17)},
    "a drawing": {"image/svg+xml": "<svg>" + "é" * (LONG // 2)},
    "a picture": {"image/png": base64.b64encode(PNG + bytes(LONG // 4 * 3)).decode()},
    "words": {"text/plain": "a€😀" * (LONG // 8)},
}
# Half of a pair is in JSON only so; the others are as long as they may be.
ESCAPED = {"halves of letters"}
MAX_SECONDS = 1.0


def read(document):
    content = jupyter_messages.parse_json(document)
    message = jupyter_messages.Message("1", "display_data", content)
    return outputs.OutputReader(settings.Limits()).read(message)


@pytest.mark.first_case
@pytest.mark.parametrize("what", DISPLAYS)
def test_the_longest_displays_are_read_as_sent_and_quickly(what):
    data = DISPLAYS[what]
    document = json.dumps({"data": data}, ensure_ascii=what in ESCAPED).encode()

    began = time.thread_time()
    shown = read(document)
    seconds = time.thread_time() - began

    assert shown == (mime_bundles.choose_form(data, max_bytes=12 * settings.MIB),)
    assert seconds < MAX_SECONDS


def test_long_forms_that_must_be_short_are_refused():
    long = "x" * 5_000_000
    document = json.dumps({"data": {"text/latex": long, "text/plain": "p"}}).encode()
    assert read(document) == (values.Result(plain="p"),)
    document = json.dumps({"data": {mime_bundles.TITLE_MIME: long, "text/plain": "p"}}).encode()
    assert read(document) == (values.Result(plain="p"),)
    document = json.dumps({"data": {"application/json": [long], "text/plain": "p"}}).encode()
    assert "Too large to be shown" in read(document)[0].text


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_deep_document_is_refused(opening):
    with pytest.raises(jupyter_messages.MalformedMessage):
        jupyter_messages.parse_json(opening * 29_000)
