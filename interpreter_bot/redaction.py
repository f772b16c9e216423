"""Redaction: text without the secrets in it, for logs, answers, errors and what code is told.

Secrets may lie within each other: the longest goes first, or the rest of it would stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

REDACTED: Final = "[redacted]"
# Shorter ones would redact half of every line.
_SHORTEST_SECRET: Final = 4


class Redactor:
    """Takes the same secrets out of many texts."""

    def __init__(self, secrets: Iterable[str], *, mark: str = REDACTED) -> None:
        """Put the secrets in order.

        Args:
            secrets: tokens, keys, passwords, in the form in which they would stand in the text.
                Those under four characters are passed over.
            mark: what stands in their places.
        """
        usable = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        self._secrets = sorted(usable, key=len, reverse=True)
        self._mark = mark

    def redact(self, text: str) -> str:
        """Return a text with a mark in place of each secret; each costs one pass."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, self._mark)
        return text


def redact(text: str, secrets: Iterable[str], *, mark: str = REDACTED) -> str:
    """Return one text with a mark in place of each secret; see `Redactor`."""
    return Redactor(secrets, mark=mark).redact(text)
