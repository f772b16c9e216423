"""Frames are read as they were written, in whatever pieces, and what is without measure is not."""

import contextlib
import tracemalloc

import hypothesis
import pytest
from hypothesis import strategies

from interpreter_bot import settings
from interpreter_bot.kernels.wire import zmtp

MIB = settings.MIB
MESSAGES = strategies.lists(
    strategies.lists(strategies.binary(max_size=600), min_size=1, max_size=zmtp.MAX_PARTS),
    max_size=6,
)
CUTS = strategies.lists(strategies.integers(1, 400), min_size=1, max_size=20)
PING = b"\x04\x09\x04PING\x00\x0ahi"
UNKNOWN = b"\x04\x09\x08NEWSPEAK"
GREETING = zmtp.build_opening("DEALER", b"")[:64]


def ready(kind=b"ROUTER"):
    body = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    return bytes((4, len(body))) + body


def frame(size, flags=0):
    """The header of a long frame."""
    return bytes((flags | 2,)) + size.to_bytes(8, "big")


def read(decoder, data=b""):
    decoder.feed(data)
    events = []
    while (event := decoder.next()) is not None:
        events.append(event)
    return events


def feed_without_end(decoder, data):
    for _ in range(10_000):
        assert read(decoder, data) == []


@pytest.fixture
def decoder():
    return greeted()


def greeted():
    decoder = zmtp.Decoder("DEALER")
    decoder.feed(GREETING + ready())
    assert decoder.greet()
    return decoder


@hypothesis.given(MESSAGES, CUTS)
def test_what_is_written_is_read_in_whatever_pieces_it_comes(messages, cuts):
    decoder = greeted()
    data = b"".join(map(zmtp.build_message, messages))
    read_back, at, number = [], 0, 0
    while at < len(data):
        size = cuts[number % len(cuts)]
        read_back += read(decoder, data[at : at + size])
        at, number = at + size, number + 1
    assert read_back == messages


@hypothesis.given(strategies.binary(max_size=2000), CUTS)
def test_noise_is_read_or_refused_and_nothing_else(noise, cuts):
    decoder = greeted()
    decoder.feed(noise[: cuts[0]])
    for data in (b"", noise[cuts[0] :]):
        decoder.feed(data)
        try:
            while decoder.next() is not None:
                pass
        except zmtp.MessageTooLargeError:
            pass
        except zmtp.BrokenProtocolError:
            return


@hypothesis.given(strategies.binary(max_size=300), strategies.booleans())
def test_noise_for_a_greeting_is_refused_and_nothing_else(noise, is_after_greeting):
    decoder = zmtp.Decoder("SUB")
    decoder.feed(GREETING + noise if is_after_greeting else noise)
    with contextlib.suppress(zmtp.BrokenProtocolError):
        assert not decoder.greet()


def test_greeting_may_come_byte_by_byte():
    decoder = zmtp.Decoder("SUB")
    for byte in GREETING + ready(b"XPUB"):
        assert not decoder.greet()
        decoder.feed(bytes((byte,)))
    assert decoder.greet()


@pytest.mark.parametrize(
    "opening",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        GREETING.replace(b"\x7f\x03", b"\x7f\x02"),
        GREETING.replace(b"NULL\0\0", b"PLAIN\0"),
        GREETING.replace(b"NULL\0", b"NULLS"),
        GREETING + b"\x04\x06\x05ERROR",
        GREETING + b"\x00\x01x",
        GREETING + b"\x04\x00",
        GREETING + frame(2**20, 4),
        GREETING + ready(b"PULL"),
        GREETING + b"\x04\x09\x05READY\x01x\x00",
    ],
)
def test_peer_of_another_kind_is_refused(opening):
    decoder = zmtp.Decoder("DEALER")
    decoder.feed(opening)
    with pytest.raises(zmtp.BrokenProtocolError):
        decoder.greet()


