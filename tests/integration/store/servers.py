"""A real PostgreSQL server, reachable through a unix socket only, gone when the tests are."""

import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator

import sqlalchemy
from sqlalchemy import pool

_PLACES = ("/usr/local/bin", *map(str, sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))))
_EMPTY = """
DO $$ BEGIN EXECUTE (
    SELECT 'TRUNCATE ' || string_agg(quote_ident(tablename), ', ') || ' RESTART IDENTITY'
    FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'
); END $$
"""


def programs() -> pathlib.Path | None:
    """Where PostgreSQL's programs are, if this machine has them."""
    found = shutil.which("initdb", path=os.pathsep.join((*_PLACES, os.environ.get("PATH", ""))))
    return None if found is None else pathlib.Path(found).resolve().parent


class Server:
    """Makes databases, each for one test."""

    def __init__(self, directory: pathlib.Path, bin_: pathlib.Path, fsync: str) -> None:
        self.directory = directory
        self._fsync = fsync
        self._bin = bin_
        self._rights = _unprivileged()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextlib.contextmanager
    def run(cls, *, fsync: str = "off") -> Iterator["Server"]:
        """Run one, in a directory whose path leaves room for a socket."""
        bin_ = programs()
        assert bin_ is not None
        with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
            server = cls(pathlib.Path(name), bin_, fsync)
            if "user" in server._rights:
                os.chown(name, server._rights["user"], server._rights["group"])
            server._call("initdb", "-D", f"{name}/data", "-A", "trust", "-N", "-E", "UTF8",
                         "--locale=C", "-U", "postgres")  # fmt: skip
            server.start()
            try:
                yield server
            finally:
                server.stop()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ["listen_addresses=", f"unix_socket_directories={self.directory}",
                   f"fsync={self._fsync}", "max_connections=100"]  # fmt: skip
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.directory / "data",
                 *(word for option in options for word in ("-c", option))],
                stdout=log, stderr=log, cwd=self.directory, **self._rights,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while subprocess.run(self.client("pg_isready"), capture_output=True).returncode:
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it, and throw out whoever is still connected."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """An empty database, by its URL. Not to be left before everybody has let go of it."""
        name = f"t{uuid.uuid4().hex}"
        self.sql(f"CREATE DATABASE {name}")
        yield f"postgresql://postgres@/{name}?host={self.directory}"
        self.sql(f"DROP DATABASE {name}")

    def empty(self, address: str) -> None:
        """Delete all rows of the bot's tables, which nobody uses any more."""
        self.sql(_EMPTY, sqlalchemy.make_url(address).database)

    def sql(self, statement: str, database: str = "postgres") -> None:
        """Run a statement from outside."""
        client = self.client("psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", database)
        subprocess.run([*client, "-c", statement], check=True, timeout=60)

    def client(self, program: str, *arguments: str) -> list[str]:
        """The command of one of its programs."""
        return [str(self._bin / program), "-h", str(self.directory), "-U", "postgres", *arguments]

    def _call(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._bin / program, *arguments],
            check=True, capture_output=True, cwd=self.directory, **self._rights,
        )  # fmt: skip


def _unprivileged() -> dict:
    """It refuses to run as root, and to be set up by a user without a name."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def connections_in_use(database):
    """Say how many a database has at this moment; none when nothing goes on."""
    connections = database.engine.pool
    return connections.checkedout() if isinstance(connections, pool.QueuePool) else 0
