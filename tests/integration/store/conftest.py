"""Every test of the store runs on both databases."""

import pytest

from interpreter_bot import values
from interpreter_bot.store import databases
from tests.integration.store import servers


@pytest.fixture(scope="session")
def postgresql():
    """A running server."""
    if servers.programs() is None:
        pytest.skip("PostgreSQL is not installed here")
    with servers.Server.run() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """An empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/bot.db"
    else:
        with request.getfixturevalue("postgresql").database() as address:
            yield address


@pytest.fixture
def opening(url, tmp_path):
    """Open that database; as often as wanted, each time as another replica."""
    return lambda: databases.Database.open(url, files=tmp_path / "kept")


@pytest.fixture
async def database(opening):
    """An open one, that must be idle again in the end."""
    async with opening() as opened:
        yield opened
        assert servers.connections_in_use(opened) == 0


@pytest.fixture
async def session(database):
    """A conversation."""
    return await database.sessions.open(values.SessionKey("slack", "T1", "C1", "1.2"))


@pytest.fixture
async def turn(database, session):
    """A turn that runs."""
    return await database.turns.start(session.id, person="U1", text="Plot it!")
