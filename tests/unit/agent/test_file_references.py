"""Links to files become the files' real names, and only links to no file are reported."""

import time

import hypothesis
import pytest
from hypothesis import strategies as st

from interpreter_bot.agent import file_references

EXISTING = (
    *(
        "a.csv",
        "out/b.png",
        "my file.csv",
        "übersicht.csv",
        "data (1).csv",
        "100%.csv",
        "a%20b.csv",
    ),
    *("x[1].csv", "a).csv", "Q1 'final'.xlsx", "Übersicht 2024 Q1.xlsx", "weird_name_1.csv"),
    *(
        "Screenshot 3.04.05\u202fPM.png",
        "写真 (2).png",
        "sales.csv",
        "out/plot.png",
        "[raw] data.csv",
    ),
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[a.csv](sandbox:/mnt/data/a.csv)", "`a.csv`"),
        ("[the table](sandbox:/mnt/data/a.csv).", "the table (`a.csv`)."),
        ("[the table](/mnt/data/a.csv)", "the table (`a.csv`)"),
        ("[the table](a.csv)", "the table (`a.csv`)"),
        ("[the table](./a.csv)", "the table (`a.csv`)"),
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
        # Spaces, parentheses, brackets, percent signs, quotes, and letters of all scripts.
        ("[data (1).csv](sandbox:/mnt/data/data (1).csv)", "`data (1).csv`"),
        ("[it](data (1).csv), [it](a.csv)", "it (`data (1).csv`), it (`a.csv`)"),
        ("(see [it](sandbox:/mnt/data/data%20(1).csv))", "(see it (`data (1).csv`))"),
        ("[it](<sandbox:/mnt/data/data (1).csv>)", "it (`data (1).csv`)"),
        ("[it](data%20%281%29.csv)", "it (`data (1).csv`)"),
        ("sandbox:/mnt/data/data (1).csv is it.", "`data (1).csv` is it."),
        ("[x](100%.csv) ![x](100%25.csv)", "x (`100%.csv`) x (`100%.csv`)"),
        ("[x](a%20b.csv)", "x (`a%20b.csv`)"),
        ("[x](x[1].csv) [x[1].csv](x%5B1%5D.csv)", "x (`x[1].csv`) `x[1].csv`"),
        ("[x](a).csv) and [y](a.csv)", "x (`a).csv`) and y (`a.csv`)"),
        ("[x](sandbox:/mnt/data/Q1 \u2019final\u2019.xlsx)", "x (`Q1 'final'.xlsx`)"),
        ("[x](sandbox:/mnt/data/U\u0308bersicht.csv)", "x (`übersicht.csv`)"),
        ("[x](Screenshot 3.04.05 PM.png)", "x (`Screenshot 3.04.05\u202fPM.png`)"),
        ("![x](写真 (2).png)", "x (`写真 (2).png`)"),
        ("[x](weird\\_name\\_1.csv)", "x (`weird_name_1.csv`)"),
        ("[x](sandbox:/mnt/data/A.CSV)", "x (`a.csv`)"),
        ("[x](sandbox:/mnt/data/b.png)", "x (`out/b.png`)"),
        # Within the Markdown of blocks.
        ("> - [x](a.csv) `[x](a.csv)` [x](a.csv)", "> - x (`a.csv`) `[x](a.csv)` x (`a.csv`)"),
        ("|a|b|\n|-|-|\n|[x](a.csv)|[x](a.csv)|", "|a|b|\n|-|-|\n|x (`a.csv`)|x (`a.csv`)|"),
        ("# [x](a.csv) #\n\n1. **[x](a.csv)**", "# x (`a.csv`) #\n\n1. **x (`a.csv`)**"),
        ("[![plot](out/b.png)](sandbox:/mnt/data/out/b.png)", "plot (`out/b.png`)"),
        ("[x][1]\n\n[1]: sandbox:/mnt/data/a.csv", "x (`a.csv`)\n\n[1]: sandbox:/mnt/data/a.csv"),
        ("a\r\n[x](a.csv)\rb [y](a.csv)", "a\nx (`a.csv`)\nb y (`a.csv`)"),
    ],
)
def test_link_to_a_file_becomes_its_real_name(text, shown):
    assert file_references.replace_links(text, EXISTING) == shown
    assert file_references.find_missing_files(text, EXISTING) == ()