def test_message_of_the_largest_size_and_most_parts_is_read(decoder):
    parts = [b""] * (zmtp.MAX_PARTS - 1) + [bytes(zmtp.MAX_BYTES)]
    assert read(decoder, zmtp.build_message(parts)) == [parts]


@pytest.mark.parametrize(
    "parts", [[bytes(zmtp.MAX_BYTES + 1)], [bytes(MIB)] * 17, [b"x"] * (zmtp.MAX_PARTS + 1)]
)
def test_message_over_the_limits_is_said_once_and_what_follows_is_read(decoder, parts):
    decoder.feed(zmtp.build_message(parts) + zmtp.build_message([b"next"]))
    with pytest.raises(zmtp.MessageTooLargeError):
        decoder.next()
    assert decoder.next() == [b"next"]


def test_what_a_header_announces_takes_no_memory(decoder):
    tracemalloc.start()
    try:
        assert read(decoder, frame(zmtp.MAX_BYTES) + b"x") == []
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("flags", [0, 1])
def test_frame_beyond_all_measure_ends_the_connection(decoder, flags):
    decoder.feed(frame(2**63 - 1, flags))
    with pytest.raises(zmtp.BrokenProtocolError):
        decoder.next()


@pytest.mark.parametrize("size", [0, 1, MIB])
def test_message_without_end_is_dropped_and_then_ends_the_connection(decoder, size):
    part = frame(size, 1) + bytes(size)
    tracemalloc.start()
    try:
        with pytest.raises(zmtp.MessageTooLargeError):
            feed_without_end(decoder, part)
        with pytest.raises(zmtp.BrokenProtocolError):
            feed_without_end(decoder, part)
        assert tracemalloc.get_traced_memory()[0] < 4 * MIB
        assert tracemalloc.get_traced_memory()[1] < zmtp.MAX_BYTES + 4 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("flags", [5, 8, 0x80, 0xFF])
def test_reserved_flags_and_commands_in_parts_end_the_connection(decoder, flags):
    decoder.feed(bytes((flags, 0)) + bytes(8))
    with pytest.raises(zmtp.BrokenProtocolError):
        decoder.next()


def test_ping_is_answered_with_what_it_carries(decoder):
    (ping,) = read(decoder, PING)
    assert ping == zmtp.ZmtpCommand(b"\x04\x07\x04PONGhi")


def test_commands_may_come_between_parts(decoder):
    data = b"\x01\x01a" + UNKNOWN + PING + b"\x00\x01b"
    assert [event for event in read(decoder, data) if isinstance(event, list)] == [[b"a", b"b"]]


@pytest.mark.parametrize("command", [PING, UNKNOWN])
def test_commands_without_end_end_the_connection(decoder, command):
    with pytest.raises(zmtp.BrokenProtocolError):
        read(decoder, command * 20_000)


def test_heartbeats_between_messages_go_on_for_ever(decoder):
    for _ in range(20):
        assert len(read(decoder, PING * 1000 + b"\x00\x00")) == 1001


@pytest.mark.parametrize("at", [1, 5, 1000, MIB, 15 * MIB, 15 * MIB + 11])
def test_unfinished_message_can_be_dropped_wherever_it_stands(decoder, at):
    data = zmtp.build_message([bytes(15 * MIB), b"", bytes(1000)]) + zmtp.build_message([b"next"])
    tracemalloc.start()
    try:
        for start in range(0, at, 2**16):
            assert read(decoder, data[start : min(at, start + 2**16)]) == []
        decoder.drop_unfinished()
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()
    events = read(decoder, data[at:])
    assert events[-1] == [b"next"]
    # A header that is not whole is not yet a message.
    assert len(events) == (2 if at < 9 else 1)


def test_nothing_is_dropped_between_messages(decoder):
    assert read(decoder, zmtp.build_message([b"one"])) == [[b"one"]]
    decoder.drop_unfinished()
    assert read(decoder, zmtp.build_message([b"two"])) == [[b"two"]]
