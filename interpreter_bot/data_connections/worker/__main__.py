"""The worker, which handles requests of the bot one at a time, and ends with the bot.

The bot starts it as `python -m interpreter_bot.data_connections.worker`, with a socket as standard
input.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import queue
import socket
import sys
import threading
import time
from typing import Any, Final

from interpreter_bot.data_connections import worker_messages
from interpreter_bot.data_connections.worker import arrow_results, ports, statements
from interpreter_bot.wording import data_words

_MAX_SENTENCE_CHARACTERS: Final = 4000
_MAX_TABLES: Final = 2000
_MAX_COLUMNS: Final = 400
_MAX_FILES: Final = 10_000
# Half of the longest allowed note.
_MAX_LISTING_BYTES: Final = 8 * 1024 * 1024


class Worker:
    """Answers the requests of the bot."""

    def __init__(self, endpoint: socket.socket, specification: ports.Specification) -> None:
        self._endpoint = endpoint
        self._specification = specification
        self._database: ports.Database | None = None
        self._files: ports.Files | None = None

    def open(self) -> None:
        """Import the driver of this connection only, and create it."""
        kind = self._specification.kind
        if kind == "files":
            from interpreter_bot.data_connections.worker import object_stores

            self._files = object_stores.ObjectStore(self._specification)
        elif kind == "sqlite":
            from interpreter_bot.data_connections.worker import sqlite_files

            self._database = sqlite_files.SqliteFile(self._specification)
        elif kind == "duckdb":
            from interpreter_bot.data_connections.worker import duckdb_files

            self._database = duckdb_files.DuckdbFile(self._specification)
        elif kind == "sqlalchemy":
            from interpreter_bot.data_connections.worker import sqlalchemy_engines

            self._database = sqlalchemy_engines.SqlalchemyEngine(self._specification)
        else:
            from interpreter_bot.data_connections.worker import adbc_databases

            self._database = adbc_databases.AdbcDatabase(self._specification)

    def cancel(self) -> None:
        """Stop the running query, which may have ended meanwhile."""
        if self._database is not None:
            try:
                self._database.cancel()
            except Exception as error:
                # Drivers raise any exception, and this thread has to receive further requests.
                sys.stderr.write(f"a query was not cancelled: {_error_text(error)}\n")

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Handle a request; return the fields of the note that ends the answer."""
        if self._database is None and self._files is None:
            self.open()
        match request["do"]:
            case "query":
                return self._query(request)
            case "tables" if self._database is not None:
                return _bound_tables(self._database.tables())
            case "probe" if self._database is not None:
                database = self._database
                return {
                    "writable": database.find_writable(),
                    "effects": database.find_functions_with_effects(),
                }
            case "list" if self._files is not None:
                files = self._files.list(request["prefix"], _MAX_FILES + 1)
                sizes = itertools.accumulate(len(json.dumps(file)) for file in files)
                pairs = zip(files[:_MAX_FILES], sizes, strict=False)
                shown_files = [file for file, size in pairs if size < _MAX_LISTING_BYTES]
                is_complete = len(shown_files) == len(files)
                return {
                    "files": shown_files,
                    "notice": "" if is_complete else data_words.MORE_FILES,
                }
            case "get" if self._files is not None:
                for piece in self._files.read(request["name"]):
                    worker_messages.send_frame(self._endpoint, worker_messages.DATA, piece)
                return {}
        raise statements.StatementError(data_words.NOT_IN_CONNECTION)

    def _query(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._database is None:
            raise statements.StatementError(data_words.FILES_NOT_TABLES)
        parameters = {
            name: statements.parse_parameter(parameter)
            for name, parameter in request["parameters"].items()
        }
        specification = self._specification
        statement = statements.Statement(request["sql"], parameters, dialect=specification.dialect)
        if not specification.writes:
            if not (self._database.has_reading_transactions or specification.login_only_reads):
                raise statements.StatementError(data_words.NO_READ_ONLY_LOGIN)
            is_guarded = specification.kind in ("sqlite", "duckdb")
            statement.check_reading(is_guarded=is_guarded)
        limits = worker_messages.Limits(**request["limits"])
        results = arrow_results.ResultStream(self._endpoint, limits)
        self._database.query(statement, limits, results)
        return {"rows": results.rows, "cut": results.exceeded_limit}


def _bound_tables(tables: list[ports.Table]) -> dict[str, Any]:
    """Return tables cut to one frame: columns are left out once the frame is full."""
    entries, bytes_left, is_complete = [], _MAX_LISTING_BYTES, len(tables) <= _MAX_TABLES
    for table in tables[:_MAX_TABLES]:
        name = table.name[:200]
        columns = [
            (column_name[:200], kind[:100]) for column_name, kind in table.columns[:_MAX_COLUMNS]
        ]
        bounded_table = ports.Table(name, columns, table.rows, table.comment[:500])
        bytes_left -= len(json.dumps(dataclasses.asdict(bounded_table)))
        if bytes_left < 0:
            bounded_table = ports.Table(name, [], table.rows, data_words.COLUMNS_LEFT_OUT)
        is_complete = is_complete and bytes_left >= 0 and len(table.columns) <= _MAX_COLUMNS
        entries.append(dataclasses.asdict(bounded_table))
    return {"tables": entries, "notice": "" if is_complete else data_words.MORE_TABLES}


def _error_text(error: Exception) -> str:
    """Return the message of a driver; the bot removes secrets from it."""
    if isinstance(error, ModuleNotFoundError):
        return data_words.needs_package(error.name)
    return str(error)[:_MAX_SENTENCE_CHARACTERS] or type(error).__name__


def _receive_requests(
    endpoint: socket.socket, worker: Worker, requests: queue.SimpleQueue[Any]
) -> None:
    """Receive requests until the bot disconnects, then end the process."""
    while (frame := worker_messages.receive_frame(endpoint)) is not None:
        request = worker_messages.read_note(frame[1])
        if request["do"] == "cancel":
            worker.cancel()
        else:
            requests.put(request)
    os._exit(0)


def main() -> None:
    """Answer requests until the bot disconnects."""
    endpoint = socket.socket(fileno=0)
    frame = worker_messages.receive_frame(endpoint)
    if frame is None:
        return
    worker = Worker(endpoint, ports.Specification(**worker_messages.read_note(frame[1])))
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(
        target=_receive_requests, args=(endpoint, worker, requests), daemon=True
    ).start()
    while True:
        request = requests.get()
        started_at = time.monotonic()
        try:
            reply = worker.answer(request)
        except ports.ConnectError as error:
            reply = {"error": "", "detail": _error_text(error)}
        except Exception as error:
            # Drivers raise any exception; people see its message.
            reply = {"error": _error_text(error)}
        reply["seconds"] = round(time.monotonic() - started_at, 3)
        endpoint.sendall(worker_messages.pack_note(reply))


if __name__ == "__main__":
    main()
