"""`connections`: the data that the bot lets code query, as objects of the kernel.

The objects hold a name, but no address or secret. The bot answers over HTTP on a port of the
kernel's loopback: frames of an Arrow stream, then a frame with the result.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import http.client
import io
import json
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from IPython import get_ipython

from . import tool_functions

_FRAME_HEAD = struct.Struct(">cI")
_DATA_FRAME = b"A"
_BUFFER_BYTES = 1024 * 1024

_port = 0
_refusal = ""


class QueryError(Exception):
    """A query or another request failed; the text says why."""

    __module__ = "connections"


class Connections(Mapping[str, "Connection"]):
    """All data connections by name."""

    def _fetch_descriptions(self) -> dict[str, str]:
        answer = _send_request("", {})
        return {connection["name"]: connection["about"] for connection in answer["connections"]}

    def __getitem__(self, name: str) -> Connection:
        descriptions = self._fetch_descriptions()
        if name not in descriptions:
            raise KeyError(
                f"{name!r} is no data connection here; there are: {', '.join(descriptions)}"
            )
        return Connection(name, descriptions[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._fetch_descriptions())

    def __len__(self) -> int:
        return len(self._fetch_descriptions())

    def __repr__(self) -> str:
        descriptions = self._fetch_descriptions()
        lines = [f"{name}: {about}" for name, about in descriptions.items()]
        return "\n".join(lines) or "no data connections"

    def __reduce__(self) -> Any:
        return Connections, ()


class Connection:
    """One data connection."""

    def __init__(self, name: str, description: str = "") -> None:
        self.name = name
        self.description = description

    def __repr__(self) -> str:
        return f"{self.name}: {self.description}"

    def __getattr__(self, name: str) -> Any:
        # For example `cursor`, which pandas.read_sql looks for.
        query_call = f"connections[{self.__dict__.get('name', '')!r}].query('SELECT …')"
        raise AttributeError(f"A data connection has no {name!r}: ask it by {query_call}")

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, *, as_: str = "pandas"
    ) -> Any:
        """Run one statement and return its rows.

        Args:
            sql: the statement; `:name` in it is a parameter.
            params: the parameters' values by name.
            as_: "pandas" for a DataFrame, "arrow" for a pyarrow.Table, "batches" for an iterator of
                pyarrow.RecordBatch, for more than fits into memory.
        """
        if as_ not in ("pandas", "arrow", "batches"):
            raise ValueError('as_ is "pandas", "arrow" or "batches"')
        parameters = {name: _encode_parameter(value) for name, value in (params or {}).items()}
        answer = self._open_answer({"sql": sql, "parameters": parameters})
        batches = _read_batches(self.name, answer)
        schema = next(batches)
        if as_ == "batches":
            return batches
        import pyarrow

        table = pyarrow.Table.from_batches(list(batches), schema)
        if not table.num_rows:
            sys.stderr.write(f"{self.name}: the query found no rows\n")
        if as_ == "arrow":
            return table
        return table.to_pandas(date_as_object=False, split_blocks=True, self_destruct=True)

    def _open_answer(self, request: dict[str, Any]) -> _Answer:
        """Return the bot's answer; if a person has to allow the statement, ask first."""
        answer = _Answer(f"{self.name}/query", request)
        if answer.needs_approval():
            answer.close()
            approval = {"do": "allow statement", "connection": self.name, **request}
            try:
                tool_functions.ask(get_ipython().kernel, approval)
            except tool_functions.ToolError as error:
                raise QueryError(str(error)) from None
            answer = _Answer(f"{self.name}/query", request)
            if answer.needs_approval():
                answer.close()
                raise QueryError("A person has to allow this statement, and nobody can be asked.")
        return answer

    def tables(self) -> Any:
        """Return the tables that can be queried, as a DataFrame."""
        import pandas

        tables = self._fetch_entries("tables", "")
        columns = ["name", "rows", "comment", "columns"]
        rows = [
            [
                table["name"],
                table["rows"],
                table["comment"],
                ", ".join(name for name, _ in table["columns"]),
            ]
            for table in tables
        ]
        return pandas.DataFrame(rows, columns=columns)

    def _fetch_entries(self, kind: str, name: str) -> list[dict[str, Any]]:
        """Return descriptions of tables or files, and print a notice if some are missing."""
        answer = _send_request(f"{self.name}/{kind}", {"name": name} if name else {})
        if notice := answer.get("notice"):
            sys.stderr.write(f"{self.name}: {notice}\n")
        entries: list[dict[str, Any]] = answer[kind]
        return entries

    def schema(self, table: str) -> Any:
        """Return the columns of a table and their types, as a DataFrame."""
        import pandas

        (description,) = _send_request(f"{self.name}/tables", {"name": table})["tables"]
        if not description["columns"]:
            sys.stderr.write(f"{self.name}: {description['name']} {description['comment']}\n")
        return pandas.DataFrame(description["columns"], columns=["column", "type"])

    def files(self, prefix: str = "") -> Any:
        """Return the files whose names begin with `prefix`, as a DataFrame."""
        import pandas

        files = self._fetch_entries("files", prefix)
        table = pandas.DataFrame(files, columns=["name", "size", "at"])
        table["at"] = pandas.to_datetime(table["at"], unit="s", utc=True)
        return table

    def get(self, name: str) -> str:
        """Copy a file into /mnt/data and return its path there."""
        file_name = _send_request(f"{self.name}/get", {"name": name})["name"]
        return f"/mnt/data/{file_name}"


