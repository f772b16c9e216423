"""A real PostgreSQL server that listens on a unix socket only, and ends with the tests."""

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

_PROGRAM_DIRECTORIES = (
    "/usr/local/bin",
    *map(str, sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))),
)
_TRUNCATE_TABLES = """
DO $$ BEGIN EXECUTE (
    SELECT 'TRUNCATE ' || string_agg(quote_ident(tablename), ', ') || ' RESTART IDENTITY'
    FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'
); END $$
"""


def find_programs() -> pathlib.Path | None:
    """Return the directory of PostgreSQL's programs, or None if it is not installed."""
    initdb = shutil.which(
        "initdb", path=os.pathsep.join((*_PROGRAM_DIRECTORIES, os.environ.get("PATH", "")))
    )
    return None if initdb is None else pathlib.Path(initdb).resolve().parent


class Server:
    """A running server, which makes databases for tests."""

    def __init__(self, directory: pathlib.Path, bin_: pathlib.Path, fsync: str) -> None:
        self.directory = directory
        self._fsync = fsync
        self._bin = bin_
        self._process_options = _unprivileged()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextlib.contextmanager
    def run(cls, *, fsync: str = "off") -> Iterator["Server"]:
        """Run a server, in a directory with a short path, as a socket needs."""
        bin_ = find_programs()
        assert bin_ is not None
        with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
            server = cls(pathlib.Path(name), bin_, fsync)
            if "user" in server._process_options:
                os.chown(name, server._process_options["user"], server._process_options["group"])
            server._run_program("initdb", "-D", f"{name}/data", "-A", "trust", "-N", "-E", "UTF8",
                         "--locale=C", "-U", "postgres")  # fmt: skip
            server.start()
            try:
                yield server
            finally:
                server.stop()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = ["listen_addresses=", f"unix_socket_directories={self.directory}",
                   f"fsync={self._fsync}", "max_connections=100"]  # fmt: skip
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.directory / "data",
                 *(word for option in options for word in ("-c", option))],
                stdout=log, stderr=log, cwd=self.directory, **self._process_options,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while subprocess.run(self.client("pg_isready"), capture_output=True).returncode:
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server, and end all connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Make an empty database, and yield its URL; all connections must be closed at the end."""
        name = f"t{uuid.uuid4().hex}"
        self.sql(f"CREATE DATABASE {name}")
        yield f"postgresql://postgres@/{name}?host={self.directory}"
        self.sql(f"DROP DATABASE {name}")

    def empty(self, address: str) -> None:
        """Delete all rows of the bot's tables, once no test uses them."""
        self.sql(_TRUNCATE_TABLES, sqlalchemy.make_url(address).database)

    def sql(self, statement: str, database: str = "postgres") -> None:
        """Run a statement with psql."""
        client = self.client("psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", database)
        subprocess.run([*client, "-c", statement], check=True, timeout=60)

    def client(self, program: str, *arguments: str) -> list[str]:
        """Return the command line of a PostgreSQL program for this server."""
        return [str(self._bin / program), "-h", str(self.directory), "-U", "postgres", *arguments]

    def _run_program(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._bin / program, *arguments],
            check=True, capture_output=True, cwd=self.directory, **self._process_options,
        )  # fmt: skip


def _unprivileged() -> dict:
    """Return options to run as a named user: PostgreSQL refuses root, and users without a name."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def connections_in_use(database):
    """Return the number of connections in use; 0 when the database is idle."""
    connections = database.engine.pool
    return connections.checkedout() if isinstance(connections, pool.QueuePool) else 0
