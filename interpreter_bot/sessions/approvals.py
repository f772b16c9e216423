"""What people let the code of one turn do: this once, or as long as the session's Python lives."""

from __future__ import annotations

from typing import Final

from interpreter_bot import events
from interpreter_bot.sessions import requests, turn_streams
from interpreter_bot.store import records, turn_questions

_SCOPES: Final = (events.FOR_SESSION,)


class Approvals:
    """Asks for what one turn wants to do, unless it was granted before."""

    def __init__(
        self,
        request: requests.Request,
        stream: turn_streams.TurnStream,
        grants: turn_questions.Grants,
        session_id: int,
    ) -> None:
        """Ask nothing yet.

        Args:
            request: that the turn is for.
            stream: of the turn, asks its people.
            grants: of all sessions.
            session_id: of the turn.
        """
        self._person = request.person.id
        self._stream = stream
        self._grants = grants
        self._session_id = session_id

    async def require(
        self,
        subject: events.Subject,
        text: str,
        *,
        number: int = 0,
        kernel_id: str = "",
        name: str = "",
        digest: str = "",
        is_personal: bool = False,
    ) -> str | None:
        """Return what may run: the text, or what a person wrote instead; None if nothing may.

        Args:
            subject: what it is.
            text: all of it.
            number: of what running code asked for; 0 if it is the next code.
            kernel_id: of the kernel for whose life it can be granted.
            name: of what can be granted, for lists.
            digest: of all that a grant is for; without it, it is asked for each time.
            is_personal: see `events.ApprovalQuestion`.

        Raises:
            BotError: nobody could be asked, or a grant cannot be kept.
        """
        grant = records.Grant(person=self._person, subject=subject, name=name, digest=digest)
        if digest and grant in await self._grants.of(self._session_id, kernel_id):
            return text
        answer = await self._stream.ask_approval(
            subject,
            text,
            number=number,
            choices=_SCOPES if digest else (),
            is_personal=is_personal,
        )
        if isinstance(answer, events.Declined):
            return None
        if digest and answer.scope == events.FOR_SESSION:
            await self._grants.add(self._session_id, kernel_id, grant)
        return text if answer.edited is None else answer.edited
