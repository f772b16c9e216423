"""Additions to Python's tracebacks."""

import linecache

import pandas
import polars
import pytest

from interpreter_bot.guest import compact_tracebacks

SALES = pandas.DataFrame({"kg": [1, 2], "crop": ["pear", "plum"]})


def format_last_lines(code, **names):
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
def test_an_error_for_a_missing_column_lists_the_columns(code):
    assert format_last_lines(code, sales=SALES, other=SALES)[1] == "The columns of sales: kg, crop"


def test_columns_of_the_index_are_listed_as_such():
    lines = format_last_lines("by['crop']", by=SALES.groupby("crop").sum())
    assert lines[1:] == ["The columns of by: kg (and the index: crop)", "KeyError: 'crop'"]
    assert format_last_lines("t['a'] + t.b", t=pandas.DataFrame(columns=range(999)))[1].endswith(
        ", 58, 59"
    )


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("{}['a']", {}),
        ("1 / sales['kg'][9:].sum().a", {"sales": {"kg": []}}),
        ("1 / 0", {"x": SALES}),
    ],
)
def test_other_errors_say_nothing_of_columns(code, names):
    assert "columns" not in "".join(format_last_lines(code, **names))


def test_an_attribute_error_lists_columns_of_polars():
    lines = format_last_lines("frame.kgs", frame=polars.DataFrame({"kg": [1]}))
    assert lines[1] == "The columns of frame: kg"
