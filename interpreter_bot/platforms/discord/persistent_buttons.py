"""Buttons that work after a restart, because their ids hold all they need."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import discord

from interpreter_bot.platforms.chat import buttons, transport

_STYLES: Final = {
    "plain": discord.ButtonStyle.secondary,
    "primary": discord.ButtonStyle.primary,
    "success": discord.ButtonStyle.success,
    "danger": discord.ButtonStyle.danger,
}
_TEMPLATE: Final = r"ib:(?P<action>[a-z]+[0-9]?):(?P<subject_id>[0-9]{1,19}):(?P<owner>[0-9]{1,20})"
_BUTTON_ID: Final = re.compile(_TEMPLATE)


class Action(discord.ui.DynamicItem[discord.ui.Button[Any]], template=_TEMPLATE):
    """One button of the bot."""

    def __init__(self, button: transport.Button) -> None:
        custom_id = f"ib:{button.action}:{button.subject_id}:{button.owner}"
        style = _STYLES[button.style]
        super().__init__(discord.ui.Button(label=button.label, style=style, custom_id=custom_id))
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
        return cls(buttons.make(match["action"], match["subject_id"], match["owner"]))

    async def callback(self, interaction: discord.Interaction[Any]) -> None:
        """Run its action."""
        await interaction.client.buttons.press(interaction, self._button)


def is_known(custom_id: str) -> bool:
    """Return whether this is the id of a button of the bot."""
    return _BUTTON_ID.fullmatch(custom_id) is not None


def of_message(message: discord.Message) -> Iterator[transport.Button]:
    """Iterate over the buttons below a message."""
    for row in message.components:
        for item in row.children if isinstance(row, discord.ActionRow) else ():
            match = _BUTTON_ID.fullmatch(getattr(item, "custom_id", None) or "")
            if match is not None:
                yield buttons.make(match["action"], match["subject_id"], match["owner"])


def subject_ids(message: discord.Message, actions: Collection[str]) -> set[str]:
    """Return the subject ids of the buttons of some actions below a message."""
    return {button.subject_id for button in of_message(message) if button.action in actions}


def view(shown_buttons: tuple[transport.Button, ...]) -> discord.ui.View | None:
    """Return the row of buttons below a message; None if there are none."""
    if not shown_buttons:
        return None
    row = discord.ui.View(timeout=None)
    for button in shown_buttons:
        row.add_item(Action(button))
    return row
