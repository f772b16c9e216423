"""Columns of tables of pandas, polars and pyarrow, read without running a user's code.

Only the libraries' own classes are read, never subclasses. This module imports no library, because
a session with a table has imported its library.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from . import safe_reprs

Kind: TypeAlias = Literal["number", "truth", "time", "text", "other"]
Rows: TypeAlias = Any
"""A slice with start and stop, or a numpy array of positions."""

_MASKED_ARRAYS = ("IntegerArray", "FloatingArray", "BooleanArray")
_OTHER_ARRAYS = ("IntervalArray", "SparseArray", "StringArray")
_KINDS: dict[str, Kind] = {
    **dict.fromkeys("iuf", "number"),
    "b": "truth",
    "M": "time",
    **dict.fromkeys("OU", "text"),
}


class ForeignTableError(ValueError):
    """The table's class is not a library's own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column, or a level of an index.

    Attributes:
        dtype: the library's name of its type.
        kind: determines how it can be filtered and summarized.
        cells: returns the values of some rows as Python objects.
        array: returns all values as a numpy array, and a mask of missing values (None if there are
            none, or they are NaN). Times are integers; texts may be objects of a hostile class.
        parse_time: turns a text into an integer of `array`.
        ranks: returns a substitute for `array` by which the column is sorted.
    """

    dtype: str
    kind: Kind
    cells: Callable[[Rows], list[Any]]
    array: Callable[[], tuple[Any, Any]] | None = None
    parse_time: Callable[[str], int] | None = None
    ranks: Callable[[], tuple[Any, Any]] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A table: its size and its columns, with columns of the index first.

    Names and columns are read on request, because there may be a million.
    """

    row_count: int
    column_count: int
    index_count: int
    name: Callable[[int], str]
    column: Callable[[int], Column]


def read(table: Any) -> Source:
    """Return the columns of a table.

    Raises:
        ForeignTableError: its class is not a library's own.
    """
    kind, name = type(table), safe_reprs.class_name(table)
    if name in ("DataFrame", "Series") and safe_reprs.is_from(kind, "pandas"):
        return _read_pandas_table(table, is_series=name == "Series")
    if name in ("DataFrame", "Series") and safe_reprs.is_from(kind, "polars"):
        return _read_polars_table(table if name == "DataFrame" else table.to_frame())
    if name in ("Table", "RecordBatch") and safe_reprs.is_from(kind, "pyarrow"):
        return Source(
            *(table.num_rows, table.num_columns, 0),
            lambda number: safe_reprs.clip(table.schema.field(number).name),
            lambda number: _arrow_column(table.column(number)),
        )
    raise ForeignTableError


def format_heading(name: object) -> str:
    """Return the text of a column's name, which may have several levels."""
    parts: Any = name if type(name) is tuple else (name,)
    return " / ".join(safe_reprs.text(part) or "" for part in parts)


def _opaque_column(name: str) -> Column:
    def cells(rows: Rows) -> list[Any]:
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        return [f"<{name}>"] * count

    return Column(name, "other", cells)


# ---- pandas


def _read_pandas_table(table: Any, *, is_series: bool) -> Source:
    pandas = sys.modules["pandas"]
    index = table.index
    columns = index if is_series else table.columns
    if not all(safe_reprs.is_from(type(part), "pandas") for part in (index, columns)):
        raise ForeignTableError
    level_count = index.nlevels
    column_count = 1 if is_series else len(columns)
    # A table without the original's attrs, because `iloc` copies attrs, which may run user code.
    plain_frame = table if is_series else pandas.DataFrame(table)

    def name(number: int) -> str:
        if number < level_count:
            label = index.names[number]
        else:
            label = table.name if is_series else columns[number - level_count]
        return "" if label is None else format_heading(label)

    def column(number: int) -> Column:
        if number < level_count:
            return _pandas_column(index.get_level_values(number).array)
        return _pandas_column(
            (plain_frame if is_series else plain_frame.iloc[:, number - level_count]).array
        )

    return Source(len(index), level_count + column_count, level_count, name, column)


