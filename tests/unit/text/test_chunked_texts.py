"""Texts in pieces are what they are whole."""

import hypothesis
from hypothesis import strategies

from interpreter_bot.text import chunked_texts

PLACES = strategies.none() | strategies.integers(-20, 20)


@hypothesis.given(strategies.lists(strategies.text(max_size=5), max_size=5), PLACES, PLACES)
def test_a_part_is_a_part_of_the_whole(pieces, start, stop):
    text = chunked_texts.LongText(pieces)
    assert len(text) == len("".join(pieces))
    assert text[start:stop] == "".join(pieces)[start:stop]


def test_only_a_long_text_stays_in_pieces():
    assert chunked_texts.joined(["a", "b"]) == "ab"
    assert chunked_texts.pieces("ab") == ("ab",)
    long = ["a" * 1_000_000, "b" * 1_000_000]
    assert chunked_texts.pieces(chunked_texts.joined(long)) == long
