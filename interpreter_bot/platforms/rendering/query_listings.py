"""Queries that code sent to data connections, as text that shows what an answer is based on. Pure.

Statements are harmless already, and each is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interpreter_bot import code_activity
from interpreter_bot.text import quantities

_MAX_CHARACTERS: Final = 9000
_LEFT_OUT: Final = "-- … and {count} more"


def outcome(query: code_activity.ShownQuery) -> str:
    """Return how a query went, such as "1,000 rows in 0.2 s", or why it did not."""
    if not query.connection:
        return ""
    result = f"{quantities.count(query.rows, 'row')} in {quantities.duration(query.seconds)}"
    return f"{result}: {query.reason}" if query.rows and query.reason else query.reason or result


def script(queries: Sequence[code_activity.ShownQuery]) -> str:
    """Write queries as SQL, each below a comment with its connection and outcome."""
    texts: list[str] = []
    characters_left = _MAX_CHARACTERS
    for number, query in enumerate(queries):
        comment = " ".join(f"{query.connection}: {outcome(query)}".split())
        text = f"-- {comment}\n{query.statement}" if query.connection else f"-- {query.statement}"
        characters_left -= len(text) + 2
        if characters_left < 0:
            texts.append(_LEFT_OUT.format(count=len(queries) - number))
            break
        texts.append(text)
    return "\n\n".join(texts)
