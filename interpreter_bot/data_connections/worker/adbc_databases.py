"""Databases with ADBC drivers, which return Arrow: PostgreSQL, Snowflake, Flight SQL."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import importlib
import math
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from adbc_driver_manager import dbapi

from interpreter_bot.data_connections import worker_messages
from interpreter_bot.data_connections.worker import arrow_results, ports, statements
from interpreter_bot.wording import data_words

_MAX_LOCK_SECONDS: Final = 10
_MAX_CONNECTING_SECONDS: Final = 10
_MAX_TABLES: Final = 2000
_MAX_TYPE_REQUESTS: Final = 200
_MAX_CATALOGUE_SECONDS: Final = 30
# First words of statements that the driver can run with COPY.
_COPYABLE_WORDS: Final = frozenset(("select", "with", "values", "table"))
_POSTGRESQL_MESSAGE: Final = re.compile(
    r"ERROR:\s+(.*?)(?:\n+Query was:.*|\. SQLSTATE: \w+)?$", re.DOTALL
)
_FLIGHT_MESSAGE: Final = re.compile(
    r"\w+: \[FlightSQL\] (.*?)(?:\.? Detail: .*)?(?: \(\w+; \w+\))?$", re.DOTALL
)
_PLAIN_NAME_PATTERN: Final = re.compile(r"[a-z_][a-z0-9_]*")
_TABLES_IN_POSTGRESQL: Final = """
select n.nspname, c.relname, greatest(c.reltuples, -1)::bigint,
  coalesce(obj_description(c.oid, 'pg_class'), ''),
  array_agg(a.attname::text order by a.attnum),
  array_agg(format_type(a.atttypid, a.atttypmod) order by a.attnum)
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relkind in ('r', 'p', 'v', 'm', 'f') and not c.relispartition
  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_'
  and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')
group by 1, 2, 3, 4 order by 1, 2 limit 2000
"""
_WRITABLE_IN_POSTGRESQL: Final = """
select case when (select rolsuper from pg_roles where rolname = current_user)
  then 'anything: it is a superuser' else coalesce((
  select 'change ' || min(quote_ident(n.nspname) || '.' || quote_ident(c.relname))
    || ' and ' || count(*) - 1 || ' more'
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.relkind in ('r', 'p', 'v', 'f') and n.nspname !~ '^pg_'
    and n.nspname <> 'information_schema'
    and (has_table_privilege(c.oid, 'insert') or has_table_privilege(c.oid, 'update')
      or has_table_privilege(c.oid, 'delete') or has_table_privilege(c.oid, 'truncate'))
  having count(*) > 0), (
  select 'create tables in ' || min(quote_ident(nspname)) from pg_namespace
  where nspname !~ '^pg_' and has_schema_privilege(oid, 'create') having count(*) > 0), '') end
"""
# Functions with effects outside their transaction; by default, everybody may call them.
_EFFECTS_IN_POSTGRESQL: Final = """
select p.oid::regprocedure::text from pg_proc p
where has_function_privilege(p.oid, 'execute') and proname ~ ('^(pg_logical_emit_message|'
  || 'pg_terminate_backend|pg_cancel_backend|pg_(try_)?advisory_.*lock.*|pg_notify|dblink.*|'
  || 'lo_(creat|create|from_bytea|import|put|truncate.*|unlink|open)|lowrite)$')
