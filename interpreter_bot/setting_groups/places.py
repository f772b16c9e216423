"""Settings of places, and of what is remembered there."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import pydantic

from interpreter_bot.setting_groups import fields

MAX_INSTRUCTION_CHARACTERS: Final = 3_000
"""Of the instructions of one place; Slack's forms take no more."""

_PLACE_PATTERN: Final = re.compile(r"[a-z]+(/[^/\s]+){0,2}")


def _check_places(places: tuple[str, ...]) -> tuple[str, ...]:
    for place in places:
        if not _PLACE_PATTERN.fullmatch(place):
            raise ValueError(f"{place!r} is no place, such as slack/T024BE7LD/C0123456789")
    return places


class Place(fields.Group):
    """What holds in some places. Nobody can change it there, except to a stricter approval; what is
    left out here can be chosen there."""

    places: Annotated[tuple[str, ...], pydantic.AfterValidator(_check_places)] = ()
    """Where: `slack`, `slack/T024BE7LD`, `slack/T024BE7LD/C0123456789`, `discord/GUILD/CHANNEL`,
    `web`, `console`. Empty means everywhere."""
    instructions: Annotated[str, pydantic.Field(max_length=MAX_INSTRUCTION_CHARACTERS)] = ""
    """Text that models are told there, besides the instructions of wider places."""
    model: str = ""
    """The model that is used there if a conversation or a person has not chosen another."""
    approval: Literal["", "never", "plan", "every"] = ""
    """Whether a person approves the model's code before it runs: `never`, once per answer (`plan`),
    or `every` time. The strictest of all that is set or chosen for a place counts."""
    threads: bool | None = None
    """`true`, as by default: answer a mention in a new thread. `false`: by a reply in the channel.
    Only for Discord."""
    follow_threads: bool | None = None
    """`true`, as by default: answer in the bot's threads without a mention while only one person
    writes there; on Discord this needs the message content intent. `false`: answer only mentions
    there."""
    show_code: bool | None = None
    """Keep code visible after it has run."""

    @property
    def choices(self) -> dict[str, Any]:
        """What is chosen, by the names of choices."""
        return self.model_dump(exclude={"places"}, exclude_defaults=True)


class Memory(fields.Group):
    """Notes that people confirm, and that models are told in the place they belong to."""

    notes: Annotated[int, pydantic.Field(ge=0, le=1000)] = 50
    """Most notes of one place. 0 switches the memory off."""
