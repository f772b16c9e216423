"""For any text: nothing in it is a mention, a link with false words, or the end of its fence."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot.platforms.chat import layout, transport
from interpreter_bot.platforms.discord import markdown

TAKES = transport.Capabilities(
    max_characters=1900, max_messages=8, max_files=10, max_file_bytes=1000, max_message_bytes=1000
)

_PIECES = st.sampled_from(
    [
        *("```", "````", "`", "~~~", "\n", " ", "@everyone", "@here", "<@1>", "<@!2>", "<@&3>"),
        *(
            "<#4>",
            "<id:guide>",
            "|",
            "|---|",
            "[a](https://x.example/y)",
            "https://x.example",
            "\\",
        ),
        *("discord.gg/x", "https://discord.com/invite/y", "[z](https://discord.gg/z)"),
        *("[https://a.example](https://b.example)", "\u200b", "\u202e", "*", "_", "py", "text"),
    ]
)
_TEXTS = st.lists(_PIECES | st.text(max_size=5), max_size=40).map("".join)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_INVITATION = re.compile(r"\bdiscord(\.gg|\.com/invite)/", re.IGNORECASE)
_MENTION = re.compile(r"@(everyone|here)|(?<!\\)<(@[!&]?|#)\d")


def converted(text):
    """A model's Markdown as Discord gets it."""
    return "\n".join(block.text for block in markdown.blocks(text)).strip("\n")


@given(_TEXTS)
def test_prose_mentions_nobody_and_closes_its_fences(text):
    told = converted(text)
    assert told.count("```") % 2 == 0
    assert not _MENTION.search(_CODE.sub("", told))
    assert not _INVITATION.search(_CODE.sub("", told))
    assert not set(told) & set("\u202e\u2066")


@given(_TEXTS)
def test_code_cannot_be_left(text):
    told = markdown.code(text)
    assert told.count("```") in (0, 2)
    if told:
        assert told.startswith("```")
        assert told.endswith("\n```")


def test_an_address_keeps_its_parentheses():
    text = "(see https://a.example/b_(c).) [it](https://a.example/b_(c)) https://d.example/e)."
    assert converted(text) == (
        "(see <https://a.example/b_(c)>.) [it](<https://a.example/b_(c)>) <https://d.example/e>)."
    )


@given(_TEXTS)
def test_a_line_is_one_line_and_cannot_be_left(text):
    told = markdown.inline_code(text)
    assert "\n" not in told
    assert told.count("`") in (0, 2)


@given(_TEXTS)
def test_plain_is_no_markup(text):
    told = markdown.escape(text)
    assert "\n" not in told
    assert not _MENTION.search(told)
    assert not _INVITATION.search(told)
    assert not re.search(r"(?<!\\)(\\\\)*[*_~`|<]", told.replace("\\\\", ""))
    assert "://" not in told


@given(st.lists(_TEXTS, max_size=5))
def test_every_sheet_is_within_the_limit_and_balanced(texts):
    parts = [part for text in texts for part in (converted(text), markdown.code(text * 30))]
    for sheet in layout.lay_out(parts, TAKES):
        assert 0 < len(sheet.text) <= TAKES.max_characters
        assert sheet.text.count("```") % 2 == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("see https://a.example/b.", "see <https://a.example/b>."),
        ("[docs](https://a.example)", "[docs](<https://a.example>)"),
        ("[https://good.example](https://evil.example)", "<https://evil.example>"),
        ("![plot](https://a.example/x.png)", "[plot](<https://a.example/x.png>)"),
        ("<https://a.example>", "<https://a.example>"),
        ("`https://a.example`", "`https://a.example`"),
        ("@everyone", "@\u200beveryone"),
        ("~~~py\nx\n~~~", "```py\nx\n```"),
        ("````py\nx\n`````\ny\n    ~~~\nz\n~~~", "```py\nx\n```\ny\n```\nz\n```"),
        ("```\n|a|\n|-|\n```\n|a|\n|-|\n```\nx", "```\n|a|\n|-|\n```\n```\na\n─\n```\n```\nx\n```"),
        ("#### Deep", "**Deep**"),
        ("###### Deep **er** ##", "**Deep er**"),
        ("### Known", "### Known"),
        ("a\n\n---\nb\n* * *", f"a\n\n{'─' * 20}\nb\n{'─' * 20}"),
        ("- [ ] open\n  1. [x] done\n- [c] no", "- ☐ open\n  1. ☑ done\n- [c] no"),
        ("![Sales](sales.png) and ![](sandbox:/mnt/data/b.png)", "Sales and b.png"),
        ("[the file](sandbox:/mnt/data/a.csv)", "the file"),
        ("$$E = mc^2$$", "```tex\nE = mc^2\n```"),
        ("so\n$$\na_1\n+ b\n$$\nyes", "so\n```tex\na_1\n+ b\n```\nyes"),
        ("\\[ x \\]", "```tex\nx\n```"),
        ("with $x^2$ and \\(y\\), $5 and $6", "with `x^2` and `y`, $5 and $6"),
        ("costs $$$", "costs $$$"),
        ("$$ for nothing", "$$ for nothing"),
        ("| a | b |\n|---|:-:|\n| 1 | 22 |", "```\na  b\n─  ──\n1  22\n```"),
        ("|a|b|\n|-|-|\n|1 \\| 2||", "```\na      b\n─────  ─\n1 | 2\n```"),
        ("|価|b|\n|-|-|\n|c|d|", "```\n価  b\n──  ─\nc   d\n```"),
        ("|a|\n|-|\n|b<br>c<BR />d|", "```\na\n─────\nb c d\n```"),
        ("one<br/> two `<br>`", "one\n two `<br>`"),
        ("P(a || b), P(b || a) `||`", "P(a \\|\\| b), P(b \\|\\| a) `||`"),
        ("\\(||x||\\)", "`||x||`"),
        (">>> x = 1\n> quoted", "\\>>> x = 1\n> quoted"),
        ("  >>> x<br>>>> y", "  \\>>> x\n\\>>> y"),
        ("https://a.example/?q=a||b", "<https://a.example/?q=a||b>"),
    ],
)
def test_prose_examples(text, told):
    assert converted(text) == told


@pytest.mark.parametrize(
    "text",
    ["[" * 50_000, "|" * 50_000, "`" * 50_000, "https://" * 10_000, "$" * 50_000, "\n$$" * 9_000],
)
def test_takes_no_longer_for_hostile_text(text):
    converted(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("#### a" + " " * 1_600 + "b", "**a" + " " * 1_600 + "b**"),
        ("##### a ## \t", "**a**"),
        ("###### a #b", "**a #b**"),
    ],
)
def test_a_deep_heading_is_bold_in_no_time(text, shown):
    began = time.process_time()
    assert converted(text) == shown
    assert time.process_time() - began < 1


@given(st.text(max_size=300))
def test_any_name_is_one_that_discord_leaves_as_it_is(name):
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,110}", markdown.file_name(name))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("報告.xlsx", "file.xlsx"),
        ("отчёт 2026.csv", "2026.csv"),
        ("a b (1).csv", "a_b_1.csv"),
        ("Größe.tar.gz", "Groe.tar.gz"),
        (".hidden", "hidden"),
        ("noext", "noext"),
    ],
)
def test_a_name_keeps_its_extension(name, shown):
    assert markdown.file_name(name) == shown