class _Answer(io.RawIOBase):
    """Stream over the data frames of an answer; `result` is the content of its last frame."""

    def __init__(self, path: str, request: dict[str, Any]) -> None:
        self.result: dict[str, Any] = {}
        self._remaining_bytes = 0
        self._has_ended = False
        self._connection = http.client.HTTPConnection("127.0.0.1", _port)
        # Once there is a connection, because Python calls `close` even if this raises.
        if _refusal:
            raise QueryError(_refusal)
        body = json.dumps(request).encode()
        self._connection.request("POST", f"/connections/{path}", body)
        self._response = self._connection.getresponse()
        if self._response.status != 200:
            reason = self._response.read(10_000).decode("utf-8", "replace").strip()
            self.close()
            raise QueryError(reason)

    def close(self) -> None:
        """Close the connection, which cancels a query that still runs."""
        self._connection.close()
        if hasattr(self, "_response"):
            self._response.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._remaining_bytes and not self._has_ended:
            self._read_frame()
        if self._has_ended:
            return 0
        view = memoryview(buffer)[: self._remaining_bytes]
        count = self._response.readinto(view)
        if not count:
            raise QueryError("The bot broke off.")
        self._remaining_bytes -= count
        return count

    def _read_frame(self) -> None:
        kind, length = _FRAME_HEAD.unpack(self._read_exactly(_FRAME_HEAD.size))
        if kind == _DATA_FRAME:
            self._remaining_bytes = length
            return
        self.result = json.loads(self._read_exactly(length))
        self._has_ended = True
        if "error" in self.result:
            raise QueryError(self.result["error"])

    def _read_exactly(self, count: int) -> bytes:
        data = self._response.read(count)
        if len(data) < count:
            raise QueryError("The bot broke off.")
        return data

    def needs_approval(self) -> bool:
        """Return whether the statement was not run, because a person has to allow it."""
        try:
            self._read_frame()
        except BaseException:
            # After KeyboardInterrupt too: its traceback would keep the connection open, and the
            # query running.
            self.close()
            raise
        return bool(self.result.get("is_approval_wanted"))

    def finish(self) -> dict[str, Any]:
        """Read the rest of the data and return the result."""
        while not self._has_ended:
            if not self.read(_BUFFER_BYTES):
                break
        return self.result


def _send_request(path: str, request: dict[str, Any]) -> dict[str, Any]:
    answer = _Answer(path, request)
    try:
        return answer.finish()
    finally:
        answer.close()


def _read_batches(name: str, answer: _Answer) -> Iterator[Any]:
    """Yield the schema, then the batches; print a notice at the end if some are missing."""
    import pyarrow

    try:
        stream = pyarrow.ipc.open_stream(io.BufferedReader(answer, _BUFFER_BYTES))
        yield stream.schema
        yield from stream
        if notice := answer.finish().get("notice"):
            sys.stderr.write(f"{name}: {notice}\n")
    except QueryError as error:
        # A new error, whose traceback has no frames of pyarrow.
        raise QueryError(str(error)) from None
    finally:
        answer.close()


def _encode_parameter(value: Any) -> Any:
    if isinstance(value, (list, tuple, set)):
        return [_encode_parameter(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    if isinstance(value, datetime.datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, (datetime.date, datetime.time)):
        return {type(value).__name__: value.isoformat()}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a parameter cannot be a {type(value).__name__}")


def install(
    variables: dict[str, Any], hidden_variables: dict[str, Any], port: int, *, refusal: str = ""
) -> None:
    """Define `connections` for code."""
    global _port, _refusal
    _port, _refusal = port, refusal
    if "connections" not in variables:
        variables["connections"] = hidden_variables["connections"] = Connections()
