"""From any words to messages: each within Discord's limits, and together they say the same."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from interpreter_bot.platforms.discord import file_transfers, markdown, message_layout

_MOST = 2000
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


def _words(texts):
    return _UNSEEN.sub("", "".join(_FENCES.sub("", text) for text in texts))


def _check(laid):
    for sheet in laid:
        assert 0 < len(sheet.content) <= _MOST
        assert sheet.content.strip()
        assert sheet.content.count("```") % 2 == 0


@given(_TEXTS)
@example("```py\n" + "x = 1\n" * 2000)
@example("a " * 3000 + "```\n" + "y" * 5000 + "\n```")
def test_messages_say_what_the_words_say(text):
    told = markdown.prose(text)
    laid = message_layout.lay_out([told])
    _check(laid)
    assert _words(sheet.content for sheet in laid) == _words([told])


@given(_TEXTS)
@example("`" * 4000)
@example("```\n" * 1500)
def test_messages_show_all_of_an_output(text):
    told = markdown.code(text)
    laid = message_layout.lay_out([told])
    _check(laid)
    assert _words(sheet.content for sheet in laid) == _words([told])


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

    laid = message_layout.lay_out([markdown.prose(text)])
    assert letters("".join(sheet.content for sheet in laid)) == letters(text)


@given(st.lists(_TEXTS, max_size=4), st.integers(0, 25))
def test_words_files_and_buttons_fit_together(texts, files):
    parts = [part for text in texts for part in (markdown.prose(text), markdown.code(text))]
    parts += [
        message_layout.Upload(f"f{n}", 0, "f", 1, file_transfers.InMemorySource(b""))
        for n in range(files)
    ]
    laid = message_layout.lay_out(parts, (message_layout.Button("stop", 1, 1),))
    assert sum(len(sheet.uploads) for sheet in laid) == files
    assert all(len(sheet.uploads) <= 10 for sheet in laid)
    assert all(sheet.content.strip() or sheet.uploads for sheet in laid)
    assert [bool(sheet.buttons) for sheet in laid] == [False] * (len(laid) - 1) + [True] * bool(
        laid
    )


@given(st.text(max_size=300))
def test_any_name_is_one_that_discord_leaves_as_it_is(name):
    assert re.fullmatch(
        r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,110}", file_transfers.discord_file_name(name)
    )
