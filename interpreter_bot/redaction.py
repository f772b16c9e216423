"""Removes secrets from the text of logs, answers, errors and messages to code.

One secret may contain another, so the longest is replaced first; otherwise a part of it would stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

REDACTED: Final = "[redacted]"
# Shorter ones would redact half of every line.
_MIN_SECRET_CHARACTERS: Final = 4


class Redactor:
    """Removes the same secrets from many texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Put the secrets in order.

        Args:
            secrets: tokens, keys, passwords, in the form in which they would appear in the text.
                Those under four characters are ignored.
        """
        usable = {secret for secret in secrets if len(secret) >= _MIN_SECRET_CHARACTERS}
        self._secrets = sorted(usable, key=len, reverse=True)

    def redact(self, text: str) -> str:
        """Return a text with `REDACTED` in place of each secret; each costs one pass."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, REDACTED)
        return text


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return one text with `REDACTED` in place of each secret; see `Redactor`."""
    return Redactor(secrets).redact(text)
