"""Claims without ground are found, and nothing else is taken for one."""

import time

import hypothesis
import pytest
from hypothesis import strategies as st

from interpreter_bot.agent import chat_messages, unfounded_claims

EXISTING = ("sales.csv", "out/plot.png", "My report.pdf")
TOLD = (
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
    ("text", "names"),
    [
        ("I saved the table to `result.csv`.", ["result.csv"]),
        ("The chart is saved as trend.png, the rest in rest.json.", ["trend.png", "rest.json"]),
        ("I created `fib.py` and `notes.md`.", ["fib.py", "notes.md"]),
        ("See **summary_2024.xlsx** for all rows.", ["summary_2024.xlsx"]),
        ("It is at /mnt/data/clean.parquet.", ["clean.parquet"]),
        ("It is at `/mnt/data/sub/clean.parquet`", ["sub/clean.parquet"]),
        ("- `a.csv`: the rows\n- `b.csv`: the columns", ["a.csv", "b.csv"]),
        ("Ich habe `auswertung.pdf` gespeichert.", ["auswertung.pdf"]),
        ("[the file](sandbox:/mnt/data/gone.csv)", ["gone.csv"]),
        ("Saved: `Q3 final report.docx`", ["Q3 final report.docx"]),
        ("The file is not sorted. I wrote never.csv.", ["never.csv"]),
        ("~~~\n```\nsaved x.csv\n~~~~\nI wrote never.csv.", ["never.csv"]),
    ],
)
def test_a_file_that_does_not_exist_is_a_claim(text, names):
    assert list(unfounded_claims.missing_files(text, EXISTING, TOLD)) == names


@pytest.mark.parametrize(
    "text",
    [
        # They exist, whatever they are called on the way.
        "`sales.csv`, plot.png, out/plot.png, SALES.CSV, /mnt/data/sales.csv and `My report.pdf`",
        # Others spoke of them.
        "I found budget.xlsx nowhere; old.xlsx is gone.",
        # Code, quotations, addresses, expressions.
        "```python\ndf.to_csv('x.csv')\n```",
        "~~~\nsaved x.csv\n~~~",
        "~~~\n```\nsaved x.csv\n~~~~\nDone.",
        "  ````\n```\nsaved x.csv\n   `````\nDone.",
        "Run `df.to_csv('x.csv')` there.",
        "    df.to_csv('x.csv')",
        "> I saved x.csv",
        "See https://example.org/data/x.csv and www.example.org/y.pdf.",
        "`response.json()` gives a dict, so does response.json().",
        "Call numpy.random, df.head, os.path and Node.js; ASP.NET 4.5, e.g., i.e.",
        "It is in /home/anna/x.csv, ~/y.csv and C:\\z.csv, and matches *.csv or <name>.csv.",
        # Programs.
        "The entry point is `main.py`; settings.yaml and requirements.txt are read at the start.",
        # What might be, is advised, or is not there.
        "You can save it as analysis.py and run it.",
        "If you want, I write a report.pdf.",
        "Please upload costs.xlsx.",
        "There is no file called costs.xlsx.",
        "I couldn't find costs.xlsx.",
        "Files such as a.csv or b.json work.",
        "Du kannst es in daten.csv speichern.",
        "Vous pouvez l'enregistrer dans donnees.csv.",
        "Replace your_file.csv, example.csv, my_data.xlsx, filename.txt and file1.csv there.",
        "A CSV or .csv file; version 1.2.md5; 3.14; a.b.c",
    ],
)
def test_nothing_else_is_a_claim_of_a_file(text):
    assert unfounded_claims.missing_files(text, EXISTING, TOLD) == ()


KNOWN = (
    "Today is Saturday, 21 November 2026. One run may take 120 seconds.",
    "[The person sent sales.csv (12.4 KiB); region,amount\nnorth,118.25\nsouth,97]\n\nOver 85?",
    "I ran: mean 0.4273, total 1,234,567.891",
)


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("The mean is 73.2.", ["73.2"]),
        ("There are 4,812 rows, of which 37 lack a value.", ["4,812", "37"]),
        ("South sold 41 % of everything.", ["41"]),
        ("1. North: 118.25\n2. South: 219.5", ["219.5"]),
        ("Total: **1,234,999**", ["1,234,999"]),
        ("Im Mittel sind es 73.2 je Tag.", ["73.2"]),
        ("In May it was 340.", ["340"]),
        ("Der Mittelwert ist 73,25, la somme 1 234 999,5.", ["73,25", "1 234 999,5"]),
    ],
)
def test_a_figure_out_of_nothing_is_a_claim(text, figures):
    assert list(unfounded_claims.figures_of_nothing(text, KNOWN)) == figures