def _pandas_column(array: Any) -> Column:
    kind, name = type(array), safe_reprs.class_name(array)
    if name == "ndarray" and safe_reprs.is_from(kind, "numpy"):
        return _numpy_column(array)
    if not safe_reprs.is_from(kind, "pandas"):
        return _opaque_column(name)
    if name == "NumpyExtensionArray":
        return _numpy_column(array.to_numpy())
    if name.startswith("Arrow"):
        column = _arrow_column(sys.modules["pyarrow"].array(array))
        return dataclasses.replace(column, dtype="str") if name == "ArrowStringArray" else column

    def cells(rows: Rows) -> list[Any]:
        return list(array[rows])

    if name in _MASKED_ARRAYS:
        column_kind: Kind = "truth" if name == "BooleanArray" else "number"
        plain_dtype = array.dtype.numpy_dtype

        def read_masked() -> tuple[Any, Any]:
            return array.to_numpy(plain_dtype, na_value=plain_dtype.type(0)), array.isna()

        return Column(f"{array.dtype}", column_kind, cells, read_masked)
    if name in ("DatetimeArray", "TimedeltaArray", "PeriodArray"):
        return _pandas_time_column(array, name, cells)
    if name == "Categorical":
        return _categorical_column(array, cells)
    if name in _OTHER_ARRAYS:
        column_kind = "text" if name == "StringArray" else "other"
        return Column(
            name.removesuffix("Array").lower(), column_kind, cells, lambda: _object_array(array)
        )
    return _opaque_column(name)


def _numpy_column(array: Any) -> Column:
    kind = _KINDS.get(array.dtype.kind, "other")

    def cells(rows: Rows) -> list[Any]:
        return list(array[rows].tolist() if kind != "time" else array[rows])

    if kind == "time":
        unit = sys.modules["numpy"].datetime_data(array.dtype)[0]
        return Column(
            f"{array.dtype}", kind, cells, lambda: _time_integers(array), _time_parser(unit)
        )
    has_array = kind != "other"
    return Column(f"{array.dtype}", kind, cells, (lambda: (array, None)) if has_array else None)


def _time_integers(array: Any) -> tuple[Any, Any]:
    return array.view("int64"), sys.modules["numpy"].isnat(array)


def _time_parser(unit: str) -> Callable[[str], int]:
    numpy: Any = sys.modules["numpy"]
    return lambda text: int(numpy.datetime64(text, unit).astype("int64"))


def _object_array(array: Any) -> tuple[Any, Any]:
    return sys.modules["numpy"].asarray(array, dtype=object), None


def _pandas_time_column(array: Any, name: str, cells: Callable[[Rows], list[Any]]) -> Column:
    pandas = sys.modules["pandas"]

    def read_times() -> tuple[Any, Any]:
        return array.asi8, array.isna()

    if name != "DatetimeArray":
        return Column(name.removesuffix("Array").lower(), "other", cells, read_times)
    if not safe_reprs.is_known_zone(array.tz):
        return _opaque_column(name)

    def parse_time(text: str) -> int:
        stamp = pandas.Timestamp(text)
        stamp = stamp.tz_localize(array.tz) if stamp.tz is None else stamp
        return int(stamp.as_unit(array.unit).to_datetime64().astype("int64"))

    return Column(f"{array.dtype}", "time", cells, read_times, parse_time)


def _categorical_column(array: Any, cells: Callable[[Rows], list[Any]]) -> Column:
    codes = (lambda: (array.codes, array.codes < 0)) if array.ordered else None
    return Column("category", "text", cells, lambda: _object_array(array), ranks=codes)


# ---- polars


def _read_polars_table(table: Any) -> Source:
    polars = sys.modules["polars"]

    def get_series(number: int) -> Any:
        return polars.DataFrame.to_series(table, number)

    return Source(
        *(table.height, table.width, 0),
        lambda number: safe_reprs.clip(get_series(number).name),
        lambda number: _polars_column(get_series(number)),
    )


