"""Code that waits for leave, as people read it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot.screens import hidden_characters


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
def test_what_cannot_be_seen_is_written_out_and_said(code, shown):
    found = hidden_characters.revealed(code)
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
    assert hidden_characters.revealed(code) == hidden_characters.Revealed(code)


def test_every_line_end_of_python_is_one_for_readers():
    assert hidden_characters.revealed("# hi\rimport os\r\n").text == "# hi\nimport os\n"


@given(st.text(max_size=200))
def test_nothing_is_left_out_and_nothing_invisible_is_left(code):
    shown = hidden_characters.revealed(code).text
    kept = [c for c in code if unicodedata.category(c)[0] in "LNPS"]
    rest = iter(shown)
    assert all(any(c == other for other in rest) or f"U+{ord(c):04X}" in shown for c in kept)
    bad = {"Cc", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
    assert all(unicodedata.category(c) not in bad or c in " \t\n" for c in shown)
