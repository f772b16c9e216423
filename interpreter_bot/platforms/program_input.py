"""What is wrong with what a program sent, in words. Shared by the platforms of programs."""

from __future__ import annotations

from typing import Final

import pydantic

from interpreter_bot.text import quantities

_MAX_FAULTS: Final = 5
_NAME_CHARACTERS: Final = 60


def faults(error: pydantic.ValidationError) -> list[str]:
    """Return a phrase for each of the first faults."""
    # What was given is not repeated: it may be anything, of any length.
    details = error.errors(include_url=False, include_input=False, include_context=False)
    return [
        ": ".join(filter(None, (_name(fault["loc"]), fault["msg"])))
        for fault in details[:_MAX_FAULTS]
    ]


def _name(location: tuple[int | str, ...]) -> str:
    return quantities.one_line(".".join(map(str, location)), _NAME_CHARACTERS)
