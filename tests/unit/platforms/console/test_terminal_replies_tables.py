"""Tables as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import cells

from interpreter_bot import values
from interpreter_bot.platforms.console import terminal_replies


def table(columns, *rows, row_count=None, column_count=1):
    return values.Table(
        columns=tuple(columns),
        rows=tuple(map(tuple, rows)),
        row_count=len(rows) if row_count is None else row_count,
        column_count=column_count,
        index_count=1,
    )


def test_heads_stand_over_their_columns_and_numbers_to_the_right():
    drawn = terminal_replies.draw_table(
        table(["", "name", "n"], ["0", "a", "1.5"], ["10", "longer", "22.25"])
    )
    assert drawn.splitlines() == [
        "    name        n",
        "--  ------  -----",
        " 0  a         1.5",
        "10  longer  22.25",
        "[2 rows x 1 columns]",
    ]


def test_letters_of_double_width_keep_columns_straight():
    lines = terminal_replies.draw_table(table(["x", "y"], ["日本", "a"], ["ab", "b"])).splitlines()
    assert [cells.cell_len(line) for line in lines[:4]] == [7, 7, 7, 7]
    assert lines[2].endswith("日本  a")


def test_a_head_says_how_much_there_is():
    drawn = terminal_replies.draw_table(table(["a"], ["1"], row_count=12_345, column_count=7))
    assert drawn.splitlines()[-1] == "[12,345 rows x 7 columns, the first 1 shown]"


def test_columns_that_do_not_fit_are_left_out_and_missed():
    wide = table(["a" * 10, "b" * 10, "c" * 10], ["1", "2", "3"])
    assert max(map(len, terminal_replies.draw_table(wide, 30).splitlines())) <= 30
    assert "…" in terminal_replies.draw_table(wide, 30)
    assert "…" not in terminal_replies.draw_table(wide, 80)
    assert "a" * 10 in terminal_replies.draw_table(wide, 3)


@pytest.mark.parametrize("rows", [[], [[]], [[], []]])
def test_a_table_without_columns_is_its_size(rows):
    assert terminal_replies.draw_table(table([], *rows)) == f"[{len(rows)} rows x 1 columns]"


def test_a_table_without_rows_shows_its_heads():
    assert terminal_replies.draw_table(table(["a", "b"])).splitlines()[:2] == ["a  b", "-  -"]


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2), max_size=4))
def test_nothing_in_a_cell_leaves_its_line(rows):
    drawn = terminal_replies.draw_table(table(["x\x1b[2J", "y\r\n"], *rows))
    assert len(drawn.split("\n")) == len(rows) + 3
    assert drawn.replace("\n", "").isprintable()
