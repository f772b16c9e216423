"""Hostile bytes, messages, bundles and tables at random: whatever comes is read or refused.

Always the same 400 cases, in `make test-all` 2,000; `python -m bench hostility` runs 200,000 and
says what took longest.
"""

import base64
import contextlib
import json
import os
import re
import time

import hypothesis
import pytest
from hypothesis import strategies as st

from interpreter_bot import settings, values
from interpreter_bot.kernels import mime_bundles, outputs
from interpreter_bot.kernels.wire import jupyter_messages, zmtp
from interpreter_bot.text import safe_text

IS_THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
CASES = int(os.environ.get("FUZZ_CASES", "2000" if IS_THOROUGH else "400"))
SECONDS: list[float] = []
"""What each step of each case took of the processor."""
COLOUR = re.compile(r"\x1b\[[\d;:]*m")
SIGNER = jupyter_messages.Signer(b"key")
PARENT = "request"
# What breaks readers: escapes, halves, controls, separators, quotes, brackets, all widths.
LETTERS = st.sampled_from(
    [
        *'\\"[]{},:u0 aé€😀\x00\x1b\x9b\u202e\ud800\udc00\r\n',
        "\x1b[31m",
        "\x1b]0;",
        "<svg",
        "</script>",
    ]
)
TEXTS = st.lists(LETTERS, max_size=12).map("".join) | st.text(max_size=12)
NUMBERS = (
    st.integers()
    | st.floats()
    | st.integers(60, 70).map(lambda digits: int("9" * digits))
    | st.sampled_from([True, False, None, -1, 10**15, 10**16, 10**300])
)
LEAVES = TEXTS | NUMBERS
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
PICTURES = st.builds(
    lambda magic, rest, cut: base64.b64encode(magic + rest).decode()[cut:],
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF....WEBP", b""]),
    st.binary(max_size=60),
    st.integers(0, 2),
)
ROWS = st.lists(st.lists(TEXTS | LEAVES, max_size=5), max_size=5)
TABLES = st.fixed_dictionaries(
    {},
    optional={
        "columns": st.lists(TEXTS, max_size=5) | TREES,
        "rows": ROWS | TREES,
        "row_count": st.integers(-1, 9) | NUMBERS,
        "column_count": st.integers(-1, 9) | NUMBERS,
        "index_count": st.integers(-1, 3) | NUMBERS,
        "handle": st.sampled_from(["t1", "t", "../t1"]) | TREES,
    },
)
MIMES = [mime for mime, _, _ in mime_bundles._FORMS]
MIMES += ["text/plain", mime_bundles.PREVIEW_MIME, mime_bundles.TITLE_MIME, "a/b", ""]
BUNDLES = st.dictionaries(
    st.sampled_from(MIMES), PICTURES | TEXTS | TABLES | st.lists(TEXTS, max_size=4) | TREES
)
CONTENTS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["stdout", "stderr"]) | TREES,
        "text": TEXTS | TREES,
        "data": BUNDLES | TREES,
        "transient": st.fixed_dictionaries({"display_id": TEXTS | TREES}) | TREES,
        "ename": TEXTS | TREES,
        "evalue": TEXTS | TREES,
        "traceback": st.lists(TEXTS) | TREES,
        "wait": st.booleans() | TREES,
        "execution_state": st.sampled_from(["idle", "busy"]) | TREES,
        "variables": st.fixed_dictionaries({"names": st.lists(TEXTS) | TREES, "count": NUMBERS})
        | TREES,
    },
)
KINDS = st.sampled_from(
    ["stream", "display_data", "execute_result", "update_display_data", "error", "clear_output"]
)