@pytest.mark.parametrize(
    "text",
    [
        "[site](https://example.org/a.csv)",
        "[site](https://example.org/data (1).csv)",
        "[site](example.org)",
        "[guide](guide.html)",
        "[section](#part)",
        "[mail](mailto:a.csv)",
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
    assert file_references.replace_links(text, EXISTING) == text
    assert file_references.find_missing_files(text, EXISTING) == ()


def test_links_to_files_that_do_not_exist_are_named_once():
    text = (
        "[x](sandbox:/mnt/data/none (1).csv) (yes) and sandbox:/mnt/data/none.csv, "
        "[x](sandbox:/mnt/data/none.csv) and [y](also.pdf)"
    )
    assert file_references.find_missing_files(text, EXISTING) == (
        "none (1).csv",
        "none.csv",
        "also.pdf",
    )
    assert file_references.replace_links(text, EXISTING) == (
        "x (`none (1).csv`) (yes) and `none.csv`, x (`none.csv`) and y (`also.pdf`)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "I saved the table to `result.csv`, and the chart as trend.png.",
        "You can save it as analysis.py and run it.",
        "```python\ndf.to_csv('x.csv')\n```",
        "Created from https://example.org/data/x.csv and www.example.org/y.pdf.",
    ],
)
def test_a_name_without_a_link_is_never_said_to_be_missing(text):
    assert file_references.find_missing_files(text, EXISTING) == ()


_NAMES = st.text(alphabet="ab1 ()[]%'\"&_-é写.*", min_size=1, max_size=12).map(
    lambda stem: f"{stem.strip()}.csv"
)


@hypothesis.given(_NAMES, st.sampled_from(["sandbox:/mnt/data/", "/mnt/data/", ""]))
def test_a_file_of_any_name_is_found_by_a_link_and_never_said_to_be_missing(name, home):
    hypothesis.assume("](" not in name)
    text = f"I saved it: [table](<{home}{name}>), [table]({home}{name}) and `{name}`."
    assert file_references.find_missing_files(text, [name]) == ()


_WORDS = st.text(alphabet="ab 1.,;:`>\n/-_[]()~#*csv", max_size=60)


@hypothesis.given(_WORDS, st.lists(st.sampled_from(["a.csv", "b/a.csv", "sales.csv"])), _WORDS)
def test_whatever_exists_is_never_missing(before, names, after):
    text = f"{before} {' '.join(f'[x](sandbox:/mnt/data/{name})' for name in names)}{after}"
    missing = file_references.find_missing_files(text, ())
    assert file_references.find_missing_files(text, missing) == ()


@hypothesis.given(st.text(alphabet="[]()!<>` \n/:.asndboxmt%\"'|-"))
def test_any_text_can_be_read(text):
    file_references.replace_links(text, EXISTING)


@pytest.mark.parametrize("missing", range(1, 9))
def test_no_word_is_cut_in_two_where_a_long_answer_is_searched_no_further(missing):
    filler = "saved so\n" * 3000
    link = "sandbox:/mnt/data/out.xlsx"
    text = f"{filler[: 20_000 - len(link) + missing - 1]} {link} and more"
    assert text[:20_000].endswith(f" {link[:-missing]}")
    assert file_references.find_missing_files(text, ("out.xlsx",)) == ()


HOSTILE = (
    *("a.", "`", "a/", "- ", "a+b.", "a.csv ", "[a](", "x\n", "[", "![", "](", "sandbox:/", "[](("),
    *("[x](a.csv", "[a\n", "[[]", "> ", "[a]: b\n", "sandbox:a b ", "|a|b\n|-|-\n", "[](a) "),
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_no_longer_however_long_it_is(piece):
    def seconds(characters):
        text = (piece * characters)[:characters]
        began = time.thread_time()
        file_references.find_missing_files(text, EXISTING)
        file_references.replace_links(text, EXISTING)
        return time.thread_time() - began

    short = seconds(20_000)
    assert seconds(200_000) < 4 * short + 0.05
    assert short < 1.5


@pytest.mark.parametrize("depth", [2, 10, 50])
def test_pictures_inside_pictures_take_no_time(depth):
    text = "![" * depth + "x" + "](a.csv)" * depth
    began = time.thread_time()
    assert "`a.csv`" in file_references.replace_links(text, EXISTING)
    assert time.thread_time() - began < 1.5
