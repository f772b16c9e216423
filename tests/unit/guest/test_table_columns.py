"""Columns of tables, read without running a user's code."""

import sys
import tracemalloc
import types

import pandas
import polars
import pyarrow
import pytest

from interpreter_bot.guest import safe_reprs, table_columns, table_views

COLUMN_COUNT = 50_000


@pytest.mark.parametrize(
    "create_table",
    [
        lambda: pandas.DataFrame([range(COLUMN_COUNT)]),
        lambda: polars.DataFrame([polars.Series(f"column {n}", [0]) for n in range(COLUMN_COUNT)]),
        lambda: pyarrow.table({f"column {n}": [0] for n in range(COLUMN_COUNT)}),
    ],
    ids=["pandas", "polars", "pyarrow"],
)
def test_names_of_columns_are_read_on_request(create_table):
    table = create_table()
    tracemalloc.start()
    try:
        source = table_columns.read(table)
        last_name = source.name(source.column_count - 1)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert source.column_count - source.index_count == COLUMN_COUNT
    assert last_name.endswith(f"{COLUMN_COUNT - 1}")
    assert peak_bytes < 4 * COLUMN_COUNT
    request = '{"rows": [0, 1], "columns": [0, 2], "search": "x"}'
    assert "too large" in table_views.answer(table, request, ("t1", 1))


def test_a_module_of_the_user_is_no_library(monkeypatch):
    calls = []

    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            calls.append(name)
            return UserClass

    class UserClass:
        __module__ = "pandas.own"

    monkeypatch.setitem(sys.modules, "pandas.own", Lazy("pandas.own"))
    assert not safe_reprs.is_from(UserClass, "pandas")
    assert calls == []
    assert safe_reprs.is_from(pandas.Timestamp, "pandas")
    assert not safe_reprs.is_from(pandas.Timestamp, "polars")
