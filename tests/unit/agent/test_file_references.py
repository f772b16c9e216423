"""Links to files become the files' real names, and only false claims of files are reported."""

import time

import hypothesis
import pytest
from hypothesis import strategies as st

from interpreter_bot.agent import chat_messages, file_references

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
MENTIONED = (
    chat_messages.UserMessage(
        "[The person sent the file 'sales.csv'; it is at /mnt/data/sales.csv.]\n\nmean?"
    ),
    chat_messages.AssistantMessage(
        "I look.", (chat_messages.Call("1", "run_code", "open('never.csv')"),)
    ),
    chat_messages.ToolResult("1", "FileNotFoundError: no such file: 'old.xlsx'"),
    chat_messages.UserMessage("I put it into budget.xlsx, I think"),
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
    ("text", "names"),
    [
        ("I saved the table to `result.csv`.", ["result.csv"]),
        ("I saved the table to `result (1).csv`.", ["result (1).csv"]),
        ("The chart is saved as trend.png, the rest in rest.json.", ["trend.png", "rest.json"]),
        ("I created `fib.py` and `notes.md`.", ["fib.py", "notes.md"]),
        ("I exported **summary_2024.xlsx** with all rows.", ["summary_2024.xlsx"]),
        ("It is at /mnt/data/clean.parquet.", ["clean.parquet"]),
        ("It is at `/mnt/data/sub/clean.parquet`", ["sub/clean.parquet"]),
        ("I saved two files:\n\n- `c.csv`: the rows\n- `d.csv`: the columns", ["c.csv", "d.csv"]),
        ("Ich habe `auswertung.pdf` gespeichert.", ["auswertung.pdf"]),
        ("[the file](sandbox:/mnt/data/gone.csv)", ["gone.csv"]),
        ("Saved: `Q3 final report.docx`", ["Q3 final report.docx"]),
        ("The file is not sorted. I wrote never.csv.", ["never.csv"]),
        ("~~~\n```\nsaved x.csv\n~~~~\nI wrote never.csv.", ["never.csv"]),
    ],
)
def test_a_file_that_is_said_to_be_made_and_does_not_exist_is_missing(text, names):
    assert list(file_references.find_missing_files(text, EXISTING, MENTIONED)) == names


@pytest.mark.parametrize(
    "text",
    [
        # They exist, whatever they are called on the way.
        "I saved `sales.csv`, plot.png, out/plot.png, SALES.CSV, /mnt/data/sales.csv.",
        "I wrote data (1).csv, `data (1).csv`, [raw] data.csv and Übersicht 2024 Q1.xlsx.",
        "I saved `Q1 'final'.xlsx`, x[1].csv, 100%.csv and 写真 (2).png.",
        # Others spoke of them.
        "I created budget.xlsx nowhere; old.xlsx was made before.",
        # They are within another one.
        "I made an archive with north.csv and south.csv in it.",
        # Code, quotations, addresses, expressions.
        "```python\ndf.to_csv('x.csv')\n```",
        "~~~\nsaved x.csv\n~~~",
        "~~~\n```\nsaved x.csv\n~~~~\nDone.",
        "  ````\n```\nsaved x.csv\n   `````\nDone.",
        "I created it by `df.to_csv('x.csv')`.",
        "    df.to_csv('x.csv')",
        "> I saved x.csv",
        "Created from https://example.org/data/x.csv and www.example.org/y.pdf.",
        "It was made by `response.json()`, so is response.json().",
        "Created by numpy.random, df.head, os.path and Node.js; ASP.NET 4.5, e.g., i.e.",
        "It was saved to /home/anna/x.csv, ~/y.csv and C:\\z.csv, as *.csv or <name>.csv.",
        # Nothing was made.
        "The entry point is `main.py`; settings.yaml and requirements.txt are read at the start.",
        "The iris dataset (`iris.csv`) has 150 rows, mtcars.csv 32.",
        # What might be, is advised, or is not there.
        "You can save it as analysis.py and run it.",
        "If you want, I write a report.pdf.",
        "Please upload costs.xlsx.",
        "There is no file called costs.xlsx that was saved.",
        "I couldn't find costs.xlsx.",
        "Files such as c.csv or b.json work.",
        "Du kannst es in daten.csv speichern.",
        "Vous pouvez l'enregistrer dans donnees.csv.",
        "I created your_file.csv, example.csv, my_data.xlsx, filename.txt and file1.csv.",
        "I made a CSV or .csv file; version 1.2.md5; 3.14; a.b.c",
    ],
)
def test_nothing_else_is_said_not_to_exist(text):
    assert file_references.find_missing_files(text, EXISTING, MENTIONED) == ()


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
def test_whatever_exists_or_was_named_by_others_is_never_missing(before, names, after):
    text = f"{before} saved {' '.join(names)}{after}"
    missing = file_references.find_missing_files(text, ())
    assert file_references.find_missing_files(text, missing) == ()
    mentioned = (chat_messages.UserMessage(" ".join(missing)),)
    assert set(file_references.find_missing_files(text, (), mentioned)) <= set(missing)


@hypothesis.given(st.text(alphabet="[]()!<>` \n/:.asndboxmt%\"'|-"))
def test_any_text_can_be_read(text):
    file_references.replace_links(text, EXISTING)


@pytest.mark.parametrize("missing", range(1, 9))
def test_no_word_is_cut_in_two_where_a_long_answer_is_searched_no_further(missing):
    filler = "saved so\n" * 3000
    text = f"{filler[: 20_000 - len('out.xlsx') + missing - 1]} out.xlsx and more"
    assert text[:20_000].endswith(f" {'out.xlsx'[:-missing]}")
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
