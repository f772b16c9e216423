"""Parts of a live kernel's tables, as a person looks at them, and a list of its variables.

What is asked goes to the kernel as JSON, and so comes what it found. The kernel is hostile: all of
that is checked, bounded and made harmless here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal, TypeVar

import pydantic

from interpreter_bot import errors, kernel_calls, values
from interpreter_bot.hosts import cancellable_executions
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.sessions import requests
from interpreter_bot.text import safe_text
from interpreter_bot.wording import variable_words

_SECONDS: Final = 30.0
START_SECONDS: Final = 20.0
"""How long a person who looks at something waits for a Python that is not there yet."""
_MAX_ROWS: Final = 200
_MAX_COLUMNS: Final = 60
_MAX_FILTERS: Final = 20
_MAX_SUMMARIES: Final = 20
_MAX_VARIABLES: Final = 200
_WORDS_CHARACTERS: Final = 200
_CELL_CHARACTERS: Final = 500


T = TypeVar("T")


def _harmless(text: str) -> str:
    return safe_text.clipped(text, _CELL_CHARACTERS)


Count = Annotated[int, pydantic.Field(ge=0, le=10**15)]
Text = Annotated[str, pydantic.AfterValidator(_harmless)]
Words = Annotated[str, pydantic.Field(max_length=_WORDS_CHARACTERS)]
Operator = Literal["contains", "=", "≠", "<", "≤", ">", "≥", "missing", "present"]


class TableGoneError(errors.BotError):
    """Python no longer has this table. Run its code again to look at all of it."""


class PythonBusyError(errors.BotError):
    """Python is busy; it answers once that is over."""


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, frozen=True, extra="ignore")


class View(_Strict):
    """What is to be seen of a table.

    Attributes:
        rows: the first one that is wanted, among those found, and how many.
        columns: likewise; those of the index come first.
        sort: number of a column, and whether its greatest value comes first.
        search: words, a number or a date that a row is to have anywhere.
        filters: number of a column, what is to be true of it, and a text for that.
    """

    rows: tuple[Count, Annotated[int, pydantic.Field(ge=1, le=_MAX_ROWS)]]
    columns: tuple[Count, Annotated[int, pydantic.Field(ge=1, le=_MAX_COLUMNS)]]
    sort: tuple[Count, bool] | None = None
    search: Words = ""
    filters: Annotated[
        tuple[tuple[Count, Operator, Words], ...], pydantic.Field(max_length=_MAX_FILTERS)
    ] = ()


class Columns(_Strict):
    """Which columns are to be summed up."""

    summaries: Annotated[tuple[Count, ...], pydantic.Field(min_length=1, max_length=_MAX_SUMMARIES)]


class Column(_Strict):
    """A column: its name, its type as its library calls it, and what can be done with it."""

    name: Text
    dtype: Text
    kind: Literal["number", "truth", "time", "text", "other"]


class Page(_Strict):
    """Rows of a table.

    Attributes:
        first: number of the first one, among those found.
        found: how many were found.
        rows: their cells; None where a value is missing.
        row_count: how many the table has.
        column_count: likewise, with those of its index.
        index_count: how many columns are its index.
        left: number of the first column here.
        columns: what they are.
    """

    first: Count
    found: Count
    rows: Annotated[tuple[tuple[Text | None, ...], ...], pydantic.Field(max_length=_MAX_ROWS)]
    row_count: Count
    column_count: Count
    index_count: Count
    left: Count
    columns: Annotated[tuple[Column, ...], pydantic.Field(max_length=_MAX_COLUMNS)]

    @pydantic.model_validator(mode="after")
    def _is_even(self) -> Page:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError
        return self


class Summary(_Strict):
    """What is in a column: see `guest.table_views`. `is_sampled` says that it is about so."""

    column: Count
    missing: Count = 0
    is_sampled: bool = False
    bins: Annotated[tuple[Count, ...], pydantic.Field(max_length=50)] = ()
    least: Text = ""
    most: Text = ""
    distinct: Count = 0
    top: Annotated[tuple[tuple[Text, Count], ...], pydantic.Field(max_length=10)] = ()


class Summaries(_Strict):
    """What is in columns."""

    summaries: Annotated[tuple[Summary, ...], pydantic.Field(max_length=_MAX_SUMMARIES)]


class _Problem(_Strict):
    problem: Text


class TableFile(_Strict):
    """A file that Python reads as a table.

    Attributes:
        handle: to look into it.
        is_cut: only its beginning was read.
        sheets: which a workbook has.
        notes: sentences on what was guessed of it, or left out.
    """

    handle: Annotated[str, pydantic.Field(pattern=r"^t[0-9]{1,12}$")]
    is_cut: bool
    sheets: Annotated[tuple[Text, ...], pydantic.Field(max_length=50)]
    notes: Annotated[tuple[Text, ...], pydantic.Field(max_length=10)] = ()


_TABLE_FILE: Final = pydantic.TypeAdapter(TableFile)
_ANSWER: Final[pydantic.TypeAdapter[_Problem | Page | Summaries]] = pydantic.TypeAdapter(
    _Problem | Page | Summaries
)


class Variable(_Strict):
    """A variable.

    Attributes:
        shape: how much is in it: rows and columns, or how long it is; empty if unknown.
        size_bytes: what it holds in memory; None if unknown.
        text: what it is; empty for tables and arrays.
        handle: of a table, to look into.
    """

    name: Text
    type: Text
    shape: Annotated[tuple[Count, ...], pydantic.Field(max_length=64)] = ()
    size_bytes: Count | None = None
    text: Text = ""
    handle: Annotated[str, pydantic.Field(pattern=r"^(t[0-9]{1,12})?$")] = ""


_VARIABLES: Final[pydantic.TypeAdapter[tuple[Variable, ...]]] = pydantic.TypeAdapter(
    Annotated[tuple[Variable, ...], pydantic.Field(max_length=_MAX_VARIABLES)]
)


def read_question(message: object) -> View | Columns:
    """Return what somebody wants to see, as JSON has it.

    Raises:
        BotError: it is no such thing.
    """
    is_view = isinstance(message, dict) and "summaries" not in message
    try:
        return (View if is_view else Columns).model_validate_json(json.dumps(message))
    except (pydantic.ValidationError, ValueError) as error:
        raise errors.BotError(variable_words.NOT_A_QUESTION) from error


@contextlib.asynccontextmanager
async def leased_kernel(
    hosts: host_ports.Hosts, key: values.SessionKey, person: requests.Person | None
) -> AsyncIterator[host_ports.Kernel]:
    """Lease the kernel of a session to look into it; one is started if there is none.

    Args:
        hosts: where it is.
        key: the session.
        person: whose kernel it is then; None leaves it to whom it belongs.

    Raises:
        BotError: there is none in time; the sentence says why.
    """
    waits: list[str] = []
    starter = "" if person is None else str((key.platform, key.workspace, person.id))
    async with hosts.lease(values.text(key), person=starter) as lease:
        try:
            async with asyncio.timeout(START_SECONDS):
                kernel = await lease.kernel(on_wait=waits.append)
        except TimeoutError as error:
            raise errors.BotError(
                variable_words.NO_ROOM if any(waits) else variable_words.STARTING
            ) from error
        yield kernel


async def look(
    hosts: host_ports.Hosts, kernel: host_ports.Kernel, handle: str, view: View | Columns
) -> Page | Summaries:
    """Let a kernel say what is in a table that it showed.

    Raises:
        BotError: it cannot; the sentence says why.
    """
    question = json.dumps(view.model_dump(mode="json"))
    code = kernel_calls.look_at_table(handle, question)
    answer = read_answer(_ANSWER, await run_for_json(hosts, kernel, code))
    if isinstance(answer, _Problem):
        raise errors.BotError(answer.problem)
    return answer


async def open_file(
    hosts: host_ports.Hosts, kernel: host_ports.Kernel, name: str, sheet: str
) -> TableFile:
    """Let a kernel read a file as a table.

    Raises:
        BotError: it cannot; the sentence says why.
    """
    code = kernel_calls.open_table(name, sheet)
    return read_answer(_TABLE_FILE, await run_for_json(hosts, kernel, code))


async def describe_variables(
    hosts: host_ports.Hosts, kernel: host_ports.Kernel
) -> tuple[Variable, ...]:
    """Let a kernel say what its variables are.

    Raises:
        BotError: it cannot; the sentence says why.
    """
    code = kernel_calls.describe_variables()
    return read_answer(_VARIABLES, await run_for_json(hosts, kernel, code))


async def run_for_json(hosts: host_ports.Hosts, kernel: host_ports.Kernel, code: str) -> str:
    """Return the JSON that a piece of the bot's own code shows.

    Raises:
        BotError: it failed, or showed nothing.
    """
    outputs: list[values.Output] = []
    finished = await cancellable_executions.run(
        hosts, kernel, code, show=outputs.append, seconds=_SECONDS, is_bot_code=True
    )
    last = outputs[-1] if outputs else None
    if finished.ending is not values.Ending.OK:
        reason = finished.reason
        if isinstance(last, values.Error):
            reason = reason or last.message or last.name
        raise errors.BotError(variable_words.table_unreadable(reason))
    if not isinstance(last, values.Json):
        raise TableGoneError
    return last.json


def read_answer(kind: pydantic.TypeAdapter[T], text: str) -> T:
    """Read what a kernel told.

    Raises:
        BotError: it is of another kind.
    """
    try:
        return kind.validate_json(_unquote(text))
    except (pydantic.ValidationError, ValueError, RecursionError) as error:
        raise errors.BotError(variable_words.UNREADABLE_ANSWER) from error


def _unquote(message: str) -> str:
    """Take the JSON out of the text in which it comes: so the way of displays leaves it alone."""
    text: Any = json.loads(message)
    if not isinstance(text, str):
        raise ValueError(type(text))
    return text
