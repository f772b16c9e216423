"""Approvals of the outside requests of code, by its person: of one request, or for the session."""

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

_REFUSAL_REPEAT_SECONDS: Final = 60.0
_MAX_ANSWERS: Final = 1000
_MAX_SHOWN_BYTES: Final = 200
_MAX_TARGET_CHARACTERS: Final = 1000


class Approvals:
    """The approvals and refusals of people for one kernel's requests.

    Attributes:
        ask: asks the person who runs the code, and pauses the code's time limit; None if nobody
            can be asked.
    """

    def __init__(self, ask: Ask | None = None, *, find_grants: FindGrants | None = None) -> None:
        """Begin without approvals; `find_grants` finds those of earlier processes."""
        self.ask = ask
        self._find_grants = find_grants
        self._grants: set[str] = set()
        self._recent_refusals: dict[str, tuple[float, str]] = {}
        # If a client opens ten connections, people are asked once.
        self._lock = asyncio.Lock()

    def list_grants(self) -> tuple[str, ...]:
        """Return the approvals that are valid while the kernel lives, for display."""
        return tuple(sorted(self._grants))

    async def require(
        self, contact: code_activity.Contact, *, target: str, body_beginning: bytes
    ) -> None:
        """Return once a person has approved a request.

        `target` is its path and query, `body_beginning` the beginning of its body.

        Raises:
            Refusal: the person declined, or nobody could be asked.
        """
        grant = _make_grant(contact)
        if grant in self._grants:
            # Without the lock, which is held while a person is asked about another request.
            return
        async with self._lock:
            if grant in self._grants:
                return
            refused_at, sentence = self._recent_refusals.get(grant, (-_REFUSAL_REPEAT_SECONDS, ""))
            if time.monotonic() - refused_at < _REFUSAL_REPEAT_SECONDS:
                raise policies.Refusal(sentence)
            if grant in await self._find_earlier_grants(contact):
                answer = values.FOR_SESSION
            else:
                answer = await self._ask_person(contact, target, body_beginning)
            if answer == values.FOR_SESSION and len(self._grants) < _MAX_ANSWERS:
                self._grants.add(grant)
            elif answer not in (values.YES, values.FOR_SESSION):
                raise self._remember_refusal(
                    contact, network_words.declined(contact.method, contact.host)
                )

    async def _find_earlier_grants(self, contact: code_activity.Contact) -> Collection[str]:
        if self._find_grants is not None:
            try:
                return await self._find_grants(contact.key, contact.kernel_id)
            except errors.BotError:
                _log.exception("earlier approvals cannot be read")
        return ()

    def _remember_refusal(self, contact: code_activity.Contact, sentence: str) -> policies.Refusal:
        """Return a refusal, which is repeated for a minute, because clients may retry at once."""
        if len(self._recent_refusals) >= _MAX_ANSWERS:
            self._recent_refusals.clear()
        self._recent_refusals[_make_grant(contact)] = time.monotonic(), sentence
        return policies.Refusal(sentence)

    async def _ask_person(
        self, contact: code_activity.Contact, target: str, body_beginning: bytes
    ) -> str:
        nobody_to_ask = network_words.nobody_to_ask(contact.method, contact.host)
        if self.ask is None:
            raise policies.Refusal(nobody_to_ask)
        if (hidden_count := len(target) - _MAX_TARGET_CHARACTERS) > 0:
            target = target[:_MAX_TARGET_CHARACTERS] + network_words.more_characters(hidden_count)
        question = network_words.approval_question(
            contact.method,
            contact.host,
            contact.port,
            safe_text.sanitize(target),
            body_beginning[:_MAX_SHOWN_BYTES],
        )
        request = values.InputRequested(
            question, False, subject="request", grant=_make_grant(contact)
        )
        try:
            return await self.ask(request)
        except errors.KernelError as error:
            raise policies.Refusal(nobody_to_ask) from error
        except errors.BotError as error:
            raise self._remember_refusal(
                contact, network_words.unanswered(contact.method, contact.host)
            ) from error


def _make_grant(contact: code_activity.Contact) -> str:
    """Return the text that stands for what a person approves."""
    return f"{contact.method} {contact.host}:{contact.port}"
