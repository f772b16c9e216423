"""Real databases, each with the same rows."""

import contextlib
import sqlite3
import subprocess
import time

import pytest

from tests.integration.store import servers

ROWS = 1000
TABLE = "create table orders (id integer primary key, day {date}, region text, amount {number})"
PASSWORD = "a-secret-of-the-bot"


@pytest.fixture(scope="module")
def sqlite_file(tmp_path_factory):
    """A SQLite file with the rows."""
    path = tmp_path_factory.mktemp("sqlite") / "sales.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(TABLE.format(date="text", number="real"))
        connection.executemany(
            "insert into orders values (?, ?, ?, ?)",
            [
                (i, f"2026-05-{i % 28 + 1:02d}", "south" if i % 4 else "north", i * 0.5)
                for i in range(1, ROWS + 1)
            ],
        )
    return path


class Postgresql:
    """A database of a running server, with addresses for a user who may only read, and a writer."""

    def __init__(self, server: servers.Server, address: str) -> None:
        self._server = server
        self._name = address.partition("?")[0].rpartition("/")[2]
        self.reader = self._address("reader")
        self.writer = self._address("postgres")

    def _address(self, user: str) -> str:
        return f"postgresql://{user}:{PASSWORD}@/{self._name}?host={self._server.directory}"

    def sql(self, statement: str) -> str:
        """Run statements with psql; returns their output."""
        client = self._server.client("psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-d", self._name)
        return subprocess.run(
            client, input=statement, check=True, timeout=60, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip

    def wait(self, statement: str, expected: str) -> None:
        """Wait until a statement has the expected output."""
        deadline = time.monotonic() + 30
        while (output := self.sql(statement)) != expected:
            assert time.monotonic() < deadline, output
            time.sleep(0.05)


@pytest.fixture(scope="module")
def postgresql():
    """A running server with one database."""
    if servers.find_programs() is None:
        pytest.skip("PostgreSQL is not installed here")
    with servers.Server.run() as server, server.database() as address:
        # The client has given up root's privileges, so the directory must be open to it.
        server.directory.chmod(0o755)
        database = Postgresql(server, address)
        database.sql(
            TABLE.format(date="date", number="numeric(10, 2)")
            + f"""; insert into orders select i, date '2026-05-01' + i % 28,
            case when i % 4 = 0 then 'north' else 'south' end, i * 0.5
            from generate_series(1, {ROWS}) i;
            comment on table orders is 'What was sold.'; analyze;
            create role reader login; grant select on orders to reader;"""
        )
        yield database
        database.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and datname = current_database(); drop owned by reader; drop role reader"
        )
