"""DuckDB files, opened for reading, without access to anything else on the machine."""

from __future__ import annotations

from typing import Any, Final

import duckdb

from interpreter_bot.data_connections import worker_messages
from interpreter_bot.data_connections.worker import arrow_results, ports, statements

_BATCH_ROWS: Final = 50_000
# The last setting prevents statements from changing the others.
_LOCKED_SETTINGS: Final[dict[str, Any]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "memory_limit": "1GB",
    "threads": "2",
    "enable_external_access": "false",
    "lock_configuration": "true",
}
_TABLES_QUERY: Final = """
select t.schema_name, t.table_name, t.estimated_size, coalesce(t.comment, ''),
  list(c.column_name order by c.column_index), list(c.data_type order by c.column_index)
from (select schema_name, table_name, estimated_size, comment, table_oid from duckdb_tables()
  where not internal union all
  select schema_name, view_name, -1, comment, view_oid from duckdb_views() where not internal) t
join duckdb_columns() c on c.table_oid = t.table_oid
group by all order by all limit 2000
"""


class DuckdbFile(ports.Database):
    """A DuckDB file."""

    has_reading_transactions = True

    def __init__(self, specification: ports.Specification) -> None:
        self._path = specification.address.removeprefix("duckdb://").removeprefix("duckdb:")
        self._connection: Any = None

    def query(
        self,
        statement: statements.Statement,
        limits: worker_messages.Limits,
        results: arrow_results.ResultStream,
    ) -> None:
        text = statement.render(lambda name: f"${name}")
        config = _LOCKED_SETTINGS | {"max_execution_time": str(int(limits.seconds * 1000))}
        with duckdb.connect(self._path, read_only=True, config=config) as connection:
            self._connection = connection
            try:
                rows = connection.sql(text, params=dict(statement.values) or None)
                reader: Any = rows.to_arrow_reader(_BATCH_ROWS)
                results.send(reader.schema, reader)
            except duckdb.InterruptException:
                results.check()
                raise
            finally:
                self._connection = None

    def tables(self) -> list[ports.Table]:
        with duckdb.connect(self._path, read_only=True, config=_LOCKED_SETTINGS) as connection:
            rows = connection.execute(_TABLES_QUERY).fetchall()
        return [
            ports.Table(
                name if schema == "main" else f"{schema}.{name}",
                list(zip(columns, kinds, strict=True)),
                rows=count,
                comment=comment,
            )
            for schema, name, count, comment, columns, kinds in rows
        ]

    def cancel(self) -> None:
        if (connection := self._connection) is not None:
            connection.interrupt()
