"""Wrapping foreign text, and finding code in it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot.text import fences

TEXTS = st.lists(
    st.one_of(st.integers(1, 40).map(lambda count: "`" * count), st.text(max_size=5)), max_size=12
).map("".join)


@given(TEXTS)
def test_markdown_fences_hold_any_text(text):
    wrapped = fences.wrap_block(text)
    if not wrapped:
        assert not text.strip()
        return
    first, *inner, last = wrapped.split("\n")
    fence = fences.parse_opening(first)
    assert fence is not None, "such as splitting knows"
    assert fences.closes(last, fence)
    assert not any(fences.closes(line, fence) for line in inner)


@given(TEXTS)
def test_fences_of_three_hold_any_text(text):
    wrapped = fences.wrap_block(text, style="broken")
    assert wrapped.count("```") == (2 if wrapped else 0)
    assert "````" not in wrapped


@given(TEXTS, st.sampled_from(["longer", "broken"]))
def test_breaking_is_all_that_is_done_to_a_text(text, style):
    wrapped = fences.wrap_block(text, style=style)
    normal = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    if wrapped and "\u200b" not in text:
        inner = wrapped.partition("\n")[2].rpartition("\n")[0]
        assert inner.replace("\u200b", "") == normal


@given(TEXTS)
def test_code_within_a_line_stays_there(text):
    longer, broken = fences.wrap_inline(text), fences.wrap_inline(text, style="broken")
    assert "\n" not in longer + broken
    assert broken.count("`") in (0, 2)
    if longer:
        marks = re.match("`+", longer)[0]
        inner = longer[len(marks) : -len(marks)]
        assert not re.search(f"(?<!`){marks}(?!`)", inner)


@pytest.mark.parametrize(
    ("language", "line"),
    [("python", "```python"), ("", "```"), ("py```\n@x", "```"), ("c++", "```c++")],
)
def test_a_language_is_a_word(language, line):
    assert fences.wrap_block("x", language=language).split("\n")[0] == line


def test_nothing_is_not_wrapped():
    assert fences.wrap_block(" \n ") == ""
    assert fences.wrap_inline(" ") == ""


@pytest.mark.parametrize("line", ["```a`b", "``", "x ```", "~~"])
def test_what_is_no_fence(line):
    assert fences.parse_opening(line) is None


def test_a_fence_is_closed_by_its_like_only():
    fence = fences.parse_opening("````python x=1\n")
    assert fence.language == "python"
    assert fences.closes("`````  \n", fence)
    assert not any(fences.closes(line, fence) for line in ("```", "~~~~", "````python"))


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a\n```py\nx\n```\nb\n", "-(=)-"),
        ("~~~\n```\n~~~\n", "(=)"),
        ("```\n~~~\n```\n", "(=)"),
        ("````\n```\n`````\nb\n", "(=)-"),
        ("- a\n\n      ```py\n      x\n      ```\n- b\n", "--(=)-"),
        ("   ~~~\nx\n\t~~~\nb", "(=)-"),
        ("```\nx\n```py\ny\n", "(==="),
        ("```x``` y\n~~\n", "--"),
        ("```\r\nx\r\n```\r\n```\n```\n", "(=)()"),
    ],
)
@pytest.mark.parametrize("keeps_ends", [True, False])
def test_every_line_is_words_or_code_or_a_fence(text, kinds, keeps_ends):
    names = {(False, False): "-", (False, True): "(", (True, True): "=", (True, False): ")"}
    lines = text.splitlines(keepends=keeps_ends)
    rows = list(fences.track_fences(lines))
    assert [line for _, line, _ in rows] == lines
    assert (
        "".join(names[before is not None, after is not None] for before, _, after in rows) == kinds
    )


def test_a_text_goes_on_in_the_code_that_is_open_before_it():
    fence = fences.parse_opening("~~~py")
    assert list(fences.track_fences(["```", "~~~", "x"], fence)) == [
        (fence, "```", fence),
        (fence, "~~~", None),
        (None, "x", None),
    ]
