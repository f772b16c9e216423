"""The bot as a library: why it cannot be opened, or answer."""

from __future__ import annotations

from typing import Final

_OR_RUN_SETUP: Final = "or run `interpreter-bot setup`"
NOT_OPEN: Final = "It is not open: use it in a `with` block, or call open()."
NO_MODEL: Final = (
    "There is no model to ask. Pass model and api_key, set OPENAI_API_KEY or ANTHROPIC_API_KEY, "
    f"{_OR_RUN_SETUP}. `run` needs no model."
)

NO_TEXT: Final = "ask_person has to return a text, or None to decline."
ASK_PERSON_FAILED: Final = "The program that was to answer failed."


def no_key(model: str, provider: str) -> str:
    return (
        f"There is no key for {model}. Pass api_key, or base_url for a server that needs none; set "
        f"{provider}_API_KEY; {_OR_RUN_SETUP}."
    )
