"""Buttons that work after a restart: their meaning is in their ids, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final, Protocol

import discord

from interpreter_bot.platforms.discord import message_layout
from interpreter_bot.platforms.rendering import past_code
from interpreter_bot.wording import question_words, session_words

_LOOKS: Final = {
    "stop": ("Stop", discord.ButtonStyle.danger),
    "code": (past_code.BUTTON, discord.ButtonStyle.secondary),
    "again": ("Re-run", discord.ButtonStyle.secondary),
    "notebook": ("Notebook", discord.ButtonStyle.secondary),
    "page": (session_words.OPEN_ON_PAGE, discord.ButtonStyle.secondary),
    "csv": ("All as CSV", discord.ButtonStyle.secondary),
    "answer": ("Answer", discord.ButtonStyle.primary),
    "run": ("Run", discord.ButtonStyle.success),
    "change": ("Edit", discord.ButtonStyle.secondary),
    "refuse": ("Refuse", discord.ButtonStyle.danger),
    "once": ("Once", discord.ButtonStyle.primary),
    "session": (question_words.FOR_SESSION, discord.ButtonStyle.secondary),
    "install": ("Install and run again", discord.ButtonStyle.primary),
    "yes": ("Yes", discord.ButtonStyle.primary),
    "no": ("No", discord.ButtonStyle.danger),
}
_TEMPLATE: Final = r"ib:(?P<verb>[a-z]+):(?P<number>[0-9]{1,19}):(?P<owner>[0-9]{1,20})"
_ID: Final = re.compile(_TEMPLATE)


class ButtonHandler(Protocol):
    """Runs the actions of buttons."""

    async def press(
        self, interaction: discord.Interaction[Any], button: message_layout.Button
    ) -> None:
        """Handle a press of a button."""


class PressableClient(Protocol):
    """A client that knows the handler of buttons."""

    presser: ButtonHandler


class Action(discord.ui.DynamicItem[discord.ui.Button[Any]], template=_TEMPLATE):
    """One button of the bot."""

    def __init__(self, button: message_layout.Button) -> None:
        # Another version may have buttons that are unknown here.
        label, style = _LOOKS.get(button.verb, (button.verb, discord.ButtonStyle.secondary))
        custom_id = f"ib:{button.verb}:{button.number}:{button.owner}"
        label = button.label or label
        super().__init__(discord.ui.Button(label=label, style=style, custom_id=custom_id))
        self._button = button

    @classmethod
    async def from_custom_id(
        cls,
        interaction: discord.Interaction[Any],
        item: discord.ui.Item[Any],
        match: re.Match[str],
        /,
    ) -> Action:
        """Create it from the id that came back."""
        return cls(message_layout.Button(match["verb"], int(match["number"]), int(match["owner"])))

    async def callback(self, interaction: discord.Interaction[Any]) -> None:
        """Run its action."""
        client: PressableClient = interaction.client
        await client.presser.press(interaction, self._button)


def is_known(custom_id: str) -> bool:
    """Say whether this is the id of a button of the bot."""
    return _ID.fullmatch(custom_id) is not None


def numbers(message: discord.Message, verbs: Collection[str]) -> Iterator[int]:
    """Iterate over the numbers in the ids of a message's buttons of these verbs."""
    for row in message.components:
        for item in row.children if isinstance(row, discord.ActionRow) else ():
            match = _ID.fullmatch(getattr(item, "custom_id", None) or "")
            if match is not None and match["verb"] in verbs:
                yield int(match["number"])


def view(buttons: tuple[message_layout.Button, ...]) -> discord.ui.View | None:
    """Return the row of buttons below a message; None if there are none."""
    if not buttons:
        return None
    row = discord.ui.View(timeout=None)
    for button in buttons:
        row.add_item(Action(button))
    return row
