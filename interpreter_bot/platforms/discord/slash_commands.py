"""The slash commands `/py` and `/interpreter`, and the context menus of messages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

import discord
from discord import app_commands

from interpreter_bot.platforms.discord import (
    interactions,
    message_parsing,
    modals,
    preferences,
    subcommands,
)
from interpreter_bot.text import code_reading
from interpreter_bot.wording import command_words

_MOST_CHOICES: Final = 25
_MOST_CHOICE: Final = 100
_Interaction = discord.Interaction[Any]
_View: TypeAlias = Callable[[_Interaction], Coroutine[Any, Any, None]]


def add_menus(
    tree: app_commands.CommandTree[Any],
    client: discord.Client,
    handler: interactions.InteractionHandler,
) -> None:
    """Add both context menus to a tree."""

    async def run(interaction: discord.Interaction[Any], message: discord.Message) -> None:
        code = code_reading.code_of(message.content)
        if not code:
            if await handler.admits(interaction):
                await handler.tell(interaction, command_words.NO_CODE)
            return
        await handler.request(
            interaction, code, attachments=tuple(message.attachments), is_code=True
        )

    async def ask(interaction: discord.Interaction[Any], message: discord.Message) -> None:
        if not await handler.admits(interaction):
            return
        me = client.user.id if client.user is not None else 0
        about = message_parsing.quoted(message, me, is_referred=True)

        async def submitted(
            sent: discord.Interaction[Any], text: str, files: tuple[discord.Attachment, ...]
        ) -> None:
            attachments = (*message.attachments, *files)
            await handler.request(sent, text, attachments=attachments, recent=(about,))

        modal = modals.CodeModal(
            command_words.ASK_ABOUT_MESSAGE,
            command_words.YOUR_QUESTION,
            submitted,
            handler.failed,
            kind=modals.QUESTION,
            number=message.id,
            takes_files=True,
        )
        await interaction.response.send_modal(modal)

    tree.add_command(app_commands.ContextMenu(name=command_words.RUN_MESSAGE, callback=run))
    tree.add_command(app_commands.ContextMenu(name=command_words.ASK_ABOUT_MESSAGE, callback=ask))


def add_commands(
    tree: app_commands.CommandTree[Any],
    handler: interactions.InteractionHandler,
    actions: subcommands.CommandEffects,
) -> None:
    """Add all slash commands to a tree."""
    tree.add_command(_py(handler))
    group = app_commands.Group(
        name="interpreter", description="This conversation's Python, and how I behave"
    )
    _add_session(group, handler, actions)
    _add_views(group, handler, actions)
    _add_logins(group, handler, actions)
    _add_branches(group, handler, actions)
    _add_choosing(group, handler, actions)
    tree.add_command(group)


def _py(handler: interactions.InteractionHandler) -> app_commands.Command[Any, Any, None]:
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
            source = code_reading.code_of(code)
            await handler.request(interaction, source, attachments=files, is_code=True)
            return
        if not await handler.admits(interaction):
            return

        async def submitted(
            sent: _Interaction, text: str, more: tuple[discord.Attachment, ...]
        ) -> None:
            source = code_reading.code_of(text)
            await handler.request(sent, source, attachments=(*files, *more), is_code=True)

        modal = modals.CodeModal(
            command_words.RUN_TITLE,
            "Code",
            submitted,
            handler.failed,
            kind=modals.CODE,
            placeholder="print('hello')",
            takes_files=True,
        )
        await interaction.response.send_modal(modal)

    return py


def _add_session(
    group: app_commands.Group,
    handler: interactions.InteractionHandler,
    actions: subcommands.CommandEffects,
) -> None:
    """Add the subcommands about the session."""

    @group.command(name="reset", description="Reset variables and history")
    @app_commands.describe(files="Delete the files in /mnt/data as well")
    async def reset(interaction: _Interaction, files: bool = False) -> None:
        if await handler.begins(interaction, is_public=True):
            await actions.reset(interaction, files=files)

    @group.command(name="files", description="List the files in /mnt/data, or get one")
    @app_commands.describe(name="The file to get")
    async def files(interaction: _Interaction, name: str = "") -> None:
        if await handler.begins(interaction):
            await actions.files(interaction, name)

    @files.autocomplete("name")
    async def names(interaction: _Interaction, current: str) -> list[app_commands.Choice[str]]:
        if not handler.may_complete(interaction):
            return []
        return _choices(await actions.file_names(interaction), current)


def _add_views(
    group: app_commands.Group,
    handler: interactions.InteractionHandler,
    actions: subcommands.CommandEffects,
) -> None:
    """Add the subcommands that show something to who asks, and to nobody else."""
    views: dict[str, tuple[str, _View]] = {
        "limits": ("What code may use", actions.limits),
        "network": ("What code may reach outside", actions.network),
        "tools": ("List tools your code can call", actions.tools),
        "variables": ("List variables and what is saved", actions.variables),
        "usage": ("What this conversation, and you today, have used", actions.usage),
        "help": ("What I can do", actions.help),
        "notebook": ("Get this conversation as a Jupyter notebook", actions.notebook),
        "page": ("Get a link to read this conversation on the page", actions.page),
    }
    for name, (description, view) in views.items():
        shown = _shown(handler, view)
        group.add_command(app_commands.Command(name=name, description=description, callback=shown))


def _shown(handler: interactions.InteractionHandler, view: _View) -> _View:
    async def show(interaction: _Interaction) -> None:
        if await handler.begins(interaction):
            await view(interaction)

    return show


def _add_logins(
    group: app_commands.Group,
    handler: interactions.InteractionHandler,
    actions: subcommands.CommandEffects,
) -> None:
    """Add the subcommands about a person's accounts at servers of tools."""

    @group.command(name="connect", description="Log in, so that tools are called as you")
    @app_commands.describe(name="The server, as `tools` lists it")
    async def connect(interaction: _Interaction, name: str) -> None:
        if await handler.begins(interaction):
            await actions.connect(interaction, name)

    @group.command(name="disconnect", description="Log out, and remove your account from here")
    @app_commands.describe(name="The server, as `tools` lists it")
    async def disconnect(interaction: _Interaction, name: str) -> None:
        if await handler.begins(interaction):
            await actions.disconnect(interaction, name)


