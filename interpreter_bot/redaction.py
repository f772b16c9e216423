"""Redaction: text without the secrets in it, for logs, answers, errors and what code is told.

Secrets may lie within each other: the longest goes first, or the rest of it would stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

REDACTED: Final = "[redacted]"
# Shorter ones would redact half of every line.
_SHORTEST_SECRET: Final = 4


def redact(text: str, secrets: Iterable[str], *, mark: str = REDACTED) -> str:
    """Return a text with a mark in place of each secret.

    Args:
        text: of any length; each secret costs one pass.
        secrets: tokens, keys, passwords, in the form in which they would stand in the text. Those
            under four characters are passed over.
        mark: what stands in their places.
    """
    known = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, mark)
    return text
