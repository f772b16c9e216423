"""Queries that code sent to data connections, as text that shows the basis of an answer. Pure.

Statements are already sanitized and of bounded length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interpreter_bot import code_activity
from interpreter_bot.text import quantities

_MAX_CHARACTERS: Final = 9000
_OMISSION_LINE: Final = "-- … and {count} more"


def describe_outcome(query: code_activity.ShownQuery) -> str:
    """Return the result of a query, such as "1,000 rows in 0.2 s", or why it failed."""
    if not query.connection:
        return ""
    result = f"{quantities.count(query.rows, 'row')} in {quantities.duration(query.seconds)}"
    return f"{result}: {query.reason}" if query.rows and query.reason else query.reason or result


def write_script(queries: Sequence[code_activity.ShownQuery]) -> str:
    """Write queries as SQL, each below a comment with its connection and outcome."""
    texts: list[str] = []
    characters_left = _MAX_CHARACTERS
    for number, query in enumerate(queries):
        comment = " ".join(f"{query.connection}: {describe_outcome(query)}".split())
        text = f"-- {comment}\n{query.statement}" if query.connection else f"-- {query.statement}"
        characters_left -= len(text) + 2
        if characters_left < 0:
            texts.append(_OMISSION_LINE.format(count=len(queries) - number))
            break
        texts.append(text)
    return "\n\n".join(texts)
