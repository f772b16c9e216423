"""Data connections of the settings, with their secrets, for the process of the bot only."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import string
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final

from interpreter_bot import errors, settings, values
from interpreter_bot.setting_groups import header_values
from interpreter_bot.wording import data_words

_TITLES: Final = {
    "postgresql": "PostgreSQL",
    "sqlite": "SQLite",
    "duckdb": "DuckDB",
    "snowflake": "Snowflake",
    "flightsql": "Flight SQL",
    "sqlalchemy": "SQL",
    "files": "files",
}
_SECRET_OPTION: Final = re.compile(r"pass|pwd|secret|token|[_.]key|credential", re.IGNORECASE)
# Shorter ones are switches, and removing them would mutilate texts.
_MIN_OPTION_CHARACTERS: Final = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A connection and who may use it.

    Attributes:
        name: for people and code.
        kind: as in the settings.
        description: for people and models.
        places: places where it may be used; empty for all.
        people: people who may use it; empty for everybody.
        writes: whether statements may change data, after a person has allowed each.
        login_only_reads: whether the operator confirms that its login can only read.
        address: of its server or file.
        options: for its driver.
        secrets: texts that may not leave this process.
    """

    name: str
    kind: str
    description: str
    places: tuple[str, ...]
    people: frozenset[str]
    writes: bool
    login_only_reads: bool
    address: str = dataclasses.field(repr=False)
    options: Mapping[str, str] = dataclasses.field(repr=False)
    secrets: frozenset[str] = dataclasses.field(repr=False)

    @property
    def title(self) -> str:
        """The kind of the database, for people; for SQLAlchemy, the address names it."""
        if self.kind == "sqlalchemy":
            return self.address.partition(":")[0].partition("+")[0]
        return _TITLES[self.kind]

    @property
    def summary(self) -> str:
        """Title and description, for people and models."""
        return f"{self.title}: {self.description}" if self.description else self.title

    def is_usable_by(self, key: values.SessionKey, people: Set[str]) -> bool:
        """Return whether all of some people may use it in a conversation."""
        return key.is_in(self.places) and (not self.people or people <= self.people)

    @property
    def directory(self) -> str:
        """The directory of its database file; empty if it is not a file.

        The engine needs the whole directory, because it may write a log beside the file.
        """
        scheme, _, location = self.address.rpartition("://")
        if self.kind not in ("sqlite", "duckdb") and not scheme.startswith("sqlite"):
            return ""
        path = location.removeprefix("/") if self.kind == "sqlalchemy" else location
        path = path.removeprefix(f"{self.kind}:")
        return str(pathlib.Path(path).absolute().parent)


def compile_rules(
    connections: Sequence[settings.Connection], environment: Mapping[str, str]
) -> tuple[Rule, ...]:
    """Turn the settings into rules.

    `environment` has the secrets that addresses and options name.

    Raises:
        SettingsError: a connection cannot be used; the sentence contains no secret.
    """
    names = [connection.name for connection in connections]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise errors.SettingsError(data_words.listed_twice(duplicates[0]))
    return tuple(_compile_rule(connection, environment) for connection in connections)


def _compile_rule(connection: settings.Connection, environment: Mapping[str, str]) -> Rule:
    address = _fill_variables(connection.name, connection.address, environment)
    options = {
        name: _fill_variables(connection.name, text, environment)
        for name, text in connection.options.items()
    }
    texts = [connection.address, *connection.options.values()]
    secrets = {
        *_variable_values(texts, environment),
        *_passwords(address),
        *_secret_options(options),
    }
    return Rule(
        name=connection.name,
        kind=connection.kind,
        description=" ".join(connection.description.split()),
        places=connection.places,
        people=frozenset(connection.people),
        writes=connection.writes,
        login_only_reads=connection.login_only_reads,
        address=address,
        options=options,
        secrets=frozenset(secrets),
    )


def _fill_variables(name: str, text: str, environment: Mapping[str, str]) -> str:
    try:
        return header_values.fill_variables(text, environment)
    except header_values.VariableError as error:
        raise errors.SettingsError(data_words.invalid_setting(name, str(error))) from None


def _variable_values(texts: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of the variables that settings name."""
    for text in texts:
        for name in string.Template(text).get_identifiers():
            yield environment[name]


def _secret_options(options: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of options that have the name of a secret."""
    for name, text in options.items():
        if _SECRET_OPTION.search(name) and len(text) >= _MIN_OPTION_CHARACTERS:
            yield text


def _passwords(address: str) -> Iterator[str]:
    """Yield the password of an address, as written and decoded."""
    try:
        # Snowflake's addresses have no scheme.
        parts = urllib.parse.urlsplit(address if "://" in address else f"//{address}")
        password = parts.password
    except ValueError:
        return
    parameter = dict(urllib.parse.parse_qsl(parts.query)).get("password")
    for secret in filter(None, (password, parameter)):
        yield from (secret, urllib.parse.unquote(secret))
