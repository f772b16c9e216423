"""Data connections: queries that are refused, stopped or cut, and settings of `connections`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

UNREACHABLE: Final = (
    "The data cannot be reached, or its server refuses the bot's login. Try again in a minute."
)
FILES_NOT_TABLES: Final = "This connection has files, not tables. Use files() and get()."
NOT_IN_CONNECTION: Final = "This connection does not have that."
NEEDS_NO_APPROVAL: Final = "This connection only reads, which needs no approval."
QUERY_STOPPED: Final = "It was stopped."
NO_WORKSPACE: Final = "Files cannot be stored here."
INVALID_REQUEST: Final = "This is not a valid request for data."
PROCESS_NOT_STARTED: Final = (
    "No process can be started to query the database. Try again in a minute."
)
PROCESS_ENDED: Final = (
    "The process that queries the database ended, perhaps because it needed too much memory. Ask "
    "for less at a time."
)
MORE_QUERIES: Final = "… and more, which are in the record of queries."
TRUNCATION_PHRASES: Final = {
    "rows": "cut after {rows:,} rows, the most that one query returns",
    "bytes": "cut after {rows:,} rows, because more would be too large",
}
"""Why a result is not whole."""
MORE_FILES: Final = "there are more files than fit in one list: give a longer beginning of names"
MORE_TABLES: Final = (
    "there are more tables or columns than fit in one list: query the database's own catalogue for "
    "the rest"
)
COLUMNS_LEFT_OUT: Final = "(its columns are left out, because the list would be too long)"
NO_READ_ONLY_LOGIN: Final = (
    "This database has no read-only transactions, so no statement is run. Ask whoever runs this "
    "bot to confirm that its login can only read (login_only_reads)."
)

# Statements.
NOT_READING: Final = (
    "Only statements that read are allowed: they begin with SELECT, WITH, VALUES or similar."
)
STATEMENT_TOO_LONG: Final = "The statement is too long. Give long lists as parameters."
SEVERAL_STATEMENTS: Final = "Only one statement can be run at a time."
NO_STATEMENT: Final = "The statement is empty."
UNCLOSED_STATEMENT: Final = "A string, a name or a comment in the statement is not closed."
RUNNING_COMMENTS: Final = "Comments that the database would run are not allowed. Leave them out."
UNICODE_ESCAPES: Final = "Names with Unicode escapes are not allowed. Write the letters themselves."
ZERO_BYTE: Final = "PostgreSQL cannot store text with a zero byte in it."
BAD_PARAMETER: Final = "A parameter has a value of a type that cannot be sent."


def query_too_slow(seconds: float) -> str:
    return f"It took longer than {seconds:g} seconds and was stopped."


def no_connection(name: str, names: Iterable[str]) -> str:
    return f"There is no data connection {name!r} here. There are: {', '.join(names) or 'none'}."


def too_many_queries(limit: int) -> str:
    return (
        f"Code in this conversation has asked for data {limit:,} times within an hour, the most "
        "that is allowed. Try again later."
    )


def no_table(name: str, names: Iterable[str]) -> str:
    return f"There is no table {name!r}. There are: {', '.join(names)}."


def no_file(name: str) -> str:
    return f"There is no file {name!r}."


def rows_in_time(rows: int, seconds: float) -> str:
    return f"{rows:,} rows in {seconds:.1f} s"


def needs_package(name: str | None) -> str:
    return f"This needs the package {name!r}, which is not in the bot's environment."


def not_parsed(dialect: str) -> str:
    return f"This cannot be parsed as {dialect}, so it is not run. Write it in a simpler form."


def begins_statement(word: str) -> str:
    return (
        f"The word {word} begins a new statement in this dialect, so this is not run. If it is a "
        f"name, write it in brackets: [{word}]."
    )


def unknown_parameter(name: str) -> str:
    return f"The statement has no parameter :{name}."


def function_refused(name: str) -> str:
    return f"The function {name} is not allowed, because it may do more than read."


# Settings of `connections`; the operator reads them.


def listed_twice(name: str) -> str:
    return f"connections: {name} is listed twice."


def invalid_setting(name: str, flaw: str) -> str:
    return f"connections, {name}: {flaw}."
