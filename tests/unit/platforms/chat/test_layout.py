"""From any words to messages: each within Discord's limits, and together they say the same."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from interpreter_bot.platforms.chat import layout, transport
from interpreter_bot.platforms.discord import markdown

_MAX = 2000
_TAKES = transport.Capabilities(
    max_characters=1900, max_messages=8, max_files=10, max_file_bytes=1000, max_message_bytes=1000
)
_PIECES = st.sampled_from(
    [
        *("```\n", "```py\n", "````\n", "~~~\n", "`", "``", "\n", "\n\n", " ", "- ", "# ", "> "),
        *("@everyone", "<@1>", "<#4>", "https://x.example/a?b=c", "[a](https://x.example)", "**"),
        *(
            "| a | b |\n|---|---|\n| 1 | 2 |\n",
            "word " * 60,
            "x" * 700,
            "\u200b",
            "\u202e",
            "👩‍👩‍👧",
        ),
        *("line\n" * 80, "漢字" * 300, "é" * 50, "\\", "*", "_", "||", "$"),
    ]
)
_TEXTS = st.lists(_PIECES | st.text(max_size=20), max_size=30).map("".join)
# What is put in or left out on the way: fences that are closed and opened again, blanks, and what
# breaks mentions and fences in foreign text.
_FENCES = re.compile(r"^```\w{0,20}$", re.MULTILINE)
_UNSEEN = re.compile(r"[\s\u200b]+")


def _converted(text):
    return "\n".join(block.text for block in markdown.blocks(text)).strip("\n")


def _words(texts):
    return _UNSEEN.sub("", "".join(_FENCES.sub("", text) for text in texts))


def _check(laid):
    for sheet in laid:
        assert 0 < len(sheet.text) <= _MAX
        assert sheet.text.strip()
        assert sheet.text.count("```") % 2 == 0


@given(_TEXTS)
@example("```py\n" + "x = 1\n" * 2000)
@example("a " * 3000 + "```\n" + "y" * 5000 + "\n```")
def test_messages_say_what_the_words_say(text):
    told = _converted(text)
    laid = layout.lay_out([told], _TAKES)
    _check(laid)
    assert _words(sheet.text for sheet in laid) == _words([told])


@given(_TEXTS)
@example("`" * 4000)
@example("```\n" * 1500)
def test_messages_show_all_of_an_output(text):
    told = markdown.code(text)
    laid = layout.lay_out([told], _TAKES)
    _check(laid)
    assert _words(sheet.text for sheet in laid) == _words([told])


_WORDS = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=12)
_MARKS = st.sampled_from(
    [
        *(" ", "\n", "\n\n", "\n```\n", "\n~~~\n", " `", "` ", "@", " **", "** ", "> ", "- "),
    ]
)


@given(st.lists(_WORDS | _MARKS, max_size=60).map("".join))
def test_no_word_is_lost_between_a_model_and_its_messages(text):
    def letters(what):
        # Backticks that open nothing are shown by a letter that looks like them.
        return re.sub(r"[^\w]|_|\u02cb", "", what)

    laid = layout.lay_out([_converted(text)], _TAKES)
    assert letters("".join(sheet.text for sheet in laid)) == letters(text)


@given(st.lists(_TEXTS, max_size=4), st.integers(0, 25))
def test_words_files_and_buttons_fit_together(texts, files):
    parts = [part for text in texts for part in (_converted(text), markdown.code(text))]
    parts += [
        transport.Upload(id=f"f{n}", version=0, name="f", size_bytes=1, content=b"")
        for n in range(files)
    ]
    laid = layout.lay_out(parts, _TAKES, (transport.Button("stop", "1", "1"),))
    assert sum(len(sheet.uploads) for sheet in laid) == files
    assert all(len(sheet.uploads) <= 10 for sheet in laid)
    assert all(sheet.text.strip() or sheet.uploads for sheet in laid)
    assert [bool(sheet.buttons) for sheet in laid] == [False] * (len(laid) - 1) + [True] * bool(
        laid
    )


def _upload(name, size=10):
    return transport.Upload(id=name, version=0, name=name, size_bytes=size, content=b"")


def test_words_after_a_picture_begin_a_new_message():
    parts = ["one", _upload("a.png"), "two", "three", _upload("b.png")]
    laid = layout.lay_out(parts, _TAKES, (transport.Button("stop", "0", "1"),))
    assert [(s.text, [u.name for u in s.uploads]) for s in laid] == [
        ("one", ["a.png"]),
        ("two\nthree", ["b.png"]),
    ]
    assert [len(s.buttons) for s in laid] == [0, 1]


def test_files_that_are_large_together_are_sent_apart():
    half = _TAKES.max_message_bytes // 2 + 1
    laid = layout.lay_out([_upload("a", half), _upload("b", half)], _TAKES)
    assert [len(sheet.uploads) for sheet in laid] == [1, 1]


def test_each_message_of_a_long_table_begins_with_its_head():
    head = ["| a | b |", "| --- | ---: |"]
    rows = [f"| {number} | {'x' * 40} |" for number in range(100)]
    lines = ["Before.", "", *head, *rows, "", *["After. " * 40] * 9]
    for count in (60, len(lines)):
        laid = layout.lay_out(map(layout.Line, lines[:count]), _TAKES)
        first, *others = [sheet.text.split("\n") for sheet in laid if "| x" in sheet.text]
        assert first[:4] == lines[:4]
        assert others
        assert all(other[:2] == head for other in others)
        told = [line for lines in (first, *others) for line in lines if "| x" in line]
        assert told == [row for row in rows if row in lines[:count]]
    assert laid[-1].text.startswith("After.")
