"""Messages are signed like Jupyter's, and whatever is no message is called so."""

import datetime
import hashlib
import hmac
import json
import time

import hypothesis
import pytest
from hypothesis import strategies
from jupyter_client import session

from interpreter_bot import errors
from interpreter_bot.kernels.wire import jupyter_messages

KEY = b"a key that both ends know"
SIGNER = jupyter_messages.Signer(KEY)
DELIMITER = b"<IDS|MSG>"
HEADER = {"msg_id": "1", "msg_type": "stream"}
HOSTILE_JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.floats() | strategies.text(),
    lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
    max_leaves=20,
)
NO_JSON_NAN = strategies.recursive(
    strategies.none()
    | strategies.integers(-(10**50), 10**50)
    | strategies.floats(allow_nan=False)
    | strategies.text(strategies.characters(codec=None)),
    lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
    max_leaves=20,
)


def signed(*parts, key=KEY):
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in parts]
    signature = hmac.new(key, b"".join(parts), hashlib.sha256).hexdigest().encode()
    return [DELIMITER, signature, *parts]


def unpacked(frames, **options):
    return SIGNER.unpack(frames, **options)


@pytest.fixture
def jupyter():
    return session.Session(key=KEY, username="kernel")


def test_jupyter_accepts_what_we_pack(jupyter):
    msg_id, frames = SIGNER.pack("execute_request", {"code": "1+1"}, parent_id="before")
    identities, rest = jupyter.feed_identities([b"router", *frames])
    message = jupyter.deserialize(rest)
    assert identities == [b"router"]
    assert message["header"]["msg_id"] == message["msg_id"] == msg_id
    assert message["header"]["version"] == "5.3"
    assert message["msg_type"] == "execute_request"
    assert message["content"] == {"code": "1+1"}
    assert message["parent_header"]["msg_id"] == "before"
    age = datetime.datetime.now(datetime.UTC) - message["header"]["date"]
    assert abs(age) < datetime.timedelta(minutes=1)


def test_we_accept_what_jupyter_packs(jupyter):
    parent = jupyter.msg("execute_request", {})
    sent = jupyter.msg(
        "stream", {"name": "stdout", "text": "é\n"}, parent=parent, metadata={"a": [1]}
    )
    message = unpacked(jupyter.serialize(sent, ident=[b"kernel.iopub.stream"]))
    assert message == jupyter_messages.Message(
        msg_id=sent["msg_id"],
        msg_type="stream",
        content={"name": "stdout", "text": "é\n"},
    )


def test_jupyter_refuses_what_another_key_signed(jupyter):
    _, frames = jupyter_messages.Signer(b"another").pack("execute_request", {})
    with pytest.raises(ValueError, match="Invalid Signature"):
        jupyter.deserialize(jupyter.feed_identities(frames)[1])


@hypothesis.given(
    strategies.dictionaries(strategies.text(strategies.characters(codec=None)), NO_JSON_NAN),
    strategies.sampled_from(["", "a parent"]),
)
def test_what_is_packed_unpacks_to_the_same(content, parent_id):
    msg_id, frames = SIGNER.pack("stream", content, parent_id=parent_id)
    message = unpacked(frames)
    assert (message.msg_id, message.msg_type) == (msg_id, "stream")
    # Python reads two escaped halves of a character as the character.
    assert message.content == json.loads(json.dumps(content))
    assert unpacked(frames, expected_parent=parent_id) == message


def test_ids_cannot_be_foreseen():
    ids = {SIGNER.pack("execute_request", {})[0] for _ in range(100)}
    assert len({msg_id[:16] for msg_id in ids}) == 100


def test_identities_and_buffers_are_ignored():
    frames = [b"identity", b"", *signed(HEADER, {}, {}, {"a": 1}), b"a buffer", b"another"]
    assert unpacked(frames).content == {"a": 1}


def test_constants_that_json_does_not_know_are_read():
    message = unpacked(signed(HEADER, {}, {}, b'{"a": [NaN, Infinity]}'))
    assert str(message.content) == "{'a': [nan, inf]}"


def with_bad_signature():
    frames = signed(HEADER, {}, {}, {})
    return [frames[0], frames[1][:-1] + b"?", *frames[2:]]


