"""The loop of a worker process."""

import socket
import sqlite3

from interpreter_bot.data_connections.worker import __main__ as worker_process
from interpreter_bot.data_connections.worker import ports, sqlite_files


def test_a_driver_that_fails_to_cancel_does_not_end_the_worker(monkeypatch, capsys):
    def fail(_):
        raise sqlite3.ProgrammingError("Cannot operate on a closed database.")

    monkeypatch.setattr(sqlite_files.SqliteFile, "cancel", fail)
    specification = ports.Specification(
        kind="sqlite", address="sqlite:x.db", options={}, writes=False, login_only_reads=False
    )
    bot_end, worker_end = socket.socketpair()
    with bot_end, worker_end:
        worker = worker_process.Worker(worker_end, specification)
        worker.open()
        worker.cancel()
    assert "closed database" in capsys.readouterr().err
