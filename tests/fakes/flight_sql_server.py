"""A Flight SQL server over SQLite, in a process of its own: `python -m` with a file to write to.

It speaks what ADBC's driver asks for: prepared statements with parameters, results as streams, and
listings of tables. Requests without its token are refused. The file gets its port, and then a line
for each statement that it runs and each that a client cancelled.
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


def _fields(data):
    """The fields of a protobuf message whose values are numbers or bytes."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            found[tag >> 3] = number()
        else:
            assert tag & 7 == 2, "no other kinds are sent"
            length = number()
            found[tag >> 3] = data[at : at + length]
            at += length
    return found


def _message(**fields):
    """A protobuf message of bytes, by fields called f1, f2 and so on."""
    out = b""
    for name, value in fields.items():
        size, length = len(value), b""
        while size > 0x7F:
            length += bytes([size & 0x7F | 0x80])
            size >>= 7
        out += bytes([int(name[1:]) << 3 | 2]) + length + bytes([size]) + value
    return out


def _unwrapped(data):
    """The kind of a wrapped message, and its fields."""
    any_ = _fields(data)
    assert any_[1].startswith(_PREFIX), any_
    return any_[1].removeprefix(_PREFIX).decode(), _fields(any_.get(2, b""))


def _wrapped(kind, message):
    return _message(f1=_PREFIX + kind.encode(), f2=message)


def _schema(**fields):
    """Fields of texts, and whether each may be missing."""
    return pa.schema([pa.field(name, pa.utf8(), nullable=may) for name, may in fields.items()])


class _Token(flight.ServerMiddlewareFactory):
    def start_call(self, info, headers):
        given = [value for name, values in headers.items() if name == "authorization"
                 for value in values]  # fmt: skip
        if given != [TOKEN]:
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
        self._order = threading.Lock()
        self._prepared = {}

    def say(self, **told):
        with self._log.open("a") as file:
            file.write(json.dumps(told) + "\n")

    def do_action(self, context, action):
        kind, fields = _unwrapped(action.body.to_pybytes())
        if action.type == "CreatePreparedStatement":
            handle = str(len(self._prepared)).encode()
            self._prepared[handle] = (fields[1].decode(), [])
            result = _wrapped("ActionCreatePreparedStatementResult", _message(f1=handle))
            return [flight.Result(result)]
        assert action.type == "ClosePreparedStatement", (action.type, kind)
        return []

    def do_put(self, context, descriptor, reader, writer):
        kind, fields = _unwrapped(descriptor.command)
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
        kind, fields = _unwrapped(command)
        if kind == "CommandGetCatalogs":
            return pa.table({"catalog_name": ["main"]}, _schema(catalog_name=False))
        if kind == "CommandGetDbSchemas":
            row = {"catalog_name": ["main"], "db_schema_name": ["sales"]}
            return pa.table(row, _schema(catalog_name=True, db_schema_name=False))
        if kind == "CommandGetTables":
            schema = self._query("select * from orders limit 1", []).schema
            row = {"catalog_name": ["main"], "db_schema_name": ["sales"],
                   "table_name": ["orders"], "table_type": ["TABLE"]}  # fmt: skip
            may_miss = {"catalog_name": True, "db_schema_name": True}
            told = _schema(**may_miss, table_name=False, table_type=False)
            if fields.get(5):
                row["table_schema"] = [schema.serialize().to_pybytes()]
                told = told.append(pa.field("table_schema", pa.binary(), nullable=False))
            return pa.table(row, told)
        assert kind == "CommandPreparedStatementQuery", kind
        statement, rows = self._prepared[fields[1]]
        given = rows[0] if rows else []
        if is_schema:
            return self._query(f"select * from ({statement}) limit 1", given)
        self.say(runs=statement)
        if "sleep" in statement:
            while not context.is_cancelled():
                time.sleep(0.02)
            self.say(cancelled=statement)
            raise flight.FlightCancelledError("cancelled")
        return self._query(statement, given)

    def _query(self, statement, given):
        try:
            with self._order:
                found = self._database.execute(statement, given)
                rows = found.fetchall()
        except sqlite3.Error as error:
            raise flight.FlightServerError(str(error)) from error
        names = [one[0] for one in found.description]
        return pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})


if __name__ == "__main__":
    log = pathlib.Path(sys.argv[1])
    server = Server(log)
    server.say(port=server.port)
    # It ends with whoever started it.
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.serve()
