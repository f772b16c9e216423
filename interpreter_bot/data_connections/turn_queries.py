"""Queries of the running turn of each session: those that a person allowed, and those that ran."""

from __future__ import annotations

import collections
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from interpreter_bot import code_activity
from interpreter_bot.text import safe_text
from interpreter_bot.wording import data_words

_MAX_ALLOWED: Final = 10_000
_MAX_QUERIES: Final = 50
_MAX_SHOWN_CHARACTERS: Final = 2000


class TurnQueryLog:
    """Queries of running turns: one at most of each session, and that of its job."""

    def __init__(self) -> None:
        self._allowed: collections.OrderedDict[tuple[str, str], None] = collections.OrderedDict()
        self._queries: dict[str, list[code_activity.Query]] = {}
        self._turns: dict[str, set[int]] = {}

    def begin(self, key: str, turn_id: int = 0) -> None:
        """Begin to collect the queries of a session for one of its turns."""
        self._turns.setdefault(key, set()).add(turn_id)
        self._queries.setdefault(key, [])

    def is_running(self, key: str) -> bool:
        """Return whether a turn of this process runs in a session."""
        return key in self._queries

    def end(self, key: str, turn_id: int = 0) -> tuple[code_activity.ShownQuery, ...]:
        """Return the queries of a turn, and drop its unused approvals."""
        for allowed in [entry for entry in self._allowed if entry[0] == key]:
            del self._allowed[allowed]
        queries = self._queries.pop(key, [])
        self._turns.get(key, set()).discard(turn_id)
        if self._turns.get(key):
            self._queries[key] = []
        else:
            self._turns.pop(key, None)
        shown = tuple(map(_summarize, queries[:_MAX_QUERIES]))
        if len(queries) > _MAX_QUERIES:
            shown += (code_activity.ShownQuery("", data_words.MORE_QUERIES),)
        return shown

    def note(self, query: code_activity.Query) -> None:
        """Add a query when it begins, so that it is shown even if it never ends."""
        queries = self._queries.get(query.key)
        if queries is not None and len(queries) <= _MAX_QUERIES:
            queries.append(query)

    def allow(self, key: str, name: str, sql: str, parameters: Mapping[str, Any]) -> None:
        """Allow a statement that a person has seen to run once, with these parameters."""
        self._allowed[key, _digest(name, sql, parameters)] = None
        if len(self._allowed) > _MAX_ALLOWED:
            self._allowed.popitem(last=False)

    def consume_approval(
        self, key: str, name: str, sql: str, parameters: Mapping[str, Any]
    ) -> bool:
        """Return whether a statement was allowed, and drop the approval."""
        allowed = key, _digest(name, sql, parameters)
        is_allowed = allowed in self._allowed
        self._allowed.pop(allowed, None)
        return is_allowed


def _summarize(query: code_activity.Query) -> code_activity.ShownQuery:
    """Return the present state of a query, for people."""
    return code_activity.ShownQuery(
        query.connection,
        safe_text.reveal_hidden(
            safe_text.truncate(query.statement.strip(), _MAX_SHOWN_CHARACTERS)
        ).text,
        rows=query.rows,
        seconds=round(query.seconds, 3),
        reason=safe_text.reveal_hidden(query.reason).text,
    )


def _digest(*statement: Any) -> str:
    """Return the digest that identifies a statement."""
    return hashlib.sha256(json.dumps(statement, sort_keys=True).encode()).hexdigest()
