"""Interfaces of the drivers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Protocol

from interpreter_bot.data_connections import worker_messages
from interpreter_bot.data_connections.worker import arrow_results, statements


class ConnectError(Exception):
    """Connecting failed; the reason may reveal addresses, so it is only logged."""


class QueryFailedError(Exception):
    """The database refused a query; the message is its own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """The one connection of this process.

    Attributes:
        kind: as in the settings.
        address: of its server or file.
        options: for its driver.
        writes: whether statements may change data.
        login_only_reads: whether the operator confirms that its login can only read.
    """

    kind: str
    address: str
    options: dict[str, str]
    writes: bool
    login_only_reads: bool

    @property
    def dialect(self) -> str:
        """The SQL dialect of the database, by its name in SQLAlchemy."""
        if self.kind == "sqlalchemy":
            return self.address.partition(":")[0].partition("+")[0]
        return self.kind


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table that can be queried.

    Attributes:
        name: for statements.
        columns: names and types.
        rows: an estimate; -1 if unknown.
        comment: comment of its owner.
    """

    name: str
    columns: list[tuple[str, str]]
    rows: int = -1
    comment: str = ""


class Database(Protocol):
    """A driver. People see messages of its exceptions, without secrets.

    Attributes:
        has_reading_transactions: whether the database can restrict a transaction to reading.
    """

    has_reading_transactions: bool

    def query(
        self,
        statement: statements.Statement,
        limits: worker_messages.Limits,
        results: arrow_results.ResultStream,
    ) -> None:
        """Run a statement and send its result."""

    def tables(self) -> list[Table]:
        """Return the tables that can be queried, without system tables."""

    def find_writable(self) -> str | None:
        """Find something that this login may change.

        Returns:
            A phrase; empty if there is nothing, which is the default because files are opened for
            reading; None if it is unknown.
        """
        return ""

    def find_functions_with_effects(self) -> list[str]:
        """Return functions with effects that this login may call, as far as known."""
        return []

    def cancel(self) -> None:
        """Stop the running query, also on the server; called from another thread."""


class Files(Protocol):
    """A driver for files."""

    def list(self, prefix: str, limit: int) -> list[dict[str, Any]]:
        """Return at most `limit` files whose names begin with a prefix."""

    def read(self, name: str) -> Iterator[bytes]:
        """Yield a file's bytes."""
