"""Database URLs: which are understood, and what they mean to the driver."""

from __future__ import annotations

import pathlib
from typing import Final

import sqlalchemy
from sqlalchemy import exc

from interpreter_bot import errors

_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
# What the driver takes, of what a URL can say; anything else would fail late and obscurely.
_OPTIONS: Final = {"host", "port", "ssl", "passfile", "target_session_attrs"}
_FILE_NAME: Final = "interpreter-bot.db"


def default(data: pathlib.Path) -> str:
    """The URL of the database that is used when none is named: a file in the data directory."""
    return sqlalchemy.URL.create("sqlite", database=str(data / _FILE_NAME)).render_as_string()


def parse(url: str) -> sqlalchemy.URL:
    """Read a URL as people write it, for our drivers.

    Raises:
        SettingsError: it is not a URL of a database that can be used. Says nothing of its
            password.
    """
    try:
        parsed = sqlalchemy.make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise errors.SettingsError("The database's address is not a URL.") from error
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        raise errors.SettingsError(
            f"The database's address begins with {parsed.drivername!r}; use sqlite or postgresql."
        )
    parsed = parsed.set(drivername=driver)
    if is_sqlite(parsed):
        # In memory, every connection would have a database of its own.
        if parsed.database in {None, "", ":memory:"} or "file:" in (parsed.database or ""):
            raise errors.SettingsError("An SQLite database must be a plain file.")
        return parsed
    # People copy URLs made for libpq; asyncpg knows the same words under another name.
    mode = parsed.query.get("sslmode")
    if mode is not None:
        parsed = parsed.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})
    unknown = parsed.query.keys() - _OPTIONS
    if unknown:
        names = ", ".join(sorted(unknown))
        raise errors.SettingsError(f"The database's address has unknown options: {names}.")
    return parsed


def is_sqlite(url: sqlalchemy.URL) -> bool:
    """Say whether it is a file of ours, rather than a server."""
    return url.get_backend_name() == "sqlite"


def file(url: sqlalchemy.URL) -> pathlib.Path:
    """The file of an SQLite database."""
    return pathlib.Path(url.database or "")
