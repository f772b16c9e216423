"""A Flight SQL server over SQLite, a process: `python -m tests.fakes.flight_sql_server LOG`.

It implements the requests of ADBC's driver: prepared statements with parameters, results as
streams, and lists of tables. Requests without its token are refused. The log file gets its port,
and then a line for each statement that it runs and each that a client cancelled.
"""

import json
import pathlib
import sqlite3
import sys
import threading
import time

import pyarrow as pa
from pyarrow import flight

TOKEN = "Bearer a-secret-of-the-bot"
_PREFIX = b"type.googleapis.com/arrow.flight.protocol.sql."


def _parse_message(data):
    """Return the fields of a protobuf message, by number; values are numbers or bytes."""
    fields, position = {}, 0

    def number():
        nonlocal position
        result = shift = 0
        while True:
            byte = data[position]
            position += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return result

    while position < len(data):
        tag = number()
        if tag & 7 == 0:
            fields[tag >> 3] = number()
        else:
            assert tag & 7 == 2, "no other kinds are sent"
            length = number()
            fields[tag >> 3] = data[position : position + length]
            position += length
    return fields


def _make_message(**fields):
    """Make a protobuf message of bytes; the names f1, f2 and so on are the fields' numbers."""
    out = b""
    for name, value in fields.items():
        size, length = len(value), b""
        while size > 0x7F:
            length += bytes([size & 0x7F | 0x80])
            size >>= 7
        out += bytes([int(name[1:]) << 3 | 2]) + length + bytes([size]) + value
    return out


def _unwrap(data):
    """Return the kind and the fields of a message inside an `Any`."""
    any_ = _parse_message(data)
    assert any_[1].startswith(_PREFIX), any_
    return any_[1].removeprefix(_PREFIX).decode(), _parse_message(any_.get(2, b""))


def _wrap(kind, message):
    return _make_message(f1=_PREFIX + kind.encode(), f2=message)


def _text_schema(**fields):
    """Make a schema of text fields; each value says whether the field is nullable."""
    return pa.schema(
        [pa.field(name, pa.utf8(), nullable=is_nullable) for name, is_nullable in fields.items()]
    )


class _Token(flight.ServerMiddlewareFactory):
    def start_call(self, info, headers):
        tokens = [value for name, values in headers.items() if name == "authorization"
                 for value in values]  # fmt: skip
        if tokens != [TOKEN]:
            raise flight.FlightUnauthenticatedError("who is it")


class Server(flight.FlightServerBase):
    """See the module."""

    def __init__(self, log):
        super().__init__("grpc://127.0.0.1:0", middleware={"token": _Token()})
        self._log = log
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute("create table orders (id integer, amount real, region text)")
        rows = [(i, i * 0.5, "south" if i % 4 else "north") for i in range(1, 1001)]
        self._database.executemany("insert into orders values (?, ?, ?)", rows)
        self._lock = threading.Lock()
        self._prepared = {}

    def write_log(self, **fields):
        with self._log.open("a") as file:
            file.write(json.dumps(fields) + "\n")

    def do_action(self, context, action):
        kind, fields = _unwrap(action.body.to_pybytes())
        if action.type == "CreatePreparedStatement":
            handle = str(len(self._prepared)).encode()
            self._prepared[handle] = (fields[1].decode(), [])
            result = _wrap("ActionCreatePreparedStatementResult", _make_message(f1=handle))
            return [flight.Result(result)]
        assert action.type == "ClosePreparedStatement", (action.type, kind)
        return []

    def do_put(self, context, descriptor, reader, writer):
        kind, fields = _unwrap(descriptor.command)
        assert kind == "CommandPreparedStatementQuery", kind
        statement, _ = self._prepared[fields[1]]
        rows = reader.read_all().to_pylist()
        self._prepared[fields[1]] = (statement, [list(row.values()) for row in rows])

    def get_flight_info(self, context, descriptor):
        schema = self._table(context, descriptor.command, is_schema=True).schema
        endpoint = flight.FlightEndpoint(descriptor.command, [])
        return flight.FlightInfo(schema, descriptor, [endpoint], -1, -1)

    def do_get(self, context, ticket):
        table = self._table(context, ticket.ticket)
        return flight.RecordBatchStream(table)

    def _table(self, context, command, *, is_schema=False):
        kind, fields = _unwrap(command)
        if kind == "CommandGetCatalogs":
            return pa.table({"catalog_name": ["main"]}, _text_schema(catalog_name=False))
        if kind == "CommandGetDbSchemas":
            row = {"catalog_name": ["main"], "db_schema_name": ["sales"]}
            return pa.table(row, _text_schema(catalog_name=True, db_schema_name=False))
        if kind == "CommandGetTables":
            schema = self._query("select * from orders limit 1", []).schema
            row = {"catalog_name": ["main"], "db_schema_name": ["sales"],
                   "table_name": ["orders"], "table_type": ["TABLE"]}  # fmt: skip
            nullable_fields = {"catalog_name": True, "db_schema_name": True}
            result_schema = _text_schema(**nullable_fields, table_name=False, table_type=False)
            if fields.get(5):
                row["table_schema"] = [schema.serialize().to_pybytes()]
                result_schema = result_schema.append(
                    pa.field("table_schema", pa.binary(), nullable=False)
                )
            return pa.table(row, result_schema)
        assert kind == "CommandPreparedStatementQuery", kind
        statement, rows = self._prepared[fields[1]]
        parameters = rows[0] if rows else []
        if is_schema:
            return self._query(f"select * from ({statement}) limit 1", parameters)
        self.write_log(runs=statement)
        if "sleep" in statement:
            while not context.is_cancelled():
                time.sleep(0.02)
            self.write_log(cancelled=statement)
            raise flight.FlightCancelledError("cancelled")
        return self._query(statement, parameters)

    def _query(self, statement, parameters):
        try:
            with self._lock:
                cursor = self._database.execute(statement, parameters)
                rows = cursor.fetchall()
        except sqlite3.Error as error:
            raise flight.FlightServerError(str(error)) from error
        names = [column[0] for column in cursor.description]
        return pa.table({name: [row[index] for row in rows] for index, name in enumerate(names)})


if __name__ == "__main__":
    log = pathlib.Path(sys.argv[1])
    server = Server(log)
    server.write_log(port=server.port)
    # The server ends with the process that started it, which closes stdin.
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.serve()
