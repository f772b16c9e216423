"""Cutting text into messages: for any text."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot.platforms.rendering import message_splitting
from interpreter_bot.text import fences

LEAST = message_splitting.MIN_CHARACTERS

_ATOMS = st.one_of(
    st.sampled_from(
        [
            *("\n", "\n\n", "```", "```python\n", "\n```\n", "~~~", "~~~~ r\n", "````\n", "    "),
            *("- ", "> ", "`x`", " ", "\t", "[a](http://b.example/c)", "\\`", "&amp;", "**b**"),
            *(
                "e\u0301",
                "👩‍👩‍👧‍👦",
                "🇩🇪",
                "🇩🇪🇫🇷",
                "👍🏽",
                "각",
                "日本語",
                "שלום",
                "\r\n",
                "x" * 90,
            ),
        ]
    ),
    st.text(max_size=12),
    st.integers(1, 500).map(lambda count: "word " * count),
    st.integers(1, 900).map(lambda count: "x" * count),
    st.integers(1, 40).map(lambda count: "`" * count),
)
TEXTS = st.lists(_ATOMS, max_size=40).map("".join)


def is_balanced(text):
    fence = None
    for line in text.split("\n"):
        if fence is None:
            fence = fences.parse_opening(line)
        elif fences.closes(line, fence):
            fence = None
    return fence is None


@given(TEXTS, st.integers(LEAST, 2000))
def test_every_piece_is_within_the_limit(text, limit):
    assert all(0 < len(one.text) <= limit for one in message_splitting.split_exactly(text, limit))
    assert all(0 < len(one) <= limit for one in message_splitting.split_messages(text, limit))


@given(TEXTS, st.integers(LEAST, 2000))
def test_the_pieces_joined_say_the_same(text, limit):
    assert "".join(one.body for one in message_splitting.split_exactly(text, limit)) == text


@given(TEXTS, st.integers(LEAST, 2000))
def test_every_piece_closes_what_it_opens(text, limit):
    for piece in message_splitting.split_exactly(text, limit):
        assert is_balanced(piece.text), piece


@given(TEXTS, st.integers(LEAST, 2000))
def test_what_is_added_are_fences_of_the_text_and_nothing_else(text, limit):
    found = message_splitting.split_exactly(text, limit)
    for before, after in itertools.pairwise(found):
        opening = after.opening.removesuffix("\u200b")
        assert bool(before.closing) == bool(opening)
        if opening:
            fence = fences.parse_opening(opening)
            assert fence is not None
            assert fences.closes(before.closing.lstrip("\n"), fence)
            assert fence.marks in text
            assert fence.language in text


@given(
    st.lists(st.sampled_from(["e\u0301", "👩‍👩‍👧", "🇩🇪", "👍🏽", "각", "ab ", "日"]), max_size=900)
)
def test_no_letter_is_cut(letters):
    text = "".join(letters)
    ends, place = set(), 0
    for piece in message_splitting.split_exactly(text, LEAST):
        place += len(piece.body)
        ends.add(place)
    assert ends <= {0, *_ends(letters)}


def _ends(letters):
    place = 0
    for letter in letters:
        place += len(letter)
        yield place


def test_short_text_is_one_piece_as_it_is():
    assert message_splitting.split_messages("Hello\n\n```python\nprint(1)\n```", 2000) == (
        "Hello\n\n```python\nprint(1)\n```",
    )


@pytest.mark.parametrize("text", ["", " ", "\n\n\n", "\n" * 5000])
def test_nothing_is_no_message(text):
    assert message_splitting.split_messages(text, 2000) == ()


def test_paragraphs_are_kept_together():
    paragraph = "word " * 50 + "end."
    text = "\n\n".join([paragraph] * 4)
    assert message_splitting.split_messages(text, 600) == ("\n\n".join([paragraph] * 2),) * 2


def test_code_goes_on_in_the_next_piece_with_its_language():
    code = "\n".join(f"print({number})" for number in range(100))
    text = f"See:\n\n```python\n{code}\n```\n\nDone."
    first, second, *_ = message_splitting.split_messages(text, 600)
    assert first.startswith("See:\n\n```python\nprint(0)\n")
    assert first.endswith(")\n```")
    assert second.startswith("```python\nprint(")


def test_code_that_would_be_cut_at_its_beginning_moves_to_the_next_piece():
    text = "word " * 40 + "\n```python\n" + "x = 1\n" * 90 + "```\n"
    first, second = message_splitting.split_messages(text, 600)
    assert "```" not in first
    assert second == "```python\n" + "x = 1\n" * 90 + "```"


def test_a_fence_longer_than_three_is_closed_as_long():
    text = "````md\n" + "```\nx\n```\n" * 100 + "````"
    for piece in message_splitting.split_messages(text, 500):
        assert piece.startswith("````md\n")
        assert piece.endswith("\n````")


def test_code_within_a_list_keeps_its_indent():
    text = "- a\n\n  ```python\n" + "  x = 1\n" * 200 + "  ```\n"
    pieces = message_splitting.split_exactly(text, 500)
    assert pieces[1].opening == "  ```python\n"
    assert pieces[0].closing == "  ```"


def test_code_never_closed_is_closed():
    assert message_splitting.split_messages("```python\nx = 1", 2000) == ("```python\nx = 1\n```",)


@pytest.mark.parametrize(
    "whole", ["[a link](https://x.example/y)", "`some code in it`", "\\*", "&amp;", "<@U123>"]
)
@pytest.mark.parametrize("offset", range(30))
def test_a_cut_falls_beside_what_is_whole(whole, offset):
    text = "x" * (LEAST - offset) + whole + "y" * 50
    assert any(whole in piece.body for piece in message_splitting.split_exactly(text, LEAST))


@pytest.mark.parametrize(
    "text",
    [
        "x" * (LEAST - 3) + " ```py " + "y" * 300,
        "```" + "word " * 75 + "`" * 25,
        "a\n```" + "word " * 200 + "`",
        "```\n" + "x" * 380 + "```\n```",
        "````\n```" + " " * 500 + "x\n````",
    ],
)
def test_a_cut_makes_no_fence_of_what_was_none(text):
    assert all(map(is_balanced, (one.text for one in message_splitting.split_exactly(text, LEAST))))


def test_a_limit_too_low_for_a_fence_is_refused():
    with pytest.raises(ValueError, match="400"):
        message_splitting.split_exactly("x", LEAST - 1)


@pytest.mark.timeout(20)
def test_a_long_text_takes_time_in_proportion():
    for text in ("x" * 300_000, "```\n" + "y" * 300_000, "a b " * 75_000, "\n" * 300_000):
        assert len(message_splitting.split_exactly(text, 2000)) < 1000
    assert len(message_splitting.split_exactly("`[<&" * 75_000, 2000)) < 2000
