"""Read pages of a live kernel's tables for a person who browses them, and list its variables.

Requests to the kernel and its answers are JSON. The kernel may be hostile, so its answers are
validated, limited in size and sanitized here.
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

_MAX_RUN_SECONDS: Final = 30.0
MAX_START_SECONDS: Final = 20.0
"""How long a person who opens a table waits for Python to start."""
_MAX_ROWS: Final = 200
_MAX_COLUMNS: Final = 60
_MAX_FILTERS: Final = 20
_MAX_SUMMARIES: Final = 20
_MAX_VARIABLES: Final = 200
_MAX_SEARCH_CHARACTERS: Final = 200
_MAX_CELL_CHARACTERS: Final = 500


T = TypeVar("T")


def _sanitize_text(text: str) -> str:
    return safe_text.truncate(text, _MAX_CELL_CHARACTERS)


Count = Annotated[int, pydantic.Field(ge=0, le=10**15)]
Text = Annotated[str, pydantic.AfterValidator(_sanitize_text)]
SearchText = Annotated[str, pydantic.Field(max_length=_MAX_SEARCH_CHARACTERS)]
Operator = Literal["contains", "=", "≠", "<", "≤", ">", "≥", "missing", "present"]


class TableGoneError(errors.BotError):
    """Python no longer has this table. Run its code again to look at all of it."""


class PythonBusyError(errors.BotError):
    """Python is busy; it answers once that is over."""


class StrictModel(pydantic.BaseModel):
    """A model that converts no types and ignores other fields."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True, extra="ignore")


class PageRequest(StrictModel):
    """A request for a page of a table.

    Attributes:
        rows: index of the first row, among the matching rows, and number of rows.
        columns: index of the first column and number of columns; the table's index comes first.
        sort: index of a column, and whether its greatest value comes first.
        search: words, a number or a date that a row must have in any column.
        filters: each has the index of a column, an operator, and an operand.
    """

    rows: tuple[Count, Annotated[int, pydantic.Field(ge=1, le=_MAX_ROWS)]]
    columns: tuple[Count, Annotated[int, pydantic.Field(ge=1, le=_MAX_COLUMNS)]]
    sort: tuple[Count, bool] | None = None
    search: SearchText = ""
    filters: Annotated[
        tuple[tuple[Count, Operator, SearchText], ...], pydantic.Field(max_length=_MAX_FILTERS)
    ] = ()


class SummaryRequest(StrictModel):
    """A request for statistics of columns.

    Attributes:
        summaries: indexes of the columns.
    """

    summaries: Annotated[tuple[Count, ...], pydantic.Field(min_length=1, max_length=_MAX_SUMMARIES)]


class Column(StrictModel):
    """A column.

    Attributes:
        dtype: type of the column, as its library names it.
        kind: decides how the column is shown, sorted and filtered.
    """

    name: Text
    dtype: Text
    kind: Literal["number", "truth", "time", "text", "other"]


class Page(StrictModel):
    """Rows of a table.

    Attributes:
        first_row: index of the page's first row, among the matching rows.
        match_count: number of matching rows.
        rows: the cells of the page's rows; None if a value is missing.
        row_count: number of rows of the table.
        column_count: number of columns of the table, including its index.
        index_count: number of columns of the index.
        first_column: index of the page's leftmost column.
        columns: the columns of the page.
    """

    first_row: Count
    match_count: Count
    rows: Annotated[tuple[tuple[Text | None, ...], ...], pydantic.Field(max_length=_MAX_ROWS)]
    row_count: Count
    column_count: Count
    index_count: Count
    first_column: Count
    columns: Annotated[tuple[Column, ...], pydantic.Field(max_length=_MAX_COLUMNS)]

    @pydantic.model_validator(mode="after")
    def _check_row_lengths(self) -> Page:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError
        return self


class Summary(StrictModel):
    """Statistics of a column, as `guest.table_views` computes them; estimated if `is_sampled`."""

    column: Count
    missing: Count = 0
    is_sampled: bool = False
    bins: Annotated[tuple[Count, ...], pydantic.Field(max_length=50)] = ()
    minimum: Text = ""
    maximum: Text = ""
    distinct: Count = 0
    top: Annotated[tuple[tuple[Text, Count], ...], pydantic.Field(max_length=10)] = ()


class Summaries(StrictModel):
    """Statistics of several columns."""

    summaries: Annotated[tuple[Summary, ...], pydantic.Field(max_length=_MAX_SUMMARIES)]


class _Problem(StrictModel):
    problem: Text


class TableFile(StrictModel):
    """A file that Python reads as a table.

    Attributes:
        handle: for `read_table`.
        is_cut: whether only the file's beginning was read.
        sheets: names of the sheets, if the file is a workbook.
        notes: sentences about guesses and about omitted parts.
    """

    handle: Annotated[str, pydantic.Field(pattern=r"^t[0-9]{1,12}$")]
    is_cut: bool
    sheets: Annotated[tuple[Text, ...], pydantic.Field(max_length=50)]
    notes: Annotated[tuple[Text, ...], pydantic.Field(max_length=10)] = ()