def fuzzed(share, *strategies):
    """Give a property its share of the cases, always the same ones."""

    def decorate(check):
        given = hypothesis.given(*strategies)(check)
        return hypothesis.settings(
            max_examples=CASES * share // 100,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )(given)

    return decorate


@contextlib.contextmanager
def timed():
    began = time.thread_time()
    try:
        yield
    finally:
        SECONDS.append(time.thread_time() - began)


FRAMES = st.builds(
    lambda flags, size, body: bytes((flags, *size)) + body,
    st.sampled_from([0, 1, 2, 3, 4, 6, 5, 8, 255]),
    st.binary(min_size=1, max_size=1)
    | st.integers(0, 2**64 - 1).map(lambda n: n.to_bytes(8, "big")),
    st.binary(max_size=300),
)
WIRES = st.lists(
    FRAMES
    | st.lists(st.binary(max_size=300), min_size=1, max_size=70).map(zmtp.build_message)
    | st.sampled_from([b"\x04\x09\x04PING\x00\x0ahi", b"\x04\x09\x08NEWSPEAK", b"\x04\x00"])
)


@fuzzed(30, st.sampled_from(["DEALER", "SUB"]), st.booleans(), WIRES, st.integers(1, 400))
def test_bytes_are_messages_or_refused(kind, is_greeted, wires, size):
    decoder = zmtp.Decoder(kind)
    peer = b"ROUTER" if kind == "DEALER" else b"XPUB"
    body = b"\x05READY\x0bSocket-Type" + len(peer).to_bytes(4, "big") + peer
    data = b"".join(wires)
    if is_greeted:
        data = zmtp.build_opening("DEALER", b"")[:64] + bytes((4, len(body))) + body + data
    is_ready = False
    for start in range(0, len(data), size):
        decoder.feed(data[start : start + size])
        with timed():
            try:
                is_ready = is_ready or decoder.greet()
                while is_ready and (event := decoder.next()) is not None:
                    assert isinstance(event, (list, zmtp.ZmtpCommand))
            except zmtp.MessageTooLargeError:
                pass
            except zmtp.BrokenProtocolError:
                return


NOISE = st.binary(max_size=50) | TREES.map(lambda tree: json.dumps(tree).encode())
OBJECTS = st.dictionaries(TEXTS, TREES, max_size=2)
HEADERS = st.fixed_dictionaries(
    {"msg_id": st.just("1") | TREES, "msg_type": KINDS | TREES}, optional={"session": TREES}
)


@fuzzed(
    10, HEADERS, st.just({"msg_id": PARENT}) | OBJECTS, NOISE, CONTENTS, st.lists(NOISE, max_size=3)
)
def test_frames_are_a_message_or_refused(header, parent, metadata, content, more):
    parts = [json.dumps(part).encode() for part in (header, parent)]
    parts += [metadata, json.dumps(content).encode()]
    signature = SIGNER.sign(parts)
    frames = [*more, b"<IDS|MSG>", signature, *parts, *more]
    try:
        with timed():
            message = SIGNER.unpack(frames, expected_parent=PARENT)
    except jupyter_messages.MalformedMessage:
        return
    assert parent["msg_id"] == PARENT
    # As text, because what is not a number does not even equal itself.
    assert json.dumps(message.content) == json.dumps(json.loads(json.dumps(content)))


@fuzzed(10, st.lists(st.tuples(KINDS, CONTENTS), min_size=1, max_size=2))
def test_messages_are_outputs_that_can_be_shown(messages):
    reader = outputs.OutputReader(settings.Limits(output_bytes=100), max_displays=2)
    for kind, content in messages:
        with timed():
            read = reader.read(jupyter_messages.Message("1", kind, content))
        for output in read:
            json.dumps(output.plain).encode()
            output.plain.encode()
            assert not {"\x1b", "\x00"} & set(COLOUR.sub("", output.plain))
            if isinstance(output, values.Table):
                assert all(len(row) == len(output.columns) for row in output.rows)
                assert output.row_count >= len(output.rows)
            if isinstance(output, values.Html):
                output.html.decode()
    names = outputs.read_names(messages[0][1])
    assert names is None or all(name.isidentifier() for name in names.names)


@fuzzed(30, TEXTS, st.integers(1, 20))
def test_texts_in_steps_are_what_they_are_whole(text, step):
    with timed():
        whole = safe_text.clean(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safe_text, "_CHUNK_CHARACTERS", step)
        stepped = safe_text.clean(text)
    assert not {"\x1b", "\x00", "\x9b"} & set(stepped)
    assert "\x1b" in text or stepped == whole
