"""Text of kernels is harmless whatever it holds; code that waits for leave shows all it holds."""

import time
import unicodedata

import hypothesis
import pytest
from hypothesis import strategies

from interpreter_bot.text import safe_text

TERMINAL = strategies.text(alphabet="\x1b[]P^( 0;m\\\x07\x18\n\r\tab\x9c\x9bé\ud800Xz/~?")
TEXT = TERMINAL | strategies.text() | strategies.text(strategies.characters(codec=None))


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("plain text", "plain text"),
        ("two\nlines\tand\rmore", "two\nlines\tand\rmore"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38;2;1;2;3mcolour", "colour"),
        ("\x1b[2 qcursor", "cursor"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://x.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice\x1b\\text", "text"),
        ("\x1b(Bset", "set"),
        ("\x1b7saved\x1b8", "saved"),
        ("\x1b", ""),
        ("text\x1b[31", "text"),
        ("text\x1b]0;title", "text"),
        ("\x1b]0;nobody closed it\nnext line", "\nnext line"),
        ("\x1b[31\nnext line", "\nnext line"),
        ("\x1b\x1b[31mred", "red"),
        ("\x1b[\x1b[31mred", "red"),
        ("bell\x07 back\x08 null\x00 delete\x7f", "bell back null delete"),
        ("\x0b\x0c\x80\x9f", ""),
        # Windows-1252 read as Latin-1: a control that opens nothing.
        ("quote\x9d and what follows", "quote and what follows"),
        ("lone \ud800 surrogate", "lone ? surrogate"),
        ("\U0001f40d 蛇 é", "\U0001f40d 蛇 é"),
    ],
)
def test_cleaning_keeps_what_can_be_read(sent, shown):
    assert safe_text.clean(sent) == shown


@hypothesis.given(TEXT)
def test_cleaned_text_holds_no_control_and_no_surrogate(text):
    kinds = {unicodedata.category(mark) for mark in safe_text.clean(text) if mark not in "\n\r\t"}
    assert not kinds & {"Cc", "Cs"}


@hypothesis.given(TEXT)
def test_cleaning_twice_changes_nothing(text):
    assert safe_text.clean(safe_text.clean(text)) == safe_text.clean(text)


@hypothesis.given(strategies.lists(TEXT))
def test_pieces_clean_like_the_whole(pieces):
    cleaner = safe_text.Cleaner()
    assert "".join(map(cleaner.feed, pieces)) == safe_text.clean("".join(pieces))


@pytest.mark.parametrize("opening", ["\x1b[", "\x1b]0;", "\x1b ", "\x1bP"])
def test_an_escape_without_end_shows_nothing_and_is_not_kept(opening):
    cleaner = safe_text.Cleaner()
    filling = "0" * 100_000 if opening != "\x1b " else " " * 100_000
    assert [cleaner.feed(piece) for piece in [opening, *[filling] * 20]] == [""] * 21
    assert len(cleaner._pending) <= 3