@pytest.mark.parametrize(
    "text",
    [
        # Told, printed, or a rounding or a percentage of that.
        "North has 118.25, about 118.3; south 97; the mean is 0.43 or 42.73 %, in all 1,234,568.",
        "It is 1.23 million in all, or 1,235 thousand.",
        # As it is written elsewhere.
        "Nord hat 118,25, der Mittelwert ist 0,43, die Summe 1.234.567,89.",
        "La somme est 1 234 567,89 ou 1\u202f234\u202f568; die Summe ist 1'234'568.",
        "Of 118.25 120 are left, and the bars are #1f77b4.",
        "You asked for those over 85, on 21 November 2026, within 120 s.",
        # What people say anyway.
        "There are 3 columns and 12 months, since 1998, in 100 % of the cases (p < 0.05, 95 %).",
        "1. First\n2. Then\n17. Last\n- Step 42: done",
        "Python 3.11 and pandas 2.2.3, at 14:35, on 2024-05-17 or 17.05.24; figure 23, row 41.",
        # What might be.
        "For example, with values of 33, 47 and 61.8 the median is 47.",
        "If it were 73.2, more would be sold.",
        "Typically 68.27 % lie within one standard deviation.",
        "Zum Beispiel 73.2.",
        # Code.
        "```\nx = 73.2\n```\nUse `round(x, 73)`.",
        "> it was 73.2",
        "See https://example.org/73.2/x.",
        "Hello! What do you want to know?",
    ],
)
def test_nothing_else_is_a_claim_of_a_figure(text):
    assert unfounded_claims.figures_of_nothing(text, KNOWN) == ()


@hypothesis.given(st.floats(13, 1e9), st.integers(0, 4))
def test_what_was_printed_may_be_said_in_any_rounding(value, places):
    answer = f"The mean is {value:,.{places}f}, in all {value:.{places}f}."
    assert unfounded_claims.figures_of_nothing(answer, (f"mean: {value!r}",)) == ()


_WORDS = st.text(alphabet="ab 1.,:;`>\n/-_[]()~#*csv", max_size=60)


@hypothesis.given(_WORDS, st.lists(st.sampled_from(["a.csv", "b/a.csv", "sales.csv"])), _WORDS)
def test_whatever_exists_or_was_named_by_others_is_never_missing(before, names, after):
    text = before + " ".join(names) + after
    found = unfounded_claims.missing_files(text, (), ())
    assert unfounded_claims.missing_files(text, found, ()) == ()
    told = (chat_messages.UserMessage(" ".join(found)),)
    assert set(unfounded_claims.missing_files(text, (), told)) <= set(found)


def test_figures_are_made_up_of_data_only():
    assert unfounded_claims.has_data(TOLD)
    assert not unfounded_claims.has_data(
        (chat_messages.UserMessage("What is 12 times 37?"), chat_messages.AssistantMessage("444"))
    )


@pytest.mark.parametrize("missing", range(1, 9))
def test_no_word_is_cut_in_two_where_a_long_answer_is_searched_no_further(missing):
    for word in ("out.xlsx", "4711.375"):
        filler = "so it is\n" * 3000
        text = f"{filler[: 20_000 - len(word) + missing - 1]} {word} and more"
        assert text[:20_000].endswith(f" {word[:-missing]}")
        assert unfounded_claims.missing_files(text, ("out.xlsx",), ()) == ()
        assert unfounded_claims.figures_of_nothing(text, ("4711.375",)) == ()


HOSTILE = ("a.", "`", "a/", "1.", "- ", "1'", "1 111", "a+b.", "a.csv ", "12.3 ", "[a](", "x\n")


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_no_longer_however_long_it_is(piece):
    def seconds(characters):
        text = (piece * characters)[:characters]
        began = time.thread_time()
        unfounded_claims.missing_files(text, (), ())
        unfounded_claims.figures_of_nothing(text, ())
        return time.thread_time() - began

    short = min(seconds(20_000) for _ in range(3))
    assert min(seconds(200_000) for _ in range(2)) < 4 * short + 0.05
    # Nor is any of it far worse than plain words are.
    assert short < 0.5
