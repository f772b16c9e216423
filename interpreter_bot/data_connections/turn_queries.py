"""Queries of running turns: approvals of statements by people, and the queries that ran."""

from __future__ import annotations

import collections
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from interpreter_bot import code_activity
from interpreter_bot.text import safe_text
from interpreter_bot.wording import data_words

_MAX_APPROVALS: Final = 10_000
_MAX_QUERIES: Final = 50
_MAX_SHOWN_CHARACTERS: Final = 2000


class TurnQueryLog:
    """Queries of running turns; a session has at most one turn and one job at a time."""

    def __init__(self) -> None:
        self._approvals: collections.OrderedDict[tuple[str, str], None] = collections.OrderedDict()
        self._queries: dict[str, list[code_activity.Query]] = {}
        self._turn_ids: dict[str, set[int]] = {}

    def begin(self, key: str, turn_id: int = 0) -> None:
        """Begin to collect a session's queries for a turn."""
        self._turn_ids.setdefault(key, set()).add(turn_id)
        self._queries.setdefault(key, [])

    def is_running(self, key: str) -> bool:
        """Return whether this process runs a turn of a session."""
        return key in self._queries

    def end(self, key: str, turn_id: int = 0) -> tuple[code_activity.ShownQuery, ...]:
        """Return the queries of a turn, and drop its unused approvals."""
        for approval in [entry for entry in self._approvals if entry[0] == key]:
            del self._approvals[approval]
        queries = self._queries.pop(key, [])
        self._turn_ids.get(key, set()).discard(turn_id)
        if self._turn_ids.get(key):
            self._queries[key] = []
        else:
            self._turn_ids.pop(key, None)
        shown_queries = tuple(map(_summarize, queries[:_MAX_QUERIES]))
        if len(queries) > _MAX_QUERIES:
            shown_queries += (code_activity.ShownQuery("", data_words.MORE_QUERIES),)
        return shown_queries

    def add_query(self, query: code_activity.Query) -> None:
        """Add a query that begins, so that it is shown even if it never ends."""
        queries = self._queries.get(query.key)
        if queries is not None and len(queries) <= _MAX_QUERIES:
            queries.append(query)

    def allow(self, key: str, name: str, sql: str, parameters: Mapping[str, Any]) -> None:
        """Allow a statement that a person has seen to run once, with these parameters."""
        self._approvals[key, _digest(name, sql, parameters)] = None
        if len(self._approvals) > _MAX_APPROVALS:
            self._approvals.popitem(last=False)

    def consume_approval(
        self, key: str, name: str, sql: str, parameters: Mapping[str, Any]
    ) -> bool:
        """Return whether a statement was allowed, and drop the approval."""
        approval = key, _digest(name, sql, parameters)
        is_allowed = approval in self._approvals
        self._approvals.pop(approval, None)
        return is_allowed


def _summarize(query: code_activity.Query) -> code_activity.ShownQuery:
    """Return the present state of a query in a form for people."""
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
