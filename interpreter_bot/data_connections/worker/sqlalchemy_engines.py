"""Every other database, by SQLAlchemy and whatever driver its address names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import pool

from interpreter_bot.data_connections import worker_messages
from interpreter_bot.data_connections.worker import arrow_results, ports, statements

_MOST_TABLES: Final = 500
_ROWS: Final = 10_000
# How a transaction that only reads begins, and what bounds its time in milliseconds. Where a
# database has no such words, the login is the only wall.
_BEGINNINGS: Final = {
    "mysql": ("SET SESSION MAX_EXECUTION_TIME = {milliseconds}", "START TRANSACTION READ ONLY"),
    "mariadb": ("SET SESSION max_statement_time = {seconds}", "START TRANSACTION READ ONLY"),
    "oracle": ("SET TRANSACTION READ ONLY",),
    "postgresql": (
        "SET TRANSACTION READ ONLY",
        "SET LOCAL statement_timeout = {milliseconds}",
        "SELECT 1",
    ),
    "sqlite": ("PRAGMA query_only = ON",),
}


# What keeps drivers from sending more than one statement at a time; others do not by default.
_ONE_STATEMENT: Final[dict[str, dict[str, Any]]] = {
    "mysqldb": {"multi_statements": False},
    # Without this flag of the protocol, MULTI_STATEMENTS.
    "mysqlconnector": {"client_flags": [-(1 << 16)]},
}


class SqlalchemyEngine:
    """A database; implements `ports.Database`. Each query has a connection of its own."""

    def __init__(self, specification: ports.Specification) -> None:
        driver = sa.make_url(specification.address).get_driver_name()
        self._engine = sa.create_engine(
            specification.address,
            poolclass=pool.NullPool,
            connect_args=specification.options | _ONE_STATEMENT.get(driver, {}),
        )
        self._writes = specification.writes
        self._raw: Any = None

    @contextlib.contextmanager
    def _open(self) -> Iterator[sa.Connection]:
        try:
            connection = self._engine.connect()
        except sa.exc.DBAPIError as error:
            raise ports.ConnectError(str(error.orig)) from error
        try:
            self._raw = connection.connection.dbapi_connection
            yield connection
        except sa.exc.DBAPIError as error:
            raise ports.QueryFailedError(str(error.orig)) from error
        finally:
            self._raw = None
            connection.close()

    def query(
        self,
        statement: statements.Statement,
        limits: worker_messages.Limits,
        out: arrow_results.Results,
    ) -> None:
        """Run a statement; see `ports.Database.query`."""
        text = sa.text(statement.rendered(lambda name: f":{name}", colon="\\:"))
        seconds = {"seconds": limits.seconds, "milliseconds": int(limits.seconds * 1000)}
        with self._open() as connection:
            dialect = self._engine.dialect
            # Known once it was reached: addresses of MySQL may lead to it.
            name = "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name
            beginnings = () if self._writes else _BEGINNINGS.get(name, ())
            if not (self._writes or beginnings):
                statement.check_words()
            for words in beginnings:
                connection.exec_driver_sql(words.format(**seconds))
            streamed = connection.execution_options(stream_results=True, yield_per=_ROWS)
            result = streamed.execute(text, dict(statement.values))
            if result.returns_rows:
                out.send_rows(list(result.keys()), iter(result))
            if self._writes:
                connection.commit()

    def tables(self) -> list[ports.Table]:
        """Return its tables and views."""
        with self._open() as connection:
            there = sa.inspect(connection)
            names = [*there.get_table_names(), *there.get_view_names()][:_MOST_TABLES]
            return [
                ports.Table(
                    name, [(one["name"], str(one["type"])) for one in there.get_columns(name)]
                )
                for name in names
            ]

    def find_writable(self) -> str | None:
        """Know nothing: what a login may do is told differently everywhere."""
        return None

    def cancel(self) -> None:
        """Cancel what runs, where the driver can."""
        stop = getattr(self._raw, "cancel", None) or getattr(self._raw, "interrupt", None)
        if stop is not None:
            stop()
