"""Settings of data that code may query through the bot."""

from __future__ import annotations

import pathlib
from typing import Annotated, Literal

import pydantic

from interpreter_bot.setting_groups import fields


class Connection(fields.Group):
    """Data that code may read: a database, or a place of files."""

    name: Annotated[str, pydantic.Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
    """What people and code call it."""
    kind: Literal["postgresql", "sqlite", "duckdb", "snowflake", "flightsql", "sqlalchemy", "files"]
    """What is spoken: `sqlalchemy` stands for every database that SQLAlchemy has a dialect for."""
    address: str = pydantic.Field(default="", repr=False)
    """Where it is: a URL, or a path for `sqlite` and `duckdb`. `${NAME}` stands for a variable of
    the bot's environment, so that no secret need be in a file of settings."""
    address_file: pathlib.Path | None = None
    """A file that holds the address, instead."""
    options: dict[str, str] = pydantic.Field(default_factory=dict, repr=False)
    """Further options of the driver, or of the store of files, such as its keys and region; with
    variables as in `address`."""
    description: Annotated[str, pydantic.Field(max_length=300)] = ""
    """One line for people and models: what is in it."""
    places: tuple[str, ...] = ()
    """Where people may use it: `slack`, `slack/T024BE7LD`, `discord/GUILD/CHANNEL`, `web`,
    `console`, …; none named means everywhere."""
    people: tuple[str, ...] = ()
    """Who may use it, by ids of the platform; none named means everybody."""
    writes: bool = False
    """Statements that change data run too, each after a person has allowed it."""
    login_only_reads: bool = False
    """You vouch that the login of `address` can only read. Databases without read-only
    transactions, such as SQL Server and Snowflake, are not queried until this is set."""

    @pydantic.model_validator(mode="after")
    def _has_one_address(self) -> Connection:
        if bool(self.address) == bool(self.address_file):
            raise ValueError("a connection needs either `address` or `address_file`")
        if self.writes and self.kind in ("duckdb", "files"):
            raise ValueError(f"a connection of kind {self.kind} cannot write")
        return self


class ConnectionLimits(fields.Group):
    """How much code may ask of data connections."""

    rows: fields.Positive = 5_000_000
    """What one query may return."""
    bytes: fields.Positive = 512 * fields.MIB
    """What one query may return."""
    seconds: fields.Seconds = 45.0
    """How long one query may take, with the time in which code takes its rows."""
    session_queries: fields.Positive = 2
    """Queries of one session at once; others wait."""
    queries: fields.Positive = 4
    """Queries of one connection at once, of all sessions; others wait."""
    hourly_queries: fields.Positive = 3000
    """What one session may ask in an hour: queries, and looks at what there is, which count too."""
    prompt_characters: Annotated[int, pydantic.Field(ge=0)] = 6000
    """How much models are told of the tables of one connection."""
    worker_bytes: fields.Positive = 3 * fields.GIB
    """Memory of the process that asks one database."""
    record_days: Annotated[float, pydantic.Field(gt=0)] = 90.0
    """How long it is kept what was asked."""
