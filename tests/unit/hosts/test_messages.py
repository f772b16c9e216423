"""Every value comes through the wire as it was, and nothing else comes through at all."""

import dataclasses
import json
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot import code_activity, errors, values
from interpreter_bot.hosts import messages, ports

SURROGATES = "half \ud83d of a letter"
EVENTS = [
    values.Text("stdout", "x"),
    values.Text("stderr", SURROGATES * 1000),
    values.Error("ValueError", "", "trace\n" * 500),
    values.Image(mime="image/png", data=bytes(range(256)) * 100, preview=b"", plain="<Figure>"),
    values.Image(
        mime="image/svg+xml", data=b"", preview=b"\x89PNG", display_id="7", is_update=True
    ),
    values.Html(html="<p>é</p>".encode() * 1000, title="t", preview=b"\xff", plain=""),
    values.Table(
        columns=("", "a"),
        rows=(("0", "1"), ("1", SURROGATES)),
        row_count=2,
        column_count=1,
        index_count=1,
        handle="h",
    ),
    values.Latex(latex="$x$" * 200, preview=b"p"),
    values.Json(json='{"a": 1}'),
    values.Result(plain="2", is_markdown=False),
    values.Clear(wait=True),
    values.Notice("cut"),
    code_activity.InstalledLayer("a-layer", "letters==1.0 --hash=sha256:00\n" * 20),
    ports.ExecutionEnd(
        values.Finished(values.Ending.TIMED_OUT, 1.5, "too long", kernel_lost=True),
        cpu_seconds=0.5,
        names=("df", "x"),
        unlisted_count=3,
        loss_reason="It ended.",
        installed_layers=(code_activity.InstalledLayer("a-layer", "letters==1.0"),),
    ),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_unchanged_after_decoding(event):
    assert messages.unpack(messages.pack(event)) == event


def test_every_type_of_event_can_be_encoded():
    assert {type(event) for event in EVENTS} == {*ports.Event.__args__, ports.ExecutionEnd}


@given(st.text(alphabet=st.characters(), max_size=1000))
def test_any_text_is_unchanged_after_decoding(text):
    event = values.Text("stdout", text)
    assert messages.unpack(messages.pack(event)) == event


def test_a_picture_is_not_escaped():
    data = bytes(1_000_000)
    assert len(messages.pack(values.Image(mime="image/png", data=data))) < 1_001_000


def test_a_notice_replaces_an_output_that_is_too_long():
    big = values.Html(html=b"x" * (messages.MAX_EVENT_BYTES + 1))
    assert isinstance(messages.unpack(messages.pack(big)), values.Notice)


def _frame(header, rest=b""):
    data = json.dumps(header).encode()
    return struct.pack("<I", len(data)) + data + rest


def _frame_text(part_sizes, rest=b"", **fields):
    fields = {"stream": "stdout"} | fields
    return _frame({"type": "text", "part_sizes": part_sizes, "fields": fields}, rest)


def test_the_frames_of_these_tests_are_valid_but_for_their_faults():
    event = values.Text("stdout", "four")
    assert messages.unpack(_frame_text({}, text="four")) == event
    assert messages.unpack(_frame_text({"text": 4}, b"four")) == event


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        struct.pack("<I", 2**32 - 1) + b"{}",
        _frame([]),
        _frame({"type": "text"}),
        _frame({"type": "nothing", "part_sizes": {}, "fields": {}}),
        _frame_text({}, stream="stdin", text=""),
        _frame_text({}, text=1),
        _frame_text({"text": 5}, b"four"),
        _frame_text({"text": -1}, b"x"),
        _frame_text({"text": 1}, b"\xff"),
        _frame_text({}, b"more", text=""),
        _frame_text([], text=""),
        struct.pack("<I", 200_000) + b"[" * 200_000,
    ],
)
def test_malformed_bytes_are_refused(data):
    with pytest.raises(messages.MalformedError):
        messages.unpack(data)


def test_damaged_events_are_refused_or_decoded_as_events():
    randomness = random.Random(1)
    for event in EVENTS:
        whole = messages.pack(event)[:2000]
        for _ in range(50):
            data = bytearray(whole)
            data[randomness.randrange(len(data))] = randomness.randrange(256)
            try:
                found = messages.unpack(bytes(data))
            except messages.MalformedError:
                continue
            assert dataclasses.is_dataclass(found)


@pytest.mark.parametrize(
    "error",
    [
        errors.BotError("A sentence."),
        errors.PoolFullError(),
        errors.FileMissingError("There is no x."),
        errors.ExecutionMissingError(),
        errors.SettingsError("Wrong."),
    ],
)
def test_an_error_keeps_its_class_and_sentence(error):
    written = messages.encode_json(messages.error_fields(error))
    found = messages.to_error(messages.from_json(messages.ErrorFields, json.loads(written)))
    assert str(found) == str(error)
    assert isinstance(error, type(found))
    assert type(found) is (
        errors.BotError if isinstance(error, errors.SettingsError) else type(error)
    )


def test_error_of_a_hostile_peer_is_a_bot_error_of_bounded_length():
    fields = messages.ErrorFields("KeyboardInterrupt", "x" * 100_000)
    found = messages.to_error(fields)
    assert type(found) is errors.BotError
    assert len(str(found)) <= 2000


def test_object_that_is_not_a_dataclass_cannot_be_encoded():
    with pytest.raises(TypeError, match="not a dataclass"):
        messages.encode_json({"a": object()})
