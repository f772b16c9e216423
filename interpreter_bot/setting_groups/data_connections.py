"""Settings of data that code may query through the bot."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from interpreter_bot.setting_groups import fields


class Connection(fields.Group):
    """Data that code may query: a database, or a bucket of files."""

    name: Annotated[str, pydantic.Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
    """Name of the connection, in code and in lists."""
    kind: Literal["postgresql", "sqlite", "duckdb", "snowflake", "flightsql", "sqlalchemy", "files"]
    """The protocol. `sqlalchemy` covers every database that SQLAlchemy has a dialect for."""
    address: Annotated[str, pydantic.Field(min_length=1, repr=False)]
    """A URL, or a path for `sqlite` and `duckdb`. `${NAME}` is replaced from the bot's environment,
    so that no secret has to be in a file."""
    options: dict[str, str] = pydantic.Field(default_factory=dict, repr=False)
    """Options for the driver or the bucket, such as keys and a region. `${NAME}` works as in
    `address`."""
    description: Annotated[str, pydantic.Field(max_length=300)] = ""
    """One line that tells people and models what is in it."""
    places: tuple[str, ...] = ()
    """Where it may be used: `slack`, `slack/T024BE7LD`, `discord/GUILD/CHANNEL`, `web`, `console`,
    … Empty means everywhere."""
    people: tuple[str, ...] = ()
    """Ids of the people who may use it. Empty means everybody."""
    writes: bool = False
    """Allow statements that change data. A person approves each of them. Not for DuckDB and
    files."""
    login_only_reads: bool = False
    """You vouch that the login can only read. Databases without read-only transactions, such as SQL
    Server and Snowflake, are not queried until you set this."""

    @pydantic.model_validator(mode="after")
    def _check_writes(self) -> Connection:
        if self.writes and self.kind in ("duckdb", "files"):
            raise ValueError(f"a connection of kind {self.kind} cannot write")
        return self


class ConnectionLimits(fields.Group):
    """Limits on queries to `connections`."""

    bytes: fields.Positive = 512 * fields.MIB
    """Size of the result of one query."""
    seconds: fields.Seconds = 45.0
    """Time for one query, including the time code takes to fetch its rows."""
