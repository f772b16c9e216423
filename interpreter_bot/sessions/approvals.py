"""Approvals for the code of one turn: once, or for the life of the session's Python."""

from __future__ import annotations

import hashlib
from typing import Final

from interpreter_bot import events, values
from interpreter_bot.sessions import turn_streams
from interpreter_bot.store import databases, records, turn_questions

_SCOPES: Final = (values.FOR_SESSION,)


class Approvals:
    """Asks for approval, unless it was granted before."""

    def __init__(
        self,
        stream: turn_streams.TurnStream,
        grants: turn_questions.Grants,
        session_id: int,
    ) -> None:
        self._stream = stream
        self._grants = grants
        self._session_id = session_id

    async def obtain(
        self,
        subject: events.Subject,
        text: str,
        *,
        request_number: int = 0,
        kernel_id: str = "",
        grant: records.Grant | None = None,
        is_personal: bool = False,
        facts: str = "",
    ) -> events.Approved | None:
        """Return a person's approval, given now or before; None if they declined.

        Args:
            request_number: of the running code's request; 0 for code that is to run next.
            kernel_id: of the kernel for whose life it can be granted.
            grant: the grant that covers the action; None if each such action needs approval.

        Raises:
            BotError: nobody could be asked, or a grant could not be stored.
        """
        if grant is not None and grant in await self._grants.list_for_kernel(
            self._session_id, kernel_id
        ):
            return events.Approved(scope=values.FOR_SESSION)
        answer = await self._stream.ask_approval(
            subject,
            text,
            number=request_number,
            choices=() if grant is None else _SCOPES,
            is_personal=is_personal,
            facts=facts,
        )
        if isinstance(answer, events.Declined):
            return None
        if grant is not None and answer.scope == values.FOR_SESSION:
            await self._grants.add(self._session_id, kernel_id, grant)
        return answer

    async def answer_bot_action(
        self, subject: events.Subject, request: values.InputRequested, kernel_id: str
    ) -> str:
        """Return a person's answer to code that asks the bot to act, as `values` spells it.

        Raises:
            BotError: see `obtain`.
        """
        grant = None
        if request.grant:
            digest = hashlib.sha256(request.grant.encode()).hexdigest()
            # It covers everybody, as the bot cannot tell whose code sends a request.
            grant = records.Grant(person="", subject=subject, name=request.grant, digest=digest)
        answer = await self.obtain(
            subject,
            request.prompt,
            request_number=request.number,
            kernel_id=kernel_id,
            grant=grant,
        )
        return values.NO if answer is None else answer.scope or values.YES


async def granted_requests(
    database: databases.Database, key: str, kernel_id: str
) -> frozenset[str]:
    """Return the network requests that were approved for a session while it has this kernel."""
    session = await database.sessions.find(values.parse_key(key))
    grants = () if session is None else await database.grants.list_for_kernel(session.id, kernel_id)
    return frozenset(grant.name for grant in grants if grant.subject == "request")
