"""The tables of one connection, as they were last fetched, and their description for models."""

from __future__ import annotations

import asyncio
import collections
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from interpreter_bot import errors
from interpreter_bot.data_connections import worker_messages
from interpreter_bot.wording import data_words

_log = logging.getLogger(__name__)

_MAX_AGE_SECONDS: Final = 3600.0
_RETRY_SECONDS: Final = 60.0
_MAX_DESCRIBED_TABLES: Final = 40
_MAX_COMMENT_CHARACTERS: Final = 100
_MORE_TABLES: Final = "  and {count} more: connections[{name!r}].tables()"
_UNKNOWN_TABLES: Final = "  its tables: connections[{name!r}].tables()"
_WORD_PATTERN: Final = re.compile(r"\w+")


class TableListing:
    """The tables of a connection, which are fetched again when they are old."""

    def __init__(self, name: str, fetch: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        """Start without tables.

        `fetch` returns "tables" with the fields of the worker's `Table`, and a "notice" if some are
        missing.
        """
        self._name = name
        self._fetch = fetch
        self._fetch_task: asyncio.Task[list[dict[str, Any]]] | None = None
        self._refreshed_at = 0.0
        self._tables: list[dict[str, Any]] = []
        self._frame = b""
        self._is_sorted = False
        self._word_counts: collections.Counter[str] = collections.Counter()

    def note_use(self, statement: str) -> None:
        """Count the words of a statement, so that the most used tables are described first."""
        self._word_counts.update({word.lower() for word in _WORD_PATTERN.findall(statement)})
        if len(self._word_counts) > 10_000:
            self._word_counts = collections.Counter(dict(self._word_counts.most_common(2_000)))

    def refresh(self) -> asyncio.Task[list[dict[str, Any]]]:
        """Begin to fetch the tables unless they are recent; return the latest task."""
        age = time.monotonic() - self._refreshed_at
        if self._fetch_task is not None:
            has_failed = self._fetch_task.done() and self._fetch_task.exception() is not None
            if not self._fetch_task.done() or age < (
                _RETRY_SECONDS if has_failed else _MAX_AGE_SECONDS
            ):
                return self._fetch_task
        self._refreshed_at = time.monotonic()
        self._fetch_task = asyncio.create_task(self._fetch_tables(), name=f"tables of {self._name}")
        self._fetch_task.add_done_callback(self._log_failure)
        return self._fetch_task

    async def _fetch_tables(self) -> list[dict[str, Any]]:
        reply = await self._fetch()
        tables: list[dict[str, Any]] = reply["tables"]
        self._frame = await asyncio.to_thread(_pack_tables, tables, reply.get("notice", ""))
        self._tables, self._is_sorted = tables, False
        return tables

    def _log_failure(self, task: asyncio.Task[list[dict[str, Any]]]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("the tables of %s could not be fetched: %s", self._name, error)

    def _sort_key(self, table: dict[str, Any]) -> tuple[int, int, str]:
        short_name = table["name"].rpartition(".")[2].strip('"').lower()
        return -self._word_counts[short_name], -table["rows"], table["name"]

    async def tables(self) -> list[dict[str, Any]]:
        """Return the tables.

        Raises:
            BotError: they cannot be fetched.
        """
        return await asyncio.shield(self.refresh())

    async def frame(self) -> bytes:
        """Return the tables as a frame for code.

        Raises:
            BotError: they cannot be fetched.
        """
        await self.tables()
        return self._frame

    async def table(self, name: str) -> dict[str, Any]:
        """Return one table.

        Raises:
            BotError: there is no such table.
        """
        tables = await self.tables()
        lower_name = name.lower()
        for table in tables:
            full_name = table["name"].replace('"', "").lower()
            if lower_name.replace('"', "") in (full_name, full_name.rpartition(".")[2]):
                return table
        names = (table["name"] for table in tables[:20])
        raise errors.BotError(data_words.no_table(name, names))

    async def close(self) -> None:
        """Stop fetching."""
        if self._fetch_task is not None:
            self._fetch_task.cancel()
            await asyncio.wait({self._fetch_task})

    def describe(self, max_characters: int) -> str:
        """Describe the tables for a model: the most used with columns, then some names only."""
        if not self._tables:
            return _UNKNOWN_TABLES.format(name=self._name)
        if not self._is_sorted:
            # Sorted once, so that the description changes only with the tables.
            self._tables, self._is_sorted = sorted(self._tables, key=self._sort_key), True
        lines, characters_left = [], max_characters
        for table in self._tables[:_MAX_DESCRIBED_TABLES]:
            line = _describe_table(table)
            if len(line) > characters_left:
                line = f"  {_join_words([table['name']])}"
            if len(line) > characters_left:
                break
            characters_left -= len(line)
            lines.append(line)
        if hidden_count := len(self._tables) - len(lines):
            lines.append(_MORE_TABLES.format(count=hidden_count, name=self._name))
        return "\n".join(lines)


def _describe_table(table: dict[str, Any]) -> str:
    columns = ", ".join(_join_words(column) for column in table["columns"])
    rows = f" about {table['rows']:,} rows" if table["rows"] >= 0 else ""
    comment = (
        f": {_join_words([table['comment']])[:_MAX_COMMENT_CHARACTERS]}" if table["comment"] else ""
    )
    return f"  {_join_words([table['name']])}({columns}){rows}{comment}"


def _pack_tables(tables: Iterable[dict[str, Any]], notice: str) -> bytes:
    """Return tables as a frame; encode each alone, so that other threads can run in between."""
    pieces = (json.dumps(table).encode() for table in tables)
    content = b'{"notice": %s, "tables": [%s]}' % (json.dumps(notice).encode(), b", ".join(pieces))
    return worker_messages.pack_frame(worker_messages.NOTE, content)


def _join_words(parts: Iterable[str]) -> str:
    """Join texts from a database to one line."""
    return " ".join(" ".join(parts).split())
