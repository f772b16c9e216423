"""Databases by SQLAlchemy and the driver that their address names, where no module is theirs."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import pool

from interpreter_bot.data_connections import worker_messages
from interpreter_bot.data_connections.worker import arrow_results, ports, statements

_MAX_TABLES: Final = 500
_BATCH_ROWS: Final = 10_000
# So texts and names end in the database where `statements` thinks they do.
_QUOTES_OF_MYSQL: Final = (
    "SET SESSION sql_mode = "
    "REPLACE(REPLACE(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ''), 'ANSI_QUOTES', '')"
)
# Statements that begin a read-only transaction and bound its time. For a database that has none,
# the login is the only wall.
_BEGINNINGS: Final = {
    "mysql": (
        _QUOTES_OF_MYSQL,
        "SET SESSION MAX_EXECUTION_TIME = {milliseconds}",
        "START TRANSACTION READ ONLY",
    ),
    "mariadb": (
        _QUOTES_OF_MYSQL,
        "SET SESSION max_statement_time = {seconds}",
        "START TRANSACTION READ ONLY",
    ),
    "oracle": ("SET TRANSACTION READ ONLY",),
    "postgresql": (
        "SET TRANSACTION READ ONLY",
        "SET LOCAL statement_timeout = {milliseconds}",
        "SELECT 1",
    ),
    "sqlite": ("PRAGMA query_only = ON",),
}
_OF_MYSQL: Final = frozenset(("mysql", "mariadb"))
_TABLES_IN_MYSQL: Final = """
select database(), table_schema, table_name, table_rows,
  if(table_type = 'VIEW', '', table_comment), column_name, column_type
from information_schema.columns join information_schema.tables using (table_schema, table_name)
where table_type in ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED')
  and table_schema = coalesce(database(), table_schema)
  and table_schema not in ('mysql', 'information_schema', 'performance_schema', 'sys')
order by table_schema, table_name, ordinal_position limit 100000
"""
_GRANT: Final = re.compile(r"GRANT (.+?) ON (.+?) TO ")
_COLUMNS: Final = re.compile(r" *\([^)]*\)")
_HARMLESS: Final = frozenset(("USAGE", "SELECT", "SHOW VIEW", "SHOW DATABASES", "PROCESS"))

# What keeps drivers from sending more than one statement at a time; others do not by default.
_ONE_STATEMENT: Final[dict[str, dict[str, Any]]] = {
    "mysqldb": {"multi_statements": False},
    # Without this flag of the protocol, MULTI_STATEMENTS.
    "mysqlconnector": {"client_flags": [-(1 << 16)]},
}


class SqlalchemyEngine(ports.Database):
    """A database. Each query has a connection of its own."""

    def __init__(self, specification: ports.Specification) -> None:
        driver = sa.make_url(specification.address).get_driver_name()
        self._engine = sa.create_engine(
            specification.address,
            poolclass=pool.NullPool,
            connect_args=specification.options | _ONE_STATEMENT.get(driver, {}),
        )
        self._writes = specification.writes
        self.has_reading_transactions = self._engine.dialect.name in _BEGINNINGS
        self._raw: Any = None
        # By which MySQL knows the connection of now.
        self._server_id: int | None = None

    @contextlib.contextmanager
    def _open(self) -> Iterator[sa.Connection]:
        try:
            connection = self._engine.connect()
        except sa.exc.DBAPIError as error:
            raise ports.ConnectError(str(error.orig)) from error
        try:
            self._raw = connection.connection.dbapi_connection
            if self._is_mysql:
                self._server_id = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
                connection.rollback()
            yield connection
        except sa.exc.DBAPIError as error:
            raise ports.QueryFailedError(str(error.orig)) from error
        finally:
            self._raw = self._server_id = None
            connection.close()

    @property
    def _is_mysql(self) -> bool:
        return self._engine.dialect.name in _OF_MYSQL

    def query(
        self,
        statement: statements.Statement,
        limits: worker_messages.Limits,
        results: arrow_results.Results,
    ) -> None:
        text = sa.text(statement.rendered(lambda name: f":{name}", colon="\\:"))
        seconds = {"seconds": limits.seconds, "milliseconds": int(limits.seconds * 1000)}
        with self._open() as connection:
            dialect = self._engine.dialect
            # Known once it was reached: addresses of MySQL may lead to it.
            name = "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name
            beginnings = () if self._writes else _BEGINNINGS.get(name, ())
            for words in beginnings:
                connection.exec_driver_sql(words.format(**seconds))
            streamed = connection.execution_options(stream_results=True, yield_per=_BATCH_ROWS)
            result = streamed.execute(text, dict(statement.values))
            if result.returns_rows:
                results.send_rows(list(result.keys()), iter(result))
            if results.cut and self._is_mysql:
                self._abandon(result)
            if self._writes:
                connection.commit()

    def tables(self) -> list[ports.Table]:
        if self._is_mysql:
            return self._tables_in_mysql()
        with self._open() as connection:
            inspector = sa.inspect(connection)
            names = [*inspector.get_table_names(), *inspector.get_view_names()][:_MAX_TABLES]
            return [
                ports.Table(
                    name,
                    [
                        (column["name"], str(column["type"]))
                        for column in inspector.get_columns(name)
                    ],
                )
                for name in names
            ]

    def _tables_in_mysql(self) -> list[ports.Table]:
        """Return them by one query; who may only read a view may not ask for its definition."""
        quoted = self._engine.dialect.identifier_preparer.quote
        tables: dict[tuple[str, str], ports.Table] = {}
        with self._open() as connection:
            for row in connection.exec_driver_sql(_TABLES_IN_MYSQL):
                home, space, name, rows, comment, column, kind = row
                if (table := tables.get((space, name))) is None:
                    if len(tables) >= _MAX_TABLES:
                        break
                    parts = [name] if space == home else [space, name]
                    full_name = ".".join(map(quoted, parts))
                    table = ports.Table(full_name, [], -1 if rows is None else rows, comment)
                    tables[space, name] = table
                table.columns.append((column, kind))
        return list(tables.values())

    def _abandon(self, result: sa.CursorResult[Any]) -> None:
        """Let the server send no more: its drivers read all of it before they close."""
        self.cancel()
        # It says that it was interrupted, behind what was on the way.
        with contextlib.suppress(sa.exc.DBAPIError):
            for _ in result:
                pass

    def find_writable(self) -> str | None:
        if not self._is_mysql:
            return None
        with self._open() as connection:
            return _writable(connection.exec_driver_sql("SHOW GRANTS").scalars())

    def cancel(self) -> None:
        """Cancel what runs: by the driver, or by another connection."""
        stop = getattr(self._raw, "cancel", None) or getattr(self._raw, "interrupt", None)
        if stop is not None:
            stop()
        elif (server_id := self._server_id) is not None:
            try:
                with self._engine.connect() as connection:
                    connection.exec_driver_sql(f"KILL QUERY {server_id}")
            except sa.exc.DBAPIError as error:
                # It may be over; else this process is ended in a moment.
                sys.stderr.write(f"a query was not killed: {error.orig}\n")


def _writable(grants: Iterable[str]) -> str | None:
    """Return what grants let one do beside reading, None where a role has some of its own."""
    is_known = True
    for grant in grants:
        # Behind it may stand a digest of the password.
        if (match := _GRANT.match(grant)) is None:
            is_known = False
            continue
        names = {name.strip() for name in _COLUMNS.sub("", match[1]).split(",")}
        if privileges := sorted(names - _HARMLESS):
            return f"use {privileges[0]} on {match[2]}"
    return "" if is_known else None
