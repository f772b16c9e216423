"""The slash commands `/py` and `/interpreter`."""

from __future__ import annotations

from typing import Any, Final

import discord
from discord import app_commands

from interpreter_bot.platforms.discord import (
    attending,
    interacting,
    modals,
    preferences,
)

_MOST_CHOICES: Final = 25
_MOST_CHOICE: Final = 100
_Interaction = discord.Interaction[Any]


def add_to(
    tree: app_commands.CommandTree[Any],
    interactor: interacting.Interactor,
    attendant: attending.Attendant,
) -> None:
    """Add all slash commands to a tree."""
    tree.add_command(_py(interactor))
    group = app_commands.Group(
        name="interpreter", description="This conversation's Python, and how I behave"
    )
    _add_session(group, interactor, attendant)
    _add_choosing(group, interactor, attendant)
    tree.add_command(group)


def _py(interactor: interacting.Interactor) -> app_commands.Command[Any, Any, None]:
    @app_commands.command(name="py", description="Run Python; without code, an editor opens")
    @app_commands.describe(
        code="The code to run", file="A file for /mnt/data", file2="Another", file3="Another"
    )
    async def py(
        interaction: _Interaction,
        code: str = "",
        file: discord.Attachment | None = None,
        file2: discord.Attachment | None = None,
        file3: discord.Attachment | None = None,
    ) -> None:
        files = tuple(one for one in (file, file2, file3) if one is not None)
        if code.strip():
            await interactor.request(interaction, code, attachments=files, is_code=True)
            return
        if not await interactor.admits(interaction):
            return

        async def submitted(
            sent: _Interaction, text: str, more: tuple[discord.Attachment, ...]
        ) -> None:
            await interactor.request(sent, text, attachments=(*files, *more), is_code=True)

        window = modals.Window(
            "Run Python",
            "Code",
            submitted,
            interactor.failed,
            kind=modals.CODE,
            placeholder="print('hello')",
            takes_files=True,
        )
        await interaction.response.send_modal(window)

    return py


def _add_session(
    group: app_commands.Group,
    interactor: interacting.Interactor,
    attendant: attending.Attendant,
) -> None:
    """Add what is about the conversation."""

    @group.command(name="reset", description="Begin anew: variables and transcript are forgotten")
    @app_commands.describe(files="Delete the files in /mnt/data as well")
    async def reset(interaction: _Interaction, files: bool = False) -> None:
        if await interactor.begins(interaction, is_public=True):
            await attendant.reset(interaction, files=files)

    @group.command(name="files", description="List the files in /mnt/data, or get one")
    @app_commands.describe(name="The file to get")
    async def files(interaction: _Interaction, name: str = "") -> None:
        if await interactor.begins(interaction):
            await attendant.files(interaction, name)

    @files.autocomplete("name")
    async def names(interaction: _Interaction, current: str) -> list[app_commands.Choice[str]]:
        if not interactor.may_complete(interaction):
            return []
        return _choices(await attendant.file_names(interaction), current)

    @group.command(name="limits", description="What code may use")
    async def limits(interaction: _Interaction) -> None:
        if await interactor.begins(interaction):
            await attendant.limits(interaction)

    @group.command(name="notebook", description="Get this conversation as a Jupyter notebook")
    async def notebook(interaction: _Interaction) -> None:
        if await interactor.begins(interaction):
            await attendant.notebook(interaction)

    @group.command(name="usage", description="What this conversation, and you today, have used")
    async def usage(interaction: _Interaction) -> None:
        if await interactor.begins(interaction):
            await attendant.usage(interaction)

    @group.command(name="help", description="What I can do")
    async def help_(interaction: _Interaction) -> None:
        if await interactor.begins(interaction):
            await attendant.help(interaction)


def _add_choosing(
    group: app_commands.Group,
    interactor: interacting.Interactor,
    attendant: attending.Attendant,
) -> None:
    """Add what people choose."""

    @group.command(name="model", description="See or choose this conversation's model")
    @app_commands.describe(name="The model to ask from now on")
    async def model(interaction: _Interaction, name: str = "") -> None:
        if await interactor.begins(interaction):
            await attendant.model(interaction, name)

    @model.autocomplete("name")
    async def models(interaction: _Interaction, current: str) -> list[app_commands.Choice[str]]:
        if not interactor.may_complete(interaction):
            return []
        return _choices(interactor.talks.models, current)

    @group.command(name="settings", description="See or change how I behave, and for whom")
    @app_commands.describe(
        name="What to change", value="What it shall be; default forgets it", scope="For whom"
    )
    @app_commands.choices(
        scope=[
            app_commands.Choice(name="for me", value="me"),
            app_commands.Choice(name="in this channel", value="channel"),
            app_commands.Choice(name="on this server", value="server"),
        ]
    )
    async def settings(
        interaction: _Interaction, name: str = "", value: str = "", scope: str = "me"
    ) -> None:
        if await interactor.begins(interaction):
            await attendant.settings(interaction, name, value, scope)

    @settings.autocomplete("name")
    async def names(interaction: _Interaction, current: str) -> list[app_commands.Choice[str]]:
        return _choices(preferences.NAMES, current)

    @settings.autocomplete("value")
    async def values(interaction: _Interaction, current: str) -> list[app_commands.Choice[str]]:
        if not interactor.may_complete(interaction):
            return []
        name = str(interaction.namespace.name or "")
        found = preferences.suggestions(name, interactor.talks.models)
        return _choices((*found, "default"), current)


def _choices(names: tuple[str, ...], current: str) -> list[app_commands.Choice[str]]:
    """Offer what goes with what somebody typed so far; Discord takes 25, of 100 characters."""
    fitting = [name for name in names if current.lower() in name.lower()]
    return [
        app_commands.Choice(name=name, value=name)
        for name in fitting
        if 0 < len(name) <= _MOST_CHOICE
    ][:_MOST_CHOICES]