order by 1 limit 200
"""


class AdbcDatabase(ports.Database):
    """A database; each query opens a connection."""

    def __init__(self, specification: ports.Specification) -> None:
        kind = specification.kind
        # Import only the package of this connection's driver.
        driver: Any = importlib.import_module(f"adbc_driver_{kind}")
        self._library = driver._driver_path()
        self._is_postgresql = self.has_reading_transactions = kind == "postgresql"
        self._address = specification.address
        self._options = dict(specification.options)
        self._may_write = specification.writes
        self._cursor: Any = None

    @contextlib.contextmanager
    def _open(self, seconds: float, *, is_read_only: bool) -> Iterator[Any]:
        """Yield a cursor in a transaction, which is read-only or is committed at the end."""
        address = self._address
        if self._is_postgresql:
            address = _add_session_settings(address, seconds, is_read_only=is_read_only)
        try:
            connection = dbapi.connect(
                driver=self._library,
                db_kwargs={"uri": address, **self._options},
                autocommit=not self._is_postgresql,
            )
        except dbapi.Error as error:
            raise ports.ConnectError(str(error)) from error
        try:
            with connection.cursor() as cursor:
                if self._is_postgresql:
                    # After its first query, a read-only transaction can no longer be changed.
                    cursor.execute("SELECT 1")
                    cursor.fetchall()
                self._cursor = cursor
                yield cursor
                if not is_read_only and self._is_postgresql:
                    connection.commit()
        except (dbapi.Error, OSError, pa.ArrowException) as error:
            raise ports.QueryFailedError(_server_message(error)) from error
        finally:
            self._cursor = None
            connection.close()

    def query(
        self,
        statement: statements.Statement,
        limits: worker_messages.Limits,
        results: arrow_results.ResultStream,
    ) -> None:
        parameters: list[Any] = []

        def write_parameter(name: str) -> str:
            if self._is_postgresql:
                return _format_literal(statement.values[name])
            parameters.append(statement.values[name])
            return "?"

        text = statement.render(write_parameter)
        with self._open(limits.seconds, is_read_only=not self._may_write) as cursor:
            if self._is_postgresql and statement.first_word not in _COPYABLE_WORDS:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
            cursor.execute(text, parameters or None)
            if cursor.description is not None:
                reader = cursor.fetch_record_batch()
                results.send(reader.schema, reader)

    def tables(self) -> list[ports.Table]:
        if not self._is_postgresql:
            return self._tables_by_driver()
        with self._open(_MAX_CATALOGUE_SECONDS, is_read_only=True) as cursor:
            cursor.execute(_TABLES_IN_POSTGRESQL)
            rows = cursor.fetchall()
        return [
            ports.Table(
                _quote_name(schema, name, default_schema="public"),
                list(zip(columns, kinds, strict=True)),
                rows=count,
                comment=comment,
            )
            for schema, name, count, comment, columns, kinds in rows
        ]

    def _tables_by_driver(self) -> list[ports.Table]:
        tables: list[ports.Table] = []
        with self._open(_MAX_CATALOGUE_SECONDS, is_read_only=True) as cursor:
            connection = cursor.connection
            for catalogue in connection.adbc_get_objects(depth="columns").read_all().to_pylist():
                for schema in catalogue["catalog_db_schemas"] or ():
                    schema_name = schema["db_schema_name"] or ""
                    if schema_name.lower() == "information_schema":
                        continue
                    for table in (schema["db_schema_tables"] or ())[: _MAX_TABLES - len(tables)]:
                        columns = [
                            (column["column_name"], column["xdbc_type_name"] or "")
                            for column in table["table_columns"] or ()
                        ]
                        # Some drivers return types only by a request for each table.
                        if len(tables) < _MAX_TYPE_REQUESTS and not any(
                            kind for _, kind in columns
                        ):
                            columns = (
                                _read_columns(connection, schema_name, table["table_name"])
                                or columns
                            )
                        tables.append(
                            ports.Table(
                                _quote_name(schema_name, table["table_name"], default_schema=""),
                                columns,
                            )
                        )
        return tables

    def find_writable(self) -> str | None:
        if not self._is_postgresql:
            return None
        with self._open(_MAX_CATALOGUE_SECONDS, is_read_only=True) as cursor:
            cursor.execute(_WRITABLE_IN_POSTGRESQL)
            ((answer,),) = cursor.fetchall()
        return str(answer)

    def find_functions_with_effects(self) -> list[str]:
        if not self._is_postgresql:
            return []
        with self._open(_MAX_CATALOGUE_SECONDS, is_read_only=True) as cursor:
            cursor.execute(_EFFECTS_IN_POSTGRESQL)
            return [name for (name,) in cursor.fetchall()]

    def cancel(self) -> None:
        if (cursor := self._cursor) is not None:
            cursor.adbc_cancel()


def _read_columns(connection: Any, schema_name: str, table: str) -> list[tuple[str, str]]:  # noqa: ANN401 - a driver's.
    """Return the columns of a table with their types; empty if the driver does not know them."""
    try:
        arrow_schema = connection.adbc_get_table_schema(table, db_schema_filter=schema_name or None)
    except dbapi.Error:
        return []
    return [(field.name, str(field.type)) for field in arrow_schema]


def _server_message(error: Exception) -> str:
    """Return the message of a server, without the driver's additions."""
    text = str(error).strip()
    match = _FLIGHT_MESSAGE.match(text) or _POSTGRESQL_MESSAGE.search(text)
    return match[1].strip() if match else str(error)


def _add_session_settings(address: str, seconds: float, *, is_read_only: bool) -> str:
    """Add settings of the database session to an address of PostgreSQL."""
    session_settings = {
        "default_transaction_read_only": "on" if is_read_only else "off",
        "statement_timeout": str(int(seconds * 1000)),
        "lock_timeout": str(_MAX_LOCK_SECONDS * 1000),
        "idle_in_transaction_session_timeout": str(int(seconds * 1000) + 10_000),
        # `_format_literal` relies on this setting.
        "standard_conforming_strings": "on",
    }
    parts = urllib.parse.urlsplit(address)
    parameters = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    settings = " ".join(f"-c {name}={value}" for name, value in session_settings.items())
    parameters["options"] = f"{parameters.get('options', '')} {settings}".strip()
    parameters.setdefault("connect_timeout", str(_MAX_CONNECTING_SECONDS))
    parameters.setdefault("application_name", "interpreter-bot")
    query = urllib.parse.urlencode(parameters, quote_via=urllib.parse.quote)
    return urllib.parse.urlunsplit(parts._replace(query=query))


def _format_literal(value: Any) -> str:  # noqa: ANN401 - any parameter.
    """Return a value as a PostgreSQL literal; text is untyped, so its context determines the type.

    With separate parameters, the driver could not stream results with COPY.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"({value})"
        case float():
            number = "NaN" if math.isnan(value) else repr(value).replace("inf", "Infinity")
            return f"'{number}'::float8"
        case decimal.Decimal():
            return f"'{value}'::numeric"
        case datetime.datetime():
            kind = "timestamp" if value.tzinfo is None else "timestamptz"
            return f"'{value.isoformat()}'::{kind}"
        case datetime.date():
            return f"'{value.isoformat()}'::date"
        case datetime.time():
            return f"'{value.isoformat()}'::time"
        case bytes():
            return f"'\\x{value.hex()}'::bytea"
        case list():
            return f"ARRAY[{', '.join(map(_format_literal, value))}]" if value else "'{}'"
    text = str(value)
    if "\0" in text:
        raise statements.StatementError(data_words.ZERO_BYTE)
    return "'" + text.replace("'", "''") + "'"


def _quote_name(schema: str, name: str, *, default_schema: str) -> str:
    """Return the name of a table for statements, quoted where necessary."""
    parts = [name] if schema == default_schema else [schema, name]
    quoted_parts = ('"' + part.replace('"', '""') + '"' for part in parts)
    return ".".join(
        part if _PLAIN_NAME_PATTERN.fullmatch(part) else quoted_part
        for part, quoted_part in zip(parts, quoted_parts, strict=True)
    )
