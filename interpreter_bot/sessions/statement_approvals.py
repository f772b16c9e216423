"""Statements that may change data: shown to a person whole, and run only as they were shown.

Code asks in the channel of `input()`, so that it waits with its clock stopped. It is hostile: what
it says it wants to run is what is noted, and nothing else runs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

import pydantic

from interpreter_bot import errors
from interpreter_bot.sessions import turn_streams
from interpreter_bot.wording import tool_words

if TYPE_CHECKING:
    # Who has no data imports nothing of queries.
    from interpreter_bot.data_connections.connection_service import ConnectionService
    from interpreter_bot.sessions import session_dependencies

_CHARACTERS: Final = 20_000


class _Wish(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    do: Literal["allow statement"]
    connection: str = pydantic.Field(max_length=100)
    sql: str
    parameters: dict[str, Any]


class StatementApprovals:
    """Asks whoever the code of one turn runs for."""

    def __init__(
        self, connections: ConnectionService, key: str, stream: turn_streams.TurnStream
    ) -> None:
        """Ask nothing yet.

        Args:
            connections: run what is allowed.
            key: of the session.
            stream: asks the person.
        """
        self._connections = connections
        self._key = key
        self._stream = stream

    async def answer(self, told: str) -> str | None:
        """Answer what code asks, as JSON; None if it asks for something else.

        Args:
            told: what it asks, hostile.
        """
        try:
            wish = _Wish.model_validate_json(told)
        except pydantic.ValidationError:
            return None
        try:
            await self._allow(wish)
        except errors.BotError as error:
            return json.dumps({"error": str(error)})
        return "{}"

    async def _allow(self, wish: _Wish) -> None:
        """Let a statement run once, if the person says so.

        Raises:
            BotError: they do not, or it cannot run at all.
        """
        self._connections.check_writing(self._key, wish.connection)
        values = [f"-- :{name} = {value!a}" for name, value in wish.parameters.items()]
        shown = "\n".join([tool_words.statement(wish.connection), wish.sql, *values])
        if len(shown) > _CHARACTERS:
            raise errors.BotError(tool_words.STATEMENT_TOO_LONG)
        # One that was edited is another statement, which nobody has asked for.
        if await self._stream.approve(shown) != shown:
            refusal = tool_words.statement_refused(wish.connection)
            self._connections.note_refusal(self._key, wish.connection, wish.sql, refusal)
            raise errors.BotError(refusal)
        self._connections.turns.allow(self._key, wish.connection, wish.sql, wish.parameters)


def of_turn(
    services: session_dependencies.SessionDependencies, key: str, stream: turn_streams.TurnStream
) -> StatementApprovals | None:
    """Return what answers the code of a turn; None where there is no data."""
    if services.connections is None:
        return None
    return StatementApprovals(services.connections, key, stream)