@pytest.mark.parametrize("unit", ["\x1b", "\x1b[", "\x1b]", "\x1b[0", "\x1b[ ", "\x1b ", "\x07"])
def test_time_is_in_proportion_to_the_text(unit):
    started = time.process_time()
    safe_text.clean(unit * (2_000_000 // len(unit)))
    safe_text.clean(unit + "0" * 2_000_000)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("text", "max_bytes", "kept"),
    [
        ("abc", 3, "abc"),
        ("abc", 2, "ab"),
        ("abc", 0, ""),
        ("äb", 3, "äb"),
        ("äb", 2, "ä"),
        ("äb", 1, ""),
        ("\U0001f40d", 3, ""),
        ("\ud800b", 1, "?"),
    ],
)
def test_heads_are_cut_on_a_character(text, max_bytes, kept):
    assert safe_text.truncate_bytes(text, max_bytes) == kept


@hypothesis.given(TEXT, strategies.integers(min_value=0, max_value=50))
def test_heads_are_as_long_as_can_be(text, max_bytes):
    kept = safe_text.truncate_bytes(text, max_bytes)
    whole = safe_text.replace_surrogates(text)
    assert whole.startswith(kept)
    assert len(kept.encode()) <= max_bytes
    assert kept == whole or len(whole[: len(kept) + 1].encode()) > max_bytes


def test_what_is_bounded_says_how_much_is_missing():
    shown = safe_text.elide_middle("a" * 500 + "b" * 500, 100)
    assert shown == "a" * 50 + "\n… 900 characters left out …\n" + "b" * 50


def test_what_is_bounded_is_measured_without_its_escapes():
    assert safe_text.elide_middle("\x1b[31mx\x1b[0m" * 10, 10) == "x" * 10


@hypothesis.given(TEXT, strategies.integers(min_value=1, max_value=50), strategies.integers(0, 300))
def test_what_is_bounded_is_bounded(text, times, limit):
    shown = safe_text.elide_middle(text * times, limit)
    assert len(shown) <= limit + len("\n… 1,000,000 characters left out …\n")
    assert safe_text.clean(shown) == shown


@hypothesis.given(TEXT, strategies.integers(min_value=1, max_value=50))
def test_what_is_clipped_begins_like_the_whole(text, limit):
    shown = safe_text.truncate(text, limit)
    assert len(shown) <= limit
    assert shown == safe_text.clean(text) or shown.endswith("…") or len(text) > 16 * limit


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("if user != 'a\u202e \u2066# check\u2069 \u2066':", "⟨U+202E⟩ ⟨U+2066⟩# check⟨U+2069⟩"),
        ("pass\u200bword = 1", "pass⟨U+200B⟩word"),
        ("f(\u3164)", "f(⟨U+3164⟩)"),
        ("x = '\u2800'", "⟨U+2800⟩"),
        ("x = 'a\ufe0f'", "a⟨U+FE0F⟩"),
        ("x = '\U000e0041'", "⟨U+E0041⟩"),
        ("x = 'a\u00a0b'", "a⟨U+00A0⟩b"),
        ("x = 'ab\u200dc'", "ab⟨U+200D⟩c"),
        ("x = '\x1b[2K'", "⟨U+001B⟩[2K"),
        ("x = '\ud800'", "⟨U+D800⟩"),
        ("x = 1 \u2028 y", "1 ⟨U+2028⟩ y"),
    ],
)
def test_what_cannot_be_seen_in_code_is_written_out_and_said(code, shown):
    found = safe_text.reveal_hidden(code)
    assert shown in found.text
    assert "nobody can see" in found.warning


@pytest.mark.parametrize(
    "code",
    [
        "",
        "for i in range(3):\n\tprint(i)\n",
        "name = 'Zoë 東京 Привет سلام'",
        "print('👨‍👩‍👧 ☀️ 1️⃣ 👍🏽')",
    ],
)
def test_plain_code_is_shown_as_it_is_without_a_word(code):
    assert safe_text.reveal_hidden(code) == safe_text.RevealedCode(code)


def test_every_line_end_of_python_is_one_for_readers():
    assert safe_text.reveal_hidden("# hi\rimport os\r\n").text == "# hi\nimport os\n"


@hypothesis.given(strategies.text(max_size=200))
def test_nothing_is_left_out_and_nothing_invisible_is_left(code):
    shown = safe_text.reveal_hidden(code).text
    kept = [c for c in code if unicodedata.category(c)[0] in "LNPS"]
    rest = iter(shown)
    assert all(any(c == other for other in rest) or f"U+{ord(c):04X}" in shown for c in kept)
    bad = {"Cc", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
    assert all(unicodedata.category(c) not in bad or c in " \t\n" for c in shown)


def test_colours_are_kept_where_they_are_wanted_and_nothing_that_hides_text():
    sent = (
        "\x1b[31mred\x1b[0m \x1b[1;38;5;208;48;2;1;2;3mx\x1b[m \x1b[8mhidden \x1b[5mblink"
        "\x1b[2J\x1b[1;8m\x1b]0;title\x07\x08\x1b[3;H"
    )
    kept = "\x1b[31mred\x1b[0m \x1b[1;38;5;208;48;2;1;2;3mx\x1b[m hidden blink"
    assert safe_text.Cleaner(keeps_colours=True).feed(sent) == kept
    cleaner = safe_text.Cleaner(keeps_colours=True)
    assert "".join(map(cleaner.feed, sent)) == kept
    assert safe_text.clean(kept) == "red x hidden blink"
    long = "\x1b[" + "1;" * 100_000 + "1m"
    assert "\x1b" not in safe_text.Cleaner(keeps_colours=True).feed(long)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("a\u202eb", "a character that nobody can see or that reorders text"),
        ("a\u202eb\u202ec", "2 characters that nobody can see or that reorder text"),
    ],
)
def test_the_warning_agrees_with_how_many_there_are(code, words):
    assert words in safe_text.reveal_hidden(code).warning
