"""What the operator decides about conversations and the memory of them."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from interpreter_bot.setting_groups import fields


class Sessions(fields.Group):
    """Conversations: how many at once, and how they end."""

    concurrent_turns: Annotated[int, pydantic.Field(ge=1)] = 32
    """Turns at once, of all conversations; further ones wait, fairly between people."""
    waiting_requests: Annotated[int, pydantic.Field(ge=1)] = 20
    """Requests that may wait in one conversation; further ones are refused."""
    message_characters: Annotated[int, pydantic.Field(ge=1)] = 100_000
    """The longest message; what is longer belongs into a file."""
    approval: Literal["never", "plan", "every"] = "never"
    """Whether a person is asked before the model's code runs: not at all, once per answer, every
    time. It holds on all platforms; servers, channels and people can choose a stricter one."""
    warning_seconds: Annotated[float, pydantic.Field(ge=0)] = 5 * 60.0
    """How long before an idle kernel is let go people hear of it; 0 means that they do not."""
    closing_seconds: Annotated[float, pydantic.Field(ge=0)] = 20.0
    """How long turns may go on when the bot is told to end; then they are stopped."""


class Store(fields.Group):
    """What is remembered, and where."""

    url: Annotated[str, pydantic.Field(repr=False)] = ""
    """`postgresql://…` or `sqlite:////absolute/file.db`; empty means a file in `paths.data`."""
