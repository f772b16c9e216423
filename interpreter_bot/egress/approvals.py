"""Approvals of outside requests of code by its person: for one request, or for the session."""

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
"""Finds approvals that outlive a process, by session key and kernel id."""

_REFUSAL_SECONDS: Final = 60.0
_MAX_ENTRIES: Final = 1000
_MAX_SHOWN_BYTES: Final = 200
_MAX_TARGET_CHARACTERS: Final = 1000


class Approvals:
    """The approvals and refusals of people for one kernel's requests.

    Attributes:
        ask: asks the person who runs the code, whose time limit pauses; None if nobody can be
            asked.
    """

    def __init__(self, ask: Ask | None = None, *, find_grants: FindGrants | None = None) -> None:
        """Begin without approvals; `find_grants` finds those that another process got."""
        self.ask = ask
        self._find_grants = find_grants
        self._allowed: set[str] = set()
        self._refused: dict[str, tuple[float, str]] = {}
        # Ten connections of a client cause one question.
        self._lock = asyncio.Lock()

    def list_grants(self) -> tuple[str, ...]:
        """Return the approvals that are valid while the kernel lives, for display."""
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
                answer = await self._ask_person(contact, target, first)
            if answer == values.FOR_SESSION and len(self._allowed) < _MAX_ENTRIES:
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
        """Return a refusal, and repeat it for a minute, as clients try again at once."""
        if len(self._refused) >= _MAX_ENTRIES:
            self._refused.clear()
        self._refused[_grant(contact)] = time.monotonic(), sentence
        return policies.Refusal(sentence)

    async def _ask_person(self, contact: code_activity.Contact, target: str, first: bytes) -> str:
        nobody_to_ask = network_words.nobody_to_ask(contact.method, contact.host)
        if self.ask is None:
            raise policies.Refusal(nobody_to_ask)
        if (cut_count := len(target) - _MAX_TARGET_CHARACTERS) > 0:
            target = target[:_MAX_TARGET_CHARACTERS] + network_words.more_characters(cut_count)
        question = network_words.approval_question(
            contact.method,
            contact.host,
            contact.port,
            safe_text.sanitize(target),
            first[:_MAX_SHOWN_BYTES],
        )
        request = values.InputRequested(question, False, subject="request", grant=_grant(contact))
        try:
            return await self.ask(request)
        except errors.KernelError as error:
            raise policies.Refusal(nobody_to_ask) from error
        except errors.BotError as error:
            raise self._refusal(
                contact, network_words.unanswered(contact.method, contact.host)
            ) from error


def _grant(contact: code_activity.Contact) -> str:
    return f"{contact.method} {contact.host}:{contact.port}"
