"""Words for what a turn waits for. Pure."""

from __future__ import annotations


def sentence(text: str, share: float | None) -> str:
    """Say in one line what is waited for, and how far it is.

    Args:
        text: what it is; where it is empty, nothing is said.
        share: from 0 to 1; None where nobody can tell.
    """
    return f"{share:.0%}: {text}" if text and share is not None else text
