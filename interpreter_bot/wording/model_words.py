"""The language model: which one answers, that none does, and why."""

from __future__ import annotations

from typing import Final

NONE: Final = "No model is set up. You can still run your own code with /py CODE."


def now_used(title: str) -> str:
    return f"This conversation now uses {title}."
