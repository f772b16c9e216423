"""The language model: which one answers, that none does, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NONE: Final = "No model is set up. You can still run your own code with /py CODE."
CONFIGURED: Final = (
    "The models are set where the bot runs, in its environment or its configuration file. Change "
    "them there."
)
ALREADY_CHOSEN: Final = "A model was chosen already. Run `interpreter-bot setup` to change it."


def now_used(title: str) -> str:
    return f"This conversation now uses {title}."


def ambiguous(name: str, titles: Sequence[str]) -> str:
    return f"Several models are called {name}: {'; '.join(titles)}."


def unknown(name: str, titles: Sequence[str]) -> str:
    return f"There is no model {name}. There are: {'; '.join(titles) or 'none'}."