def _add_branches(
    group: app_commands.Group,
    handler: interactions.InteractionHandler,
    actions: subcommands.CommandEffects,
) -> None:
    """Add the subcommands that copy the session, take it back or mend it."""

    @group.command(name="again", description="Re-run the cells whose variables could not be saved")
    async def again(interaction: _Interaction) -> None:
        if await handler.begins(interaction, is_request=True):
            code = await actions.lost_cells(interaction)
            await handler.carry_out(interaction, code, is_code=True)

    @group.command(
        name="fork", description="Continue in a copy with its variables, files and history"
    )
    async def fork(interaction: _Interaction) -> None:
        if await handler.begins(interaction, is_public=True):
            await actions.fork(interaction)

    @group.command(name="undo", description="Go back to before the last answer")
    async def undo(interaction: _Interaction) -> None:
        if await handler.begins(interaction, is_public=True):
            await actions.undo(interaction)


def _add_choosing(
    group: app_commands.Group,
    handler: interactions.InteractionHandler,
    actions: subcommands.CommandEffects,
) -> None:
    """Add the subcommands for preferences."""

    @group.command(name="model", description="See or choose this conversation's model")
    @app_commands.describe(name="The model to use")
    async def model(interaction: _Interaction, name: str = "") -> None:
        if await handler.begins(interaction):
            await actions.model(interaction, name)

    @model.autocomplete("name")
    async def models(interaction: _Interaction, current: str) -> list[app_commands.Choice[str]]:
        if not handler.may_complete(interaction):
            return []
        return _choices(handler.service.queries.models, current)

    @group.command(name="settings", description="View or change settings")
    @app_commands.describe(
        name="The setting", value="New value; default resets it", scope="For whom"
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
        if await handler.begins(interaction):
            await actions.settings(interaction, name, value, scope)

    @settings.autocomplete("name")
    async def names(interaction: _Interaction, current: str) -> list[app_commands.Choice[str]]:
        return _choices(preferences.NAMES, current)

    @settings.autocomplete("value")
    async def values(interaction: _Interaction, current: str) -> list[app_commands.Choice[str]]:
        if not handler.may_complete(interaction):
            return []
        name = str(interaction.namespace.name or "")
        found = preferences.suggestions(name, handler.service.queries.models)
        return _choices((*found, "default"), current)


def _choices(names: tuple[str, ...], current: str) -> list[app_commands.Choice[str]]:
    """Return the autocompletions for what is typed so far; Discord takes 25, of 100 characters."""
    fitting = [name for name in names if current.lower() in name.lower()]
    return [
        app_commands.Choice(name=name, value=name)
        for name in fitting
        if 0 < len(name) <= _MOST_CHOICE
    ][:_MOST_CHOICES]
