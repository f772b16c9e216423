"""Approval of code's requests to the outside by its person: once, or for the session."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

from interpreter_bot import code_activity, errors, values
from interpreter_bot.egress import policies
from interpreter_bot.text import safe_text
from interpreter_bot.wording import network_words

_log = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[values.InputRequested], Awaitable[str]]

FindGrants: TypeAlias = Callable[[str, str], Awaitable[Collection[str]]]
"""Finds what people approved for a session while it has this kernel, by its key and the id."""

_REFUSAL_SECONDS: Final = 60.0
_MAX_KEPT: Final = 1000
_MAX_SHOWN_BYTES: Final = 200
_MAX_TARGET_CHARACTERS: Final = 1000


class Approvals:
    """The approvals and refusals of people for one kernel's requests.

    Attributes:
        ask: asks the person who runs the code, whose clock is paused; None if nobody can be asked.
    """

    def __init__(self, ask: Ask | None = None, *, find_grants: FindGrants | None = None) -> None:
        """Begin with none; `find_grants` knows those that another process was given."""
        self.ask = ask
        self._find_grants = find_grants
        self._allowed: set[str] = set()
        self._refused: dict[str, tuple[float, str]] = {}
        # A client that opens ten connections is asked about once.
        self._lock = asyncio.Lock()

    def list_grants(self) -> tuple[str, ...]:
        """Return the approvals that last as long as the kernel, for display."""
        return tuple(sorted(self._allowed))

    async def require(self, contact: code_activity.Contact, *, target: str, first: bytes) -> None:
        """Return once a person has approved a request.

        `target` is its path and query, `first` the beginning of its body.

        Raises:
            Refusal: the person declined, or nobody could be asked.
        """
        grant = _grant(contact)
        async with self._lock:
            if grant in self._allowed:
                return
            at, sentence = self._refused.get(grant, (-_REFUSAL_SECONDS, ""))
            if time.monotonic() - at < _REFUSAL_SECONDS:
                raise policies.Refusal(sentence)
            if grant in await self._earlier_grants(contact):
                answer = values.FOR_SESSION
            else:
                answer = await self._answer(contact, target, first)
            if answer == values.FOR_SESSION and len(self._allowed) < _MAX_KEPT:
                self._allowed.add(grant)
            elif answer not in (values.YES, values.FOR_SESSION):
                raise self._refusal(contact, network_words.declined(contact.method, contact.host))

    async def _earlier_grants(self, contact: code_activity.Contact) -> Collection[str]:
        if self._find_grants is not None:
            try:
                return await self._find_grants(contact.key, contact.kernel_id)
            except errors.BotError:
                _log.exception("it is unknown what people approved before")
        return ()

    def _refusal(self, contact: code_activity.Contact, sentence: str) -> policies.Refusal:
        """Refuse now and for a minute, because clients try again at once."""
        if len(self._refused) >= _MAX_KEPT:
            self._refused.clear()
        self._refused[_grant(contact)] = time.monotonic(), sentence
        return policies.Refusal(sentence)

    async def _answer(self, contact: code_activity.Contact, target: str, first: bytes) -> str:
        nobody = network_words.nobody_to_ask(contact.method, contact.host)
        if self.ask is None:
            raise policies.Refusal(nobody)
        if (cut_count := len(target) - _MAX_TARGET_CHARACTERS) > 0:
            target = target[:_MAX_TARGET_CHARACTERS] + network_words.cut(cut_count)
        question = network_words.question(
            contact.method,
            contact.host,
            contact.port,
            safe_text.harmless(target),
            first[:_MAX_SHOWN_BYTES],
        )
        request = values.InputRequested(question, False, subject="request", grant=_grant(contact))
        try:
            return await self.ask(request)
        except errors.KernelError as error:
            raise policies.Refusal(nobody) from error
        except errors.BotError as error:
            raise self._refusal(
                contact, network_words.unanswered(contact.method, contact.host)
            ) from error


def _grant(contact: code_activity.Contact) -> str:
    return f"{contact.method} {contact.host}:{contact.port}"
