"""What a traceback says beyond Python's own."""

import linecache

import pandas
import polars
import pytest

from interpreter_bot.guest import compact_tracebacks

SALES = pandas.DataFrame({"kg": [1, 2], "crop": ["pear", "plum"]})


def ending(code, **names):
    filename = f"{compact_tracebacks.CELL_PREFIX}1>"
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    try:
        exec(compile(code, filename, "exec"), names)
    except Exception as error:
        return compact_tracebacks.compact(type(error), error, error.__traceback__)[-3:]
    raise AssertionError(code)


@pytest.mark.parametrize(
    "code", ["\nsales['price']", "\nsales.price", "\ndef f():\n  sales['a']\nf()"]
)
def test_error_for_a_missing_column_names_those_there_are(code):
    assert ending(code, sales=SALES, other=SALES)[1] == "The columns of sales: kg, crop"


def test_columns_that_became_the_index_are_named_as_that():
    told = ending("by['crop']", by=SALES.groupby("crop").sum())
    assert told[1:] == ["The columns of by: kg (and the index: crop)", "KeyError: 'crop'"]
    assert ending("t['a'] + t.b", t=pandas.DataFrame(columns=range(999)))[1].endswith(", 58, 59")


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("{}['a']", {}),
        ("1 / sales['kg'][9:].sum().a", {"sales": {"kg": []}}),
        ("1 / 0", {"x": SALES}),
    ],
)
def test_other_errors_say_nothing_of_columns(code, names):
    assert "columns" not in "".join(ending(code, **names))


def test_columns_of_polars_are_named_where_it_looks_like_a_missing_name():
    told = ending("frame.kgs", frame=polars.DataFrame({"kg": [1]}))
    assert told[1] == "The columns of frame: kg"