_TABLE_FILE: Final = pydantic.TypeAdapter(TableFile)
_TABLE_ANSWER: Final[pydantic.TypeAdapter[_Problem | Page | Summaries]] = pydantic.TypeAdapter(
    _Problem | Page | Summaries
)


class Variable(StrictModel):
    """A variable.

    Attributes:
        shape: rows and columns, or length; empty if unknown.
        size_bytes: in memory; None if unknown.
        text: its value, shortened; empty for tables and arrays.
        handle: for `read_table`; empty if the variable is no table.
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


def parse_request(message: object) -> PageRequest | SummaryRequest:
    """Parse a request for a page or for summaries.

    Raises:
        BotError: the message is malformed.
    """
    is_page_request = isinstance(message, dict) and "summaries" not in message
    try:
        return (PageRequest if is_page_request else SummaryRequest).model_validate_json(
            json.dumps(message)
        )
    except (pydantic.ValidationError, ValueError) as error:
        raise errors.BotError(variable_words.NOT_A_QUESTION) from error


@contextlib.asynccontextmanager
async def lease_kernel(
    hosts: host_ports.Hosts, key: values.SessionKey, person: requests.Person | None
) -> AsyncIterator[host_ports.Kernel]:
    """Lease a session's kernel to read its data; start one if there is none.

    Args:
        person: owner of the kernel if it is started; None keeps the present owner.

    Raises:
        BotError: the kernel did not start in time; the sentence says why.
    """
    wait_sentences: list[str] = []
    owner = "" if person is None else str((key.platform, key.workspace, person.id))
    async with hosts.lease(values.format_key(key), person=owner) as lease:
        try:
            async with asyncio.timeout(MAX_START_SECONDS):
                kernel = await lease.kernel(on_wait=wait_sentences.append)
        except TimeoutError as error:
            raise errors.BotError(
                variable_words.ALL_SESSIONS_BUSY
                if any(wait_sentences)
                else variable_words.PYTHON_STARTING
            ) from error
        yield kernel


async def read_table(
    hosts: host_ports.Hosts,
    kernel: host_ports.Kernel,
    handle: str,
    request: PageRequest | SummaryRequest,
) -> Page | Summaries:
    """Read a page, or summaries, of a table that a kernel showed.

    Raises:
        BotError: the kernel cannot read it; the sentence says why.
    """
    request_json = json.dumps(request.model_dump(mode="json"))
    code = kernel_calls.look_at_table(handle, request_json)
    answer = parse_answer(_TABLE_ANSWER, await run_for_json(hosts, kernel, code))
    if isinstance(answer, _Problem):
        raise errors.BotError(answer.problem)
    return answer


async def open_table_file(
    hosts: host_ports.Hosts, kernel: host_ports.Kernel, name: str, sheet: str
) -> TableFile:
    """Let a kernel read a file as a table.

    Raises:
        BotError: the kernel cannot read it; the sentence says why.
    """
    code = kernel_calls.open_table(name, sheet)
    return parse_answer(_TABLE_FILE, await run_for_json(hosts, kernel, code))


async def describe_variables(
    hosts: host_ports.Hosts, kernel: host_ports.Kernel
) -> tuple[Variable, ...]:
    """Let a kernel describe its variables.

    Raises:
        BotError: the kernel cannot describe them; the sentence says why.
    """
    code = kernel_calls.describe_variables()
    return parse_answer(_VARIABLES, await run_for_json(hosts, kernel, code))


async def run_for_json(hosts: host_ports.Hosts, kernel: host_ports.Kernel, code: str) -> str:
    """Run the bot's own code in a kernel; return the JSON that the code shows.

    Raises:
        BotError: the code failed, or showed nothing.
    """
    outputs: list[values.Output] = []
    finished = await cancellable_executions.run(
        hosts, kernel, code, show=outputs.append, seconds=_MAX_RUN_SECONDS, is_bot_code=True
    )
    last_output = outputs[-1] if outputs else None
    if finished.ending is not values.Ending.OK:
        reason = finished.reason
        if isinstance(last_output, values.Error):
            reason = reason or last_output.message or last_output.name
        raise errors.BotError(variable_words.table_unreadable(reason))
    if not isinstance(last_output, values.Json):
        raise TableGoneError
    return last_output.json


def parse_answer(adapter: pydantic.TypeAdapter[T], text: str) -> T:
    """Validate a kernel's answer.

    Raises:
        BotError: the answer is malformed.
    """
    try:
        return adapter.validate_json(_unquote(text))
    except (pydantic.ValidationError, ValueError, RecursionError) as error:
        raise errors.BotError(variable_words.UNREADABLE_ANSWER) from error


def _unquote(message: str) -> str:
    """Decode the JSON string of a display to the JSON text of the answer.

    The answer is sent as a string, as displays of JSON are reformatted.
    """
    text: Any = json.loads(message)
    if not isinstance(text, str):
        raise ValueError(type(text))
    return text
