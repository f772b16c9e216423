"""Where text may be cut."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot.platforms.rendering import message_splitting


@pytest.mark.parametrize(
    "whole",
    [
        *("e\u0301", "\r\n", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪", "☕\ufe0f", "각", "\u1100\u1161\u11a8"),
        *("नि", "🏴\U000e0067\U000e0062\U000e007f", "\ud83d\ude00", "क्षि"),
    ],
)
def test_a_letter_is_whole(whole):
    text = f"a{whole}b"
    assert [message_splitting.grapheme_floor(text, place) for place in range(1, len(text) + 1)] == [
        *[1] * len(whole),
        1 + len(whole),
        len(text),
    ]


def test_flags_are_pairs():
    text = "a🇩🇪🇫🇷"
    assert [message_splitting.grapheme_floor(text, place) for place in range(6)] == [
        0,
        1,
        1,
        3,
        3,
        5,
    ]


def test_hostile_letters_take_little_time():
    started = time.process_time()
    for letters in ("🇩🇪", "e\u0301", "\u0301", "👩\u200d", "\u1100", "क्"):
        text = letters * 10_000
        for place in range(0, len(text), 10):
            message_splitting.grapheme_floor(text, place)
    assert time.process_time() - started < 2


@given(st.text(), st.integers(0, 40))
def test_a_floor_is_a_place_in_the_text_and_not_after_the_given_one(text, place):
    place = min(place, len(text))
    found = message_splitting.grapheme_floor(text, place)
    assert 0 <= found <= place
    assert found == place or place > 0