def _polars_column(series: Any) -> Column:
    dtype = series.dtype
    if not _is_plain_polars(dtype):
        return _opaque_column(safe_reprs.class_name(dtype))

    def cells(rows: Rows) -> list[Any]:
        if isinstance(rows, slice):
            return list(series.slice(rows.start, rows.stop - rows.start).to_list())
        return list(series.gather(rows).to_list())

    name, dtype_name = safe_reprs.clip(f"{dtype}"), safe_reprs.class_name(dtype)

    def find_missing() -> Any:
        return series.is_null().to_numpy()

    if dtype.is_numeric():
        numeric_type = (
            sys.modules["polars"].Float64
            if dtype_name in ("Decimal", "Int128", "UInt128")
            else dtype
        )
        return Column(
            name,
            "number",
            cells,
            lambda: (series.cast(numeric_type).fill_null(0).to_numpy(), find_missing()),
        )
    if dtype_name == "Boolean":
        return Column(
            name, "truth", cells, lambda: (series.fill_null(value=False).to_numpy(), find_missing())
        )
    if dtype.is_temporal():
        unit = {"Datetime": getattr(dtype, "time_unit", ""), "Date": "D"}.get(dtype_name)
        return Column(
            *(name, "time" if unit else "other", cells),
            lambda: (series.to_physical().fill_null(0).to_numpy(), find_missing()),
            _time_parser(unit) if unit else None,
        )
    if dtype_name in ("String", "Categorical", "Enum"):
        string_type = sys.modules["polars"].String
        return Column(
            name, "text", cells, lambda: _object_array(series.cast(string_type).to_list())
        )
    return Column(name, "other", cells)


def _is_plain_polars(dtype: Any) -> bool:
    if not safe_reprs.is_from(type(dtype), "polars"):
        return False
    if not dtype.is_nested():
        return True
    inner_types = (
        [dtype.inner] if hasattr(dtype, "inner") else [field.dtype for field in dtype.fields]
    )
    return all(map(_is_plain_polars, inner_types))


# ---- pyarrow


def _arrow_column(column: Any) -> Column:
    arrow = sys.modules["pyarrow"]
    kind, types = column.type, arrow.types
    if not is_plain_arrow(kind):
        return _opaque_column("extension")

    def cells(rows: Rows) -> list[Any]:
        selection = column[rows] if isinstance(rows, slice) else column.take(arrow.array(rows))
        return list(selection.to_pylist())

    def fill_missing(values: Any) -> tuple[Any, Any]:
        return values.fill_null(0).to_numpy(), column.is_null().to_numpy(zero_copy_only=False)

    name = safe_reprs.clip(f"{kind}")
    if types.is_boolean(kind):
        return Column(name, "truth", cells, lambda: fill_missing(column.cast(arrow.int8())))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        numeric_type = arrow.float64() if types.is_decimal(kind) else kind
        return Column(name, "number", cells, lambda: fill_missing(column.cast(numeric_type)))
    if types.is_timestamp(kind) or types.is_date(kind):
        is_in_days = types.is_date32(kind)
        unit = kind.unit if types.is_timestamp(kind) else "D" if is_in_days else "ms"
        integer_type = arrow.int32() if is_in_days else arrow.int64()
        return Column(
            name, "time", cells, lambda: fill_missing(column.cast(integer_type)), _time_parser(unit)
        )
    plain_column = column.cast(kind.value_type) if types.is_dictionary(kind) else column
    if types.is_string(plain_column.type) or types.is_large_string(plain_column.type):
        return Column(
            name, "text", cells, lambda: _object_array(plain_column.to_numpy(zero_copy_only=False))
        )
    return Column(name, "other", cells)


def is_plain_arrow(kind: Any) -> bool:
    """Return whether a type of pyarrow is no extension type, and contains none."""
    if isinstance(kind, sys.modules["pyarrow"].BaseExtensionType):
        return False
    inner_types = [kind.field(number).type for number in range(kind.num_fields)]
    if hasattr(kind, "value_type"):
        inner_types.append(kind.value_type)
    return all(map(is_plain_arrow, inner_types))
