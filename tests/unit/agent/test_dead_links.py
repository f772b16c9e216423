"""Links that lead nowhere become names, and claims of files are checked."""

import hypothesis
import pytest
from hypothesis import strategies as st

from interpreter_bot.agent import dead_links

EXISTING = {"a.csv", "out/b.png", "my file.csv", "übersicht.csv"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[a.csv](sandbox:/mnt/data/a.csv)", "`a.csv`"),
        ("[the table](sandbox:/mnt/data/a.csv).", "the table (`a.csv`)."),
        ("[the table](/mnt/data/a.csv)", "the table (`a.csv`)"),
        ("[the table](a.csv)", "the table (`a.csv`)"),
        ("![plot](sandbox:/mnt/data/out/b.png)", "plot (`out/b.png`)"),
        ("![b.png](attachment:out/b.png)", "`out/b.png`"),
        ("[`a.csv`](sandbox:/mnt/data/a.csv)", "`a.csv`"),
        ("[x](file:///mnt/data/a.csv)", "x (`a.csv`)"),
        ("[x](sandbox:/mnt/data/my%20file.csv)", "x (`my file.csv`)"),
        ("[x](<sandbox:/mnt/data/my file.csv>)", "x (`my file.csv`)"),
        ('[x](sandbox:/mnt/data/a.csv "title")', "x (`a.csv`)"),
        ("~~~\n```\n~~~~\n[x](a.csv)", "~~~\n```\n~~~~\nx (`a.csv`)"),
        ("  ````\n```\n   `````\n[x](a.csv)", "  ````\n```\n   `````\nx (`a.csv`)"),
        ("It is at sandbox:/mnt/data/a.csv.", "It is at `a.csv`."),
        ("[x](sandbox:/mnt/data/%C3%BCbersicht.csv)", "x (`übersicht.csv`)"),
    ],
)
def test_link_to_a_file_becomes_its_name(text, shown):
    assert dead_links.rewrite(text, EXISTING) == dead_links.RewrittenText(shown, ())


@pytest.mark.parametrize(
    "text",
    [
        "[site](https://example.org/a.csv)",
        "[section](#part)",
        "/mnt/data/a.csv could not be found",
        "```\n[x](sandbox:/mnt/data/none.csv)\n```",
        "~~~\n```\n[x](sandbox:/mnt/data/none.csv)\n~~~~",
        "````\n```\n[x](sandbox:/mnt/data/none.csv)\n`````",
        "   ```\n[x](sandbox:/mnt/data/none.csv)\n  ```",
        "`[x](sandbox:/mnt/data/none.csv)`",
        "array[0](x)",
        "see example.org",
    ],
)
def test_everything_else_is_left_alone(text):
    assert dead_links.rewrite(text, EXISTING) == dead_links.RewrittenText(text, ())


def test_files_that_do_not_exist_are_named_once():
    text = "[x](sandbox:/mnt/data/none.csv) and sandbox:/mnt/data/none.csv and [y](also.pdf)"
    assert dead_links.rewrite(text, EXISTING).missing == ("none.csv", "also.pdf")


@hypothesis.given(st.text(alphabet="[]()!<>` \n/:.asndboxmt%\"'"))
def test_no_dead_scheme_is_left_outside_code(text):
    dead_links.rewrite(text, EXISTING)


def test_hostile_text_takes_no_time():
    dead_links.rewrite("[" * 50_000 + "](" * 50_000 + "`" * 50_001 + "sandbox:/" * 20_000, EXISTING)
