"""Fixtures that run every test of the store on SQLite and on PostgreSQL."""

import functools
import threading

import pytest

from interpreter_bot import values
from interpreter_bot.store import databases, engines
from tests.integration.store import servers


def _upgrade(url):
    """Make the tables, in a thread, because the upgrade runs an event loop; returns the URL."""
    upgrading = threading.Thread(target=databases.upgrade, args=(engines.parse(url),))
    upgrading.start()
    upgrading.join()
    return url


@pytest.fixture(scope="session")
def postgresql():
    """A running server."""
    if servers.find_programs() is None:
        pytest.skip("PostgreSQL is not installed here")
    with servers.Server.run() as server:
        yield server


@pytest.fixture(scope="session")
def _upgraded_postgresql(postgresql):
    with postgresql.database() as address:
        yield _upgrade(address)


@pytest.fixture(scope="session")
def _upgraded_sqlite(tmp_path_factory):
    file = tmp_path_factory.mktemp("upgraded") / "bot.db"
    _upgrade(f"sqlite:///{file}")
    return file.read_bytes()


@pytest.fixture
def is_new():
    """Whether the database is new and without tables; by default it has those of the bot."""
    return False


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path, is_new):
    """A database without rows."""
    if request.param == "sqlite":
        file = tmp_path / "bot.db"
        if not is_new:
            file.touch(mode=0o600)
            file.write_bytes(request.getfixturevalue("_upgraded_sqlite"))
        yield f"sqlite:///{file}"
        return
    server = request.getfixturevalue("postgresql")
    if is_new:
        with server.database() as address:
            yield address
    else:
        # All tests share one database, because making one takes longer than most tests.
        address = request.getfixturevalue("_upgraded_postgresql")
        yield address
        server.empty(address)


@pytest.fixture
def opening(url, tmp_path):
    """Open that database; as often as wanted, each time as another bot."""
    return functools.partial(databases.Database.open, url, blobs_directory=tmp_path / "kept")


@pytest.fixture
async def database(opening):
    """An open database, which must have no connection in use after the test."""
    async with opening() as opened:
        yield opened
        assert servers.connections_in_use(opened) == 0


@pytest.fixture
async def session(database):
    """A conversation."""
    return await database.sessions.open(values.SessionKey("slack", "T1", "C1", "1.2"))


@pytest.fixture
async def turn(database, session):
    """A running turn."""
    return await database.turns.start(session.id, person="U1", text="Plot it!")
