"""A display of many megabytes is read without a call that keeps other threads waiting."""

import base64
import json
import sys
import time

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels import mime_bundles, outputs
from interpreter_bot.kernels.wire import jupyter_messages, untrusted_json

LONG = 11_000_000
PNG = b"\x89PNG\r\n\x1a\n"
DISPLAYS = {
    "letters": {"text/html": "a" * LONG},
    "wide letters": {"text/html": "a€😀" * (LONG // 8)},
    "a wide letter at the end": {"text/html": "a" * LONG + "😀"},
    "halves of letters": {"text/html": "\ud800abcdef" * (LONG // 12)},
    "a drawing": {"image/svg+xml": "<svg>" + "é" * (LONG // 2)},
    "a picture": {"image/png": base64.b64encode(PNG + bytes(LONG // 4 * 3)).decode()},
    "words": {"text/plain": "a€😀" * (LONG // 8)},
}
# Half of a pair is in JSON only so; the others are as long as they may be.
ESCAPED = {"halves of letters"}
# They let other threads run.
FREE = {"bytes.join"}


def read(document, into=None):
    """Parse and read a display; notes the processor time of what other threads wait for."""
    last = time.thread_time()

    def note(_, event, called):
        nonlocal last
        now = time.thread_time()
        if event != "c_return" or called.__qualname__ not in FREE:
            into.append(now - last)
        last = now

    content = None
    sys.setprofile(None if into is None else note)
    try:
        steps = untrusted_json.load(document)
        while content is None:
            try:
                steps.send(None)
            except StopIteration as done:
                content = done.value
        message = jupyter_messages.Message("1", "display_data", "p", content, {})
        return outputs.OutputReader(settings.Limits()).read(message)
    finally:
        sys.setprofile(None)


def copied():
    """Processor time of one copy of as many characters, one of them wide."""
    text = "a" * LONG
    began = time.thread_time()
    "".join((text, "😀"))
    return time.thread_time() - began


@pytest.mark.parametrize("what", DISPLAYS)
def test_no_call_takes_as_long_as_a_copy_of_the_text(what):
    document = json.dumps({"data": DISPLAYS[what]}, ensure_ascii=what in ESCAPED).encode()

    longest, copy = [], []
    for _ in range(3):
        seconds = []
        read(document, seconds)
        longest.append(max(seconds))
        copy.append(copied())

    assert min(longest) < min(copy) / 4, (longest, copy)


def test_long_displays_are_what_they_would_be_whole():
    for what in ("a wide letter at the end", "a drawing", "a picture", "words"):
        data = DISPLAYS[what]
        document = json.dumps({"data": data}, ensure_ascii=False).encode()
        assert read(document) == (mime_bundles.choose(data, most_bytes=12 * settings.MIB),)


def test_long_forms_that_must_be_short_are_refused():
    long = "x" * 5_000_000
    for mime in ("text/latex", mime_bundles.TITLE_MIME):
        document = json.dumps({"data": {mime: long, "text/plain": "p"}}).encode()
        assert read(document) == (values.Result(plain="p"),)
    document = json.dumps({"data": {"application/json": [long], "text/plain": "p"}}).encode()
    assert "Too large to be shown" in read(document)[0].text
    with pytest.raises(untrusted_json.IntricateError):
        read(json.dumps({long: 1}).encode())
