"""The beginning and the end of each stream survive."""

import re

import hypothesis
from hypothesis import strategies

from interpreter_bot.text import shortened_output

Printed = shortened_output.PrintedPiece
LINES = "".join(f"line {number}\n" for number in range(100))


def test_what_fits_stays_as_it_is():
    pieces = [Printed("stdout", "a\n"), Printed("stderr", "b\n")]
    assert shortened_output.shorten(pieces, max_characters=4, max_lines=4) == ("a\n", "b\n")


def test_the_middle_is_left_out_at_whole_lines_and_counted():
    (shown,) = shortened_output.shorten(
        [Printed("stdout", LINES)], max_characters=1000, max_lines=7
    )
    assert shown == (
        "line 0\nline 1\nline 2\nline 3\nline 4\n… 7 of 100 lines shown …\nline 98\nline 99\n"
    )


def test_a_flood_of_one_stream_leaves_the_other_whole():
    pieces = [
        Printed("stdout", "first\n"),
        Printed("stderr", LINES),
        Printed("stdout", "middle\n"),
        Printed("stderr", LINES),
        Printed("stdout", "answer 42\n"),
    ]
    shown = shortened_output.shorten(pieces, max_characters=200, max_lines=20)
    assert (shown[0], shown[2], shown[4]) == ("first\n", "middle\n", "answer 42\n")
    assert shown[1].startswith("line 0\n")
    assert shown[3].endswith("line 99\n")
    assert " of 200 lines shown …" in shown[1] + shown[3]


def test_a_long_line_is_cut_between_letters():
    (shown,) = shortened_output.shorten([Printed("stdout", "e\u0301" * 500)], max_characters=75)
    head, mark, tail = shown.split("\n")
    assert head == "e\u0301" * 25
    assert mark.endswith(" of 1,000 characters shown …")
    assert set(tail) == {"e", "\u0301"}
    assert tail[0] == "e"


def test_one_line_too_many_is_shown_in_place_of_a_mark():
    text = "\n".join(f"step {number}" for number in range(11))
    shown = [
        shortened_output.shorten_text(text, max_characters=500, max_lines=most) for most in (10, 9)
    ]
    assert shown[0] == text
    assert "9 of 11 lines shown" in shown[1]


@hypothesis.given(
    strategies.lists(
        strategies.builds(
            Printed, strategies.sampled_from(["stdout", "stderr"]), strategies.text("ab\n")
        )
    ),
    strategies.integers(0, 40),
    strategies.integers(1, 10),
)
def test_it_is_never_much_longer_than_allowed(pieces, max_characters, max_lines):
    shown = shortened_output.shorten(pieces, max_characters=max_characters, max_lines=max_lines)
    assert len(shown) == len(pieces)
    unmarked = [re.sub(r"\n?… [\d,]+ of [\d,]+ \w+ shown …\n?", "", text) for text in shown]
    assert sum(len(text.rstrip("\n")) for text in unmarked) <= max_characters + 4
