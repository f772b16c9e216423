"""The slash commands `/py` and `/interpreter`, and the context menus of messages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias

import discord
from discord import app_commands

from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.platforms.discord import (
    channels_and_threads,
    command_views,
    interactions,
    modals,
)
from interpreter_bot.text import code_reading
from interpreter_bot.wording import command_words

_MAX_CHOICES: Final = 25
_MAX_CHOICE_CHARACTERS: Final = 100
_Interaction = discord.Interaction[Any]
_Completion: TypeAlias = Callable[
    [_Interaction, str], Coroutine[Any, Any, list[app_commands.Choice[str]]]
]


def add_menus(
    tree: app_commands.CommandTree[Any], handler: interactions.InteractionHandler
) -> None:
    """Add both context menus to a tree."""

    async def run(interaction: discord.Interaction[Any], message: discord.Message) -> None:
        code = code_reading.read_as_code(message.content)
        if not code:
            if await handler.check_permissions(interaction):
                await handler.reply(interaction, command_words.NO_CODE)
            return
        await handler.run_request(
            interaction, code, attachments=tuple(message.attachments), is_code=True
        )

    async def ask(interaction: discord.Interaction[Any], message: discord.Message) -> None:
        if not await handler.check_permissions(interaction):
            return
        await modals.open_modal(
            handler,
            interaction,
            command_words.ASK_ABOUT_MESSAGE,
            command_words.YOUR_QUESTION,
            purpose=modals.QUESTION,
            subject_id=message.id,
            context=modals.make_message_context(interaction, message),
        )

    tree.add_command(app_commands.ContextMenu(name=command_words.RUN_MESSAGE, callback=run))
    tree.add_command(app_commands.ContextMenu(name=command_words.ASK_ABOUT_MESSAGE, callback=ask))


def add_commands(
    tree: app_commands.CommandTree[Any], handler: interactions.InteractionHandler
) -> None:
    """Add the commands of the table to a tree."""
    group = app_commands.Group(
        name="interpreter", description="This conversation's Python, and how I behave"
    )
    for command in command_table.commands_of("discord").values():
        if command.name == "py":
            tree.add_command(_make_py_command(handler, command))
        else:
            group.add_command(_make_subcommand(handler, command))
    tree.add_command(group)


def _make_subcommand(
    handler: interactions.InteractionHandler, command: command_types.Command
) -> app_commands.Command[Any, Any, None]:
    """Make a subcommand of a row of the table."""
    arguments = command.arguments_on(channels_and_threads.PLATFORM)

    async def carry_out(interaction: _Interaction, **options: Any) -> None:
        # A switch is given by its name.
        words = [name if value is True else value for name, value in options.items() if value]
        invocation = command_types.Invocation(command, " ".join(words))
        if command.is_request:
            prepare = functools.partial(command_views.open_code, handler, interaction, invocation)
            await handler.start(interaction, prepare)
        elif command.opens_form(invocation.argument):
            # A form has to be the first answer; what is entered there is claimed.
            if await handler.check_permissions(interaction):
                await command_views.run_command(handler, interaction, invocation)
        elif await handler.acknowledge_and_claim(interaction, is_public=command.is_public):
            await command_views.run_command(handler, interaction, invocation)

    callback: Any = carry_out
    parameters = [inspect.Parameter("interaction", inspect.Parameter.POSITIONAL_ONLY)]
    parameters += [_make_parameter(argument) for argument in arguments]
    callback.__signature__ = inspect.Signature(parameters)
    descriptions = {argument.name: argument.help for argument in arguments}
    callback = app_commands.describe(**descriptions)(callback)
    for argument in arguments:
        if argument.names is not None:
            completions = {argument.name: _make_completion(handler, command, argument)}
            callback = app_commands.autocomplete(**completions)(callback)
        elif argument.choices and not argument.is_switch:
            choices = [app_commands.Choice(name=name, value=name) for name in argument.choices]
            callback = app_commands.choices(**{argument.name: choices})(callback)
    return app_commands.Command(name=command.name, description=command.help, callback=callback)


def _make_parameter(argument: command_types.Argument) -> inspect.Parameter:
    """Return the parameter from which discord.py makes an option."""
    type_, default = (bool, False) if argument.is_switch else (str, "")
    return inspect.Parameter(
        argument.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if argument.is_required else default,
        annotation=type_,
    )


def _make_completion(
    handler: interactions.InteractionHandler,
    command: command_types.Command,
    argument: command_types.Argument,
) -> _Completion:
    """Return the function that completes an argument, given the arguments before it."""
    earlier_arguments = command.arguments[: command.arguments.index(argument)]

    async def complete(
        interaction: _Interaction, typed_text: str
    ) -> list[app_commands.Choice[str]]:
        if argument.names is None or not handler.may_complete(interaction):
            return []
        place = command_views.command_place_at_interaction(handler, interaction)
        earlier_values = [
            str(getattr(interaction.namespace, earlier.name, "") or "")
            for earlier in earlier_arguments
        ]
        return _make_choices(await argument.names(place, earlier_values), typed_text)

    return complete


def _make_py_command(
    handler: interactions.InteractionHandler, command: command_types.Command
) -> app_commands.Command[Any, Any, None]:
    [code_argument] = command.arguments

    @app_commands.command(name=command.name, description=command.help)
    @app_commands.describe(
        code=code_argument.help, file="A file for /mnt/data", file2="Another", file3="Another"
    )
    async def py(
        interaction: _Interaction,
        code: str = "",
        file: discord.Attachment | None = None,
        file2: discord.Attachment | None = None,
        file3: discord.Attachment | None = None,
    ) -> None:
        files = tuple(attachment for attachment in (file, file2, file3) if attachment is not None)
        if code.strip():
            source = code_reading.read_as_code(code)
            await handler.run_request(interaction, source, attachments=files, is_code=True)
        elif await handler.check_permissions(interaction):
            await modals.open_modal(
                handler,
                interaction,
                command_words.RUN_TITLE,
                "Code",
                purpose=modals.CODE,
                placeholder="print('hello')",
                context=interactions.ModalContext(files),
            )

    return py


def _make_choices(names: Sequence[str], typed_text: str) -> list[app_commands.Choice[str]]:
    """Return the completions of the typed text; Discord accepts 25, of 100 characters each."""
    matches = [name for name in names if typed_text.lower() in name.lower()]
    return [
        app_commands.Choice(name=name, value=name)
        for name in matches
        if 0 < len(name) <= _MAX_CHOICE_CHARACTERS
    ][:_MAX_CHOICES]
