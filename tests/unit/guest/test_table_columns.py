"""Columns of tables, whose libraries alone are asked."""

import sys
import tracemalloc
import types

import pandas
import polars
import pyarrow
import pytest

from interpreter_bot.guest import safe_reprs, table_columns, table_views

MANY = 50_000


@pytest.mark.parametrize(
    "made",
    [
        lambda: pandas.DataFrame([range(MANY)]),
        lambda: polars.DataFrame([polars.Series(f"column {n}", [0]) for n in range(MANY)]),
        lambda: pyarrow.table({f"column {n}": [0] for n in range(MANY)}),
    ],
    ids=["pandas", "polars", "pyarrow"],
)
def test_columns_are_named_as_they_are_asked_for(made):
    table = made()
    tracemalloc.start()
    try:
        source = table_columns.read(table)
        last = source.name(source.column_count - 1)
        limit = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert source.column_count - source.index_count == MANY
    assert last.endswith(f"{MANY - 1}")
    assert limit < 4 * MANY
    asked = '{"rows": [0, 1], "columns": [0, 2], "search": "x"}'
    assert "too large" in table_views.answer(table, asked, ("t1", 1))


def test_a_module_of_a_users_is_no_library(monkeypatch):
    ran = []

    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            ran.append(name)
            return Own

    class Own:
        __module__ = "pandas.own"

    monkeypatch.setitem(sys.modules, "pandas.own", Lazy("pandas.own"))
    assert not safe_reprs.is_from(Own, "pandas")
    assert ran == []
    assert safe_reprs.is_from(pandas.Timestamp, "pandas")
    assert not safe_reprs.is_from(pandas.Timestamp, "polars")
