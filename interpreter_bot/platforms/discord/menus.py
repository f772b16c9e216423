"""What can be done with a message, from its menu."""

from __future__ import annotations

from typing import Any

import discord
from discord import app_commands

from interpreter_bot.platforms.discord import interacting, modals, speaking

RUN = "Run this message"
ASK = "Ask about this message"


def add_to(
    tree: app_commands.CommandTree[Any],
    client: discord.Client,
    interactor: interacting.Interactor,
) -> None:
    """Add both context menus to a tree."""

    async def run(interaction: discord.Interaction[Any], message: discord.Message) -> None:
        # A message without any code block is code as a whole, or so somebody thinks.
        code = speaking.code_blocks(message.content) or message.content
        if not code.strip():
            if await interactor.admits(interaction):
                await interactor.tell(interaction, "There is no code in that message.")
            return
        await interactor.request(
            interaction, code, attachments=tuple(message.attachments), is_code=True
        )

    async def ask(interaction: discord.Interaction[Any], message: discord.Message) -> None:
        if not await interactor.admits(interaction):
            return
        me = client.user.id if client.user is not None else 0
        context = speaking.quoted(message, me)

        async def submitted(
            sent: discord.Interaction[Any], text: str, files: tuple[discord.Attachment, ...]
        ) -> None:
            attachments = (*message.attachments, *files)
            await interactor.request(sent, text, attachments=attachments, context=context)

        window = modals.Window(
            "Ask about this message",
            "What do you want to know?",
            submitted,
            interactor.failed,
            kind=modals.QUESTION,
            number=message.id,
            takes_files=True,
        )
        await interaction.response.send_modal(window)

    tree.add_command(app_commands.ContextMenu(name=RUN, callback=run))
    tree.add_command(app_commands.ContextMenu(name=ASK, callback=ask))
