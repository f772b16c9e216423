"""Approval of statements that may change data: a person sees each one whole before it runs.

Code asks through the channel of `input()`, so that its time limit is paused. The code may be
hostile, so only the exact statement that the person approved can run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

import pydantic

from interpreter_bot import errors, values
from interpreter_bot.sessions import approvals
from interpreter_bot.wording import tool_words

if TYPE_CHECKING:
    # Without data connections nothing of them is imported.
    from interpreter_bot.data_connections.connection_service import ConnectionService

_MAX_STATEMENT_CHARACTERS: Final = 20_000


class _StatementRequest(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    do: Literal["allow statement"]
    connection: str = pydantic.Field(max_length=100)
    sql: str
    parameters: dict[str, Any]


class StatementRequests:
    """Answers the requests of one turn's code to run statements."""

    def __init__(
        self, connections: ConnectionService, key: str, all_approvals: approvals.Approvals
    ) -> None:
        self._connections = connections
        self._key = key
        self._approvals = all_approvals

    async def answer(self, request: values.InputRequested) -> str | None:
        """Answer a statement request in JSON; return None if the request is of another kind."""
        try:
            statement = _StatementRequest.model_validate_json(request.tool_request)
        except pydantic.ValidationError:
            return None
        try:
            await self._allow(statement, request.number)
        except errors.BotError as error:
            return json.dumps({"error": str(error)})
        return "{}"

    async def _allow(self, statement: _StatementRequest, number: int) -> None:
        """Allow a statement to run once, if the person approves it.

        Raises:
            BotError: the person declines, or the connection forbids it.
        """
        self._connections.check_writing(self._key, statement.connection)
        parameter_lines = [
            f"-- :{name} = {value!a}" for name, value in statement.parameters.items()
        ]
        text = "\n".join(
            [tool_words.statement_heading(statement.connection), statement.sql, *parameter_lines]
        )
        if len(text) > _MAX_STATEMENT_CHARACTERS:
            raise errors.BotError(tool_words.STATEMENT_TOO_LONG)
        # If the person edited the statement, it is refused: the code did not ask for that one.
        answer = await self._approvals.obtain("statement", text, request_number=number)
        if answer is None or answer.edited is not None:
            refusal = tool_words.statement_refused(statement.connection)
            self._connections.note_refusal(self._key, statement.connection, statement.sql, refusal)
            raise errors.BotError(refusal)
        self._connections.turns.allow(
            self._key, statement.connection, statement.sql, statement.parameters
        )