MALFORMED = {
    "nothing": [],
    "no delimiter": signed(HEADER, {}, {}, {})[1:],
    "only a delimiter": [DELIMITER],
    "a signature and no more": [DELIMITER, b"signature"],
    "too few parts": signed(HEADER, {}, {}),
    "another key": signed(HEADER, {}, {}, {}, key=b"another"),
    "a bad signature": with_bad_signature(),
    "no signature": [DELIMITER, b"", b"{}", b"{}", b"{}", b"{}"],
    "a signature that is not ASCII": [DELIMITER, b"\xff" * 64, b"{}", b"{}", b"{}", b"{}"],
    "no UTF-8": signed(HEADER, {}, {}, b'{"a": "\xff"}'),
    "a surrogate's bytes": signed(HEADER, {}, {}, b'{"a": "\xed\xa0\x80"}'),
    "UTF-16": signed(HEADER, {}, {}, '{"a": 1}'.encode("utf-16")),
    "no JSON": signed(HEADER, {}, {}, b"{"),
    "an empty part": signed(HEADER, {}, {}, b""),
    "JSON too deep": signed(HEADER, {}, {}, b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "a number too long": signed(HEADER, {}, {}, b'{"a":' + b"9" * 10_000 + b"}"),
    "containers without end": signed(HEADER, {}, {}, b'{"a":[' + b"{}," * 600_000 + b"0]}"),
    "a header that is a list": signed([], {}, {}, {}),
    "a parent that is a list": signed(HEADER, [], {}, {}),
    "content that is text": signed(HEADER, {}, {}, "content"),
    "no id": signed({"msg_type": "stream"}, {}, {}, {}),
    "no type": signed({"msg_id": "1"}, {}, {}, {}),
    "an id that is a number": signed(HEADER | {"msg_id": 1}, {}, {}, {}),
    "a type that is a list": signed(HEADER | {"msg_type": []}, {}, {}, {}),
    "an id too long": signed(HEADER | {"msg_id": "1" * 257}, {}, {}, {}),
    "a type too long": signed(HEADER | {"msg_type": "t" * 257}, {}, {}, {}),
    "an id of several lines": signed(HEADER | {"msg_id": "1\nERROR forged"}, {}, {}, {}),
    "an id of half a character": signed(HEADER | {"msg_id": "\ud800"}, {}, {}, {}),
}


@pytest.mark.parametrize("frames", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_message_is_called_malformed(frames):
    with pytest.raises(jupyter_messages.MalformedMessage):
        unpacked(frames)


def test_malformed_is_a_kernel_error_with_a_sentence():
    assert isinstance(jupyter_messages.MalformedMessage(), errors.KernelError)
    assert str(jupyter_messages.MalformedMessage()).endswith(".")


MANY = b",".join(b'"%d":1' % number for number in range(30_002))


TOO_MANY = {
    "keys": b"{" + MANY + b"}",
    "numbers": b'{"a":[' + b"1," * 300_000 + b"1]}",
    "empty lists": b'{"a":[' + b"[]," * 300_000 + b"[]]}",
    "quotes": b'{"a":"' + b"," * 40_000 + b'"' * 300_001 + b"}",
    "values behind a text with escapes": b'{"a":"\\\\","b":[' + b"1," * 300_000 + b"1]}",
    "escapes": b'{"a":"' + b"\\n" * 2_000_001 + b'"}',
    "digits": b'{"a":' + b"9" * 65 + b"}",
    "digits of a fraction": b'{"a":0.' + b"9" * 65 + b"}",
}


@pytest.mark.parametrize("content", TOO_MANY.values(), ids=TOO_MANY.keys())
def test_values_without_end_are_not_read(content):
    with pytest.raises(jupyter_messages.IntricateMessage):
        unpacked(signed(HEADER, {}, {}, content))


def test_printed_commas_and_brackets_are_no_values():
    text = '[{"\\,' * 300_000
    frames = signed(HEADER, {}, {}, {"name": "stdout", "text": text})
    assert unpacked(frames).content["text"] == text


@pytest.mark.parametrize("letter", ["\n", '"', "\x1b", "\U0001f600", '{"a": 1}'])
def test_texts_full_of_escapes_are_read(letter):
    text = letter * 1_000_000
    content = unpacked(signed(HEADER, {}, {}, {"ename": "e", "evalue": text})).content
    assert (content["ename"], content["evalue"]) == ("e", text)


@hypothesis.given(strategies.lists(strategies.just(DELIMITER) | strategies.binary()))
def test_no_frames_raise_anything_else(frames):
    with pytest.raises(jupyter_messages.MalformedMessage):
        unpacked(frames)


@hypothesis.given(strategies.lists(strategies.binary() | HOSTILE_JSON, min_size=4, max_size=5))
def test_no_signed_parts_raise_anything_else(parts):
    try:
        unpacked(signed(*parts))
    except jupyter_messages.MalformedMessage:
        return


def test_packing_and_unpacking_is_quick():
    content = {"code": "1 + 1", "silent": False, "user_expressions": {}}
    started = time.process_time()
    for _ in range(1000):
        unpacked(SIGNER.pack("execute_request", content, parent_id="p")[1])
    assert time.process_time() - started < 1
