"""Approval of what code wants outside, by the person whose code it is: once, or for a session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from interpreter_bot import code_activity, errors, values
from interpreter_bot.egress import policies
from interpreter_bot.text import safe_text

Ask: TypeAlias = Callable[[values.InputRequested], Awaitable[str]]

ONCE: Final = "once"
SESSION: Final = "session"
NO: Final = "no"
"""Answers."""

_NO_SECONDS: Final = 60.0
_MOST_KEPT: Final = 1000
_SHOWN_BYTES: Final = 200
_TARGET_CHARACTERS: Final = 1000
_QUESTION: Final = (
    "Code wants to send {method} to {host}, port {port}: {target}{first} "
    "Let it? Answer once, session (for everybody here, as long as its Python lives) or no: "
)
_CUT: Final = "… (and {count} characters more)"
_FIRST: Final = " It begins with {first!a}."
_REFUSED: Final = "{method} on {host} was not allowed."
_NOBODY: Final = (
    "Somebody has to let code use {method} on {host}, and nobody could be asked. "
    "Try again while code runs in a conversation."
)
_UNANSWERED: Final = "Somebody has to let code use {method} on {host}, and nobody answered."


class Approvals:
    """What the people of one kernel's session have allowed and refused, as long as it lives.

    Attributes:
        ask: asks whoever runs the code, whose time stands still; None if nobody can be.
    """

    def __init__(self, ask: Ask | None = None) -> None:
        """Allow nothing yet; see the class."""
        self.ask = ask
        self._allowed: set[tuple[str, int, str]] = set()
        self._refused: dict[tuple[str, int, str], tuple[float, str]] = {}
        # A client that opens ten connections is asked about once.
        self._order = asyncio.Lock()

    def lasting(self) -> tuple[str, ...]:
        """Return what is allowed as long as the kernel lives, for display."""
        return tuple(f"{method} {host}:{port}" for host, port, method in sorted(self._allowed))

    async def require(self, contact: code_activity.Contact, *, target: str, first: bytes) -> None:
        """Return once a request may be sent.

        Args:
            contact: of it, with host, port and method.
            target: its path, and what follows a question mark.
            first: what its body begins with.

        Raises:
            Refusal: it may not.
        """
        what = contact.host, contact.port, contact.method
        async with self._order:
            if what in self._allowed:
                return
            at, sentence = self._refused.get(what, (-_NO_SECONDS, ""))
            if time.monotonic() - at < _NO_SECONDS:
                raise policies.Refusal(sentence)
            answer = await self._answer(contact, target, first)
            if answer == SESSION and len(self._allowed) < _MOST_KEPT:
                self._allowed.add(what)
            elif answer not in (ONCE, SESSION, values.YES):
                raise self._refusal(contact, _REFUSED)

    def _refusal(self, contact: code_activity.Contact, sentence: str) -> policies.Refusal:
        """Refuse now, and for a while: clients try again, and the answer would be the same."""
        if len(self._refused) >= _MOST_KEPT:
            self._refused.clear()
        sentence = sentence.format(method=contact.method, host=contact.host)
        self._refused[contact.host, contact.port, contact.method] = time.monotonic(), sentence
        return policies.Refusal(sentence)

    async def _answer(self, contact: code_activity.Contact, target: str, first: bytes) -> str:
        nobody = _NOBODY.format(method=contact.method, host=contact.host)
        if self.ask is None:
            raise policies.Refusal(nobody)
        if (more := len(target) - _TARGET_CHARACTERS) > 0:
            target = target[:_TARGET_CHARACTERS] + _CUT.format(count=more)
        begins = _FIRST.format(first=first[:_SHOWN_BYTES]) if first else ""
        question = _QUESTION.format(
            method=contact.method,
            host=contact.host,
            port=contact.port,
            target=safe_text.harmless(target),
            first=f".{begins}" if begins else ".",
        )
        asked = values.InputRequested(question, False, choices=(ONCE, SESSION, NO))
        try:
            return (await self.ask(asked)).strip().lower()
        except errors.KernelError as error:
            raise policies.Refusal(nobody) from error
        except errors.BotError as error:
            raise self._refusal(contact, _UNANSWERED) from error
