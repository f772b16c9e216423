"""What every driver offers to the worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Protocol

from interpreter_bot.data_connections import worker_messages
from interpreter_bot.data_connections.worker import arrow_results, statements


class ConnectError(Exception):
    """There is no connection; why is for the log: it may tell of networks."""


class QueryFailedError(Exception):
    """The database says no, in its own words."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """The one connection of this process.

    Attributes:
        kind: of the settings.
        address: of its server or file.
        options: for its driver.
        writes: whether statements may change data.
        login_only_reads: the operator vouches that its login can do nothing else.
    """

    kind: str
    address: str
    options: dict[str, str]
    writes: bool
    login_only_reads: bool

    @property
    def dialect(self) -> str:
        """The database's SQL dialect, as SQLAlchemy calls it."""
        if self.kind == "sqlalchemy":
            return self.address.partition(":")[0].partition("+")[0]
        return self.kind


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table that can be queried.

    Attributes:
        name: as statements call it.
        columns: names and types.
        rows: about; -1 if unknown.
        comment: what its owner says of it.
    """

    name: str
    columns: list[tuple[str, str]]
    rows: int = -1
    comment: str = ""


class Database(Protocol):
    """A driver. Its exceptions are told to people in its own words, without secrets.

    Attributes:
        has_reading_transactions: the database itself lets a statement only read.
    """

    has_reading_transactions: bool

    def query(
        self,
        statement: statements.Statement,
        limits: worker_messages.Limits,
        results: arrow_results.Results,
    ) -> None:
        """Run a statement and send what it returns."""

    def tables(self) -> list[Table]:
        """Return what can be queried, and is not the database's own."""

    def find_writable(self) -> str | None:
        """Find out what this login may change, of what is allowed to it; None if nobody knows.

        Returns:
            What it could do. By default nothing: it is opened so that it cannot be written.
        """
        return ""

    def find_effects(self) -> list[str]:
        """Return functions that this login may call and that do more than read, if it is known."""
        return []

    def cancel(self) -> None:
        """Stop what runs, on the server too; from another thread."""


class Files(Protocol):
    """A place of files."""

    def list(self, prefix: str, limit: int) -> list[dict[str, Any]]:
        """Return the files whose names begin so."""

    def read(self, name: str) -> Iterator[bytes]:
        """Yield a file's bytes."""
