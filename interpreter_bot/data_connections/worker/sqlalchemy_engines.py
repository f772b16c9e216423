"""Databases without a module here, by SQLAlchemy and the driver that their address names."""

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
# Without these modes, the server and `statements` agree on where texts and names end.
_SET_MYSQL_QUOTES: Final = (
    "SET SESSION sql_mode = "
    "REPLACE(REPLACE(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ''), 'ANSI_QUOTES', '')"
)
# Statements that begin a read-only transaction and limit its time. With other databases, only the
# login protects data.
_READ_ONLY_BEGINNINGS: Final = {
    "mysql": (
        _SET_MYSQL_QUOTES,
        "SET SESSION MAX_EXECUTION_TIME = {milliseconds}",
        "START TRANSACTION READ ONLY",
    ),
    "mariadb": (
        _SET_MYSQL_QUOTES,
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
_MYSQL_DIALECTS: Final = frozenset(("mysql", "mariadb"))
_TABLES_IN_MYSQL: Final = """
select database(), table_schema, table_name, table_rows,
  if(table_type = 'VIEW', '', table_comment), column_name, column_type
from information_schema.columns join information_schema.tables using (table_schema, table_name)
where table_type in ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED')
  and table_schema = coalesce(database(), table_schema)
  and table_schema not in ('mysql', 'information_schema', 'performance_schema', 'sys')
order by table_schema, table_name, ordinal_position limit 100000
"""
_GRANT_PATTERN: Final = re.compile(r"GRANT (.+?) ON (.+?) TO ")
_COLUMN_LIST_PATTERN: Final = re.compile(r" *\([^)]*\)")
_READING_PRIVILEGES: Final = frozenset(
    ("USAGE", "SELECT", "SHOW VIEW", "SHOW DATABASES", "PROCESS")
)

# Options by which drivers refuse several statements at once; others do so by default.
_SINGLE_STATEMENT_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "mysqldb": {"multi_statements": False},
    # The negated flag MULTI_STATEMENTS of the protocol.
    "mysqlconnector": {"client_flags": [-(1 << 16)]},
}


class SqlalchemyEngine(ports.Database):
    """A database; each query opens a connection."""

    def __init__(self, specification: ports.Specification) -> None:
        driver = sa.make_url(specification.address).get_driver_name()
        self._engine = sa.create_engine(
            specification.address,
            poolclass=pool.NullPool,
            connect_args=specification.options | _SINGLE_STATEMENT_OPTIONS.get(driver, {}),
        )
        self._may_write = specification.writes
        self.has_reading_transactions = self._engine.dialect.name in _READ_ONLY_BEGINNINGS
        self._driver_connection: Any = None
        # Id of the present connection on a MySQL server.
        self._server_id: int | None = None

    @contextlib.contextmanager
    def _open(self) -> Iterator[sa.Connection]:
        try:
            connection = self._engine.connect()
        except sa.exc.DBAPIError as error:
            raise ports.ConnectError(str(error.orig)) from error
        try:
            self._driver_connection = connection.connection.dbapi_connection
            if self._is_mysql:
                self._server_id = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
                connection.rollback()
            yield connection
        except sa.exc.DBAPIError as error:
            raise ports.QueryFailedError(str(error.orig)) from error
        finally:
            self._driver_connection = self._server_id = None
            connection.close()

    @property
    def _is_mysql(self) -> bool:
        return self._engine.dialect.name in _MYSQL_DIALECTS

    def query(
        self,
        statement: statements.Statement,
        limits: worker_messages.Limits,
        results: arrow_results.ResultStream,
    ) -> None:
        text = sa.text(statement.render(lambda name: f":{name}", colon="\\:"))
        seconds = {"seconds": limits.seconds, "milliseconds": int(limits.seconds * 1000)}
        with self._open() as connection:
            dialect = self._engine.dialect
            # Known only once connected, because addresses of MySQL may lead to MariaDB.
            name = "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name
            beginnings = () if self._may_write else _READ_ONLY_BEGINNINGS.get(name, ())
            for template in beginnings:
                connection.exec_driver_sql(template.format(**seconds))
            streaming_connection = connection.execution_options(
                stream_results=True, yield_per=_BATCH_ROWS
            )
            result = streaming_connection.execute(text, dict(statement.values))
            if result.returns_rows:
                results.send_rows(list(result.keys()), iter(result))
            if results.exceeded_limit and self._is_mysql:
                self._cancel_rest(result)
            if self._may_write:
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
        """Return tables by one query; SQLAlchemy would need privileges for definitions of views."""
        quote = self._engine.dialect.identifier_preparer.quote
        tables: dict[tuple[str, str], ports.Table] = {}
        with self._open() as connection:
            for row in connection.exec_driver_sql(_TABLES_IN_MYSQL):
                default_schema, schema, name, rows, comment, column, kind = row
                if (table := tables.get((schema, name))) is None:
                    if len(tables) >= _MAX_TABLES:
                        break
                    parts = [name] if schema == default_schema else [schema, name]
                    full_name = ".".join(map(quote, parts))
                    table = ports.Table(full_name, [], -1 if rows is None else rows, comment)
                    tables[schema, name] = table
                table.columns.append((column, kind))
        return list(tables.values())

    def _cancel_rest(self, result: sa.CursorResult[Any]) -> None:
        """Cancel the rest of a result, because drivers read all of it before they close."""
        self.cancel()
        # The driver reports the cancellation after the rows that were already sent.
        with contextlib.suppress(sa.exc.DBAPIError):
            for _ in result:
                pass

    def find_writable(self) -> str | None:
        if not self._is_mysql:
            return None
        with self._open() as connection:
            return _find_privilege(connection.exec_driver_sql("SHOW GRANTS").scalars())

    def cancel(self) -> None:
        """Cancel the running query: by the driver, or by another connection."""
        cancel_query = getattr(self._driver_connection, "cancel", None) or getattr(
            self._driver_connection, "interrupt", None
        )
        if cancel_query is not None:
            cancel_query()
        elif (server_id := self._server_id) is not None:
            try:
                with self._engine.connect() as connection:
                    connection.exec_driver_sql(f"KILL QUERY {server_id}")
            except sa.exc.DBAPIError as error:
                # The query may have ended already; otherwise the bot kills this process soon.
                sys.stderr.write(f"a query was not killed: {error.orig}\n")


def _find_privilege(grants: Iterable[str]) -> str | None:
    """Return a privilege that allows more than reading; empty if there is none, None if unknown."""
    is_known = True
    for grant in grants:
        # The rest of a grant is not shown, as it may contain a digest of the password.
        if (match := _GRANT_PATTERN.match(grant)) is None:
            is_known = False
            continue
        names = {name.strip() for name in _COLUMN_LIST_PATTERN.sub("", match[1]).split(",")}
        if privileges := sorted(names - _READING_PRIVILEGES):
            return f"use {privileges[0]} on {match[2]}"
    return "" if is_known else None
