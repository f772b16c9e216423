"""Tables on a terminal."""

from __future__ import annotations

from typing import Final

from interpreter_bot import values
from interpreter_bot.platforms.rendering import tables

_MOST_ROWS: Final = 20


def draw(table: values.Table, most_width: int | None = None) -> str:
    """Draw the head of a table, no wider than the terminal where that is known."""
    return tables.draw(table, most_width, most_rows=_MOST_ROWS)
