"""The one table of commands, with their help, arguments, platforms and effects.

Slack's commands, help and manifest hint, Discord's slash commands, and the lists, help and
completions of the page and the terminal are made from it. `command_effects` carries commands out;
a command without an effect is carried out by each platform in its own way.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Final

from interpreter_bot import errors
from interpreter_bot.platforms import command_effects, command_types, preferences
from interpreter_bot.platforms.rendering import session_facts, stop_words
from interpreter_bot.wording import command_words

_SLASH_COMMAND: Final = re.compile(r"/([A-Za-z][A-Za-z0-9_-]*)[?!.:,;]*(?:\s+(.*))?\Z", re.DOTALL)
_COMMAND_IN_WORDS: Final = re.compile(r"([A-Za-z]+)(?:\s+(.*))?\Z", re.DOTALL)
_CODE_SIGN: Final = re.compile(r"[=()\[\]{}:#\"`+*/\\%!_\n]|\A\W*\w+\W*\Z")
_MIN_LIKENESS: Final = 0.6
# A word with a capital may be the name of a folder.
_MIN_CAPITALIZED_LIKENESS: Final = 0.75
NO_TURN: Final = 0
"""An id that no turn has, for an undo when there is nothing to undo."""


async def _list_commands(place: command_types.Place, _: str) -> command_types.Result:
    queries = place.service.queries
    reach = queries.reach(place.key)
    servers = await queries.list_tools(place.key, place.person)
    is_on = {
        "": True,
        "models": bool(queries.models),
        "network": bool(reach.hosts or reach.offers),
        "tools": bool(servers),
        "logins": any(server.is_logged_in is not None for server in servers),
        "page": place.service.visits.is_on,
        "memory": bool(place.service.places.max_notes),
        "schedules": bool(place.service.schedules.limits.per_person),
    }
    commands = commands_of(place.key.platform).values()
    return command_types.Help([command for command in commands if is_on[command.needs]])


_SERVER_ARGUMENT: Final = command_types.Argument(
    "name", "The server, as “tools” lists it", is_required=True, names=command_effects.server_names
)

COMMANDS: Final = (
    command_types.Command(
        "py",
        "Run your own Python, without a model; it may span several lines.",
        command_effects.run_code,
        (
            command_types.Argument(
                "code", "The code to run; without it, an editor opens", is_required=True
            ),
        ),
        is_request=True,
    ),
    command_types.Command(
        "again",
        "Rebuild lost variables by running their code again.",
        command_effects.rebuild_variables,
        is_request=True,
    ),
    command_types.Command(
        "stop", "Stop the running code; variables are kept.", command_effects.stop, is_public=True
    ),
    command_types.Command(
        "reset",
        "Restart Python without variables and history; files are kept.",
        command_effects.reset,
        (
            command_types.Argument(
                "files", "Delete the files in /mnt/data as well", choices=("files",)
            ),
        ),
        is_public=True,
        confirmations={
            "": (command_words.RESET_QUESTION, "Reset"),
            "files": (command_words.RESET_FILES_QUESTION, "Reset and delete"),
        },
    ),
    command_types.Command(
        "undo",
        "Go back to before the last answer: variables, files and history.",
        command_effects.undo,
        platforms=command_types.ALL_PLATFORMS - {"console"},
        is_public=True,
        confirmations={"": (command_words.UNDO_QUESTION, "Undo")},
    ),
    command_types.Command(
        "fork",
        "Continue in a copy of this conversation: variables, files and history.",
        command_effects.fork,
        platforms=command_types.ALL_PLATFORMS - {"console"},
        is_public=True,
    ),
    command_types.Command(
        "files",
        "List the files of this conversation.",
        command_effects.list_files,
        (
            command_types.Argument(
                "name",
                "The file to get",
                names=command_effects.file_names,
                platforms=command_types.CHAT_NETWORKS,
            ),
        ),
    ),
    command_types.Command(
        "variables", "List variables and what is saved.", command_effects.list_variables
    ),
    command_types.Command(
        "notebook",
        "Get this conversation as a notebook.",
        command_effects.send_notebook,
        platforms=command_types.ALL_PLATFORMS - {"console"},
    ),
    command_types.Command(
        "page",
        "Get a link to read this conversation on the page.",
        command_effects.link_to_page,
        platforms=command_types.CHAT_NETWORKS,
        needs="page",
    ),
    command_types.Command(
        "model",
        "List the models, or switch this conversation to one.",
        command_effects.choose_model,
        (command_types.Argument("name", "The model to use", names=command_effects.model_names),),
        needs="models",
    ),
    command_types.Command(
        "settings",
        "View or change settings; in chats for you, a channel or everybody.",
        command_effects.change_settings,
        (
            command_types.Argument("name", "The setting", names=command_effects.setting_names),
            command_types.Argument(
                "value", "New value; default resets it", names=command_effects.setting_values
            ),
            command_types.Argument(
                "scope",
                "For whom",
                choices=("me", "channel", "server"),
                platforms=frozenset({"discord"}),
            ),
            command_types.Argument(
                "scope",
                "For whom",
                choices=("me", "channel", "workspace"),
                platforms=frozenset({"slack"}),
            ),
        ),
        aliases={"approval": preferences.APPROVAL, "follow": preferences.FOLLOW_THREADS},
    ),
    command_types.Command(
        "place",
        "Show what applies here, such as instructions; administrators can edit it.",
        command_effects.show_place,
        (
            command_types.Argument(
                "action",
                "Edit it, for this channel or the whole workspace",
                choices=("edit", "edit workspace"),
                platforms=frozenset({"slack"}),
            ),
            command_types.Argument(
                "action",
                "Edit it, for this channel or the whole server",
                choices=("edit", "edit server"),
                platforms=frozenset({"discord"}),
            ),
            command_types.Argument(
                "action", "Edit it", choices=("edit",), platforms=frozenset({"web"})
            ),
        ),
        submit=command_effects.submit_place,
    ),
    command_types.Command(
        "memory",
        "List what I remember here; add, edit or forget a note.",
        command_effects.manage_notes,
        (
            command_types.Argument(
                "action", "add, edit 3, forget 3 or forget all", names=command_effects.note_actions
            ),
        ),
        platforms=command_types.ALL_PLATFORMS - {"console"},
        needs="memory",
        submit=command_effects.submit_note,
    ),
    command_types.Command(
        "schedule",
        "Do something at set times.",
        command_effects.propose_schedule,
        (
            command_types.Argument(
                "text",
                "When, zone and what, such as: weekdays 9:00 Europe/Berlin: refresh the chart",
                is_required=True,
            ),
        ),
        platforms=command_types.ALL_PLATFORMS - {"console"},
        needs="schedules",
        is_request=True,
    ),
    command_types.Command(
        "schedules",
        "List schedules; pause, resume, run or delete one, or list its runs.",
        command_effects.manage_schedules,
        (
            command_types.Argument(
                "action", "What to do with one", names=command_effects.schedule_actions
            ),
            command_types.Argument("number", "Its number", names=command_effects.schedule_numbers),
        ),
        needs="schedules",
    ),
    command_types.Command("usage", "Show tokens and cost.", command_effects.show_usage),
    command_types.Command(
        "limits", "List the limits of a conversation.", command_effects.list_limits
    ),
    command_types.Command(
        "network",
        "List the hosts and data that code may reach.",
        command_effects.list_network,
        needs="network",
    ),
    command_types.Command(
        "tools", "List tools that your code can call.", command_effects.list_tools, needs="tools"
    ),
    command_types.Command(
        "connect",
        "Log in at a tool server, so that tools act as you.",
        command_effects.connect,
        (_SERVER_ARGUMENT,),
        needs="logins",
    ),
    command_types.Command(
        "disconnect",
        "Log out of a tool server, and delete your login.",
        command_effects.disconnect,
        (_SERVER_ARGUMENT,),
        needs="logins",
    ),
    command_types.Command("help", "List the commands.", _list_commands),
    command_types.Command("exit", "End the chat.", platforms=frozenset({"console"})),
)


def commands_of(platform: str) -> dict[str, command_types.Command]:
    """Return the commands of a platform by their names, in the order of the help."""
    return {command.name: command for command in COMMANDS if platform in command.platforms}


def parse(text: str, platform: str, *, is_code: bool = False) -> command_types.Invocation | None:
    """Parse a command that begins with a slash; None if the text is something else.

    A word with a slash and a capital may be a folder, and is a command only if one has its name.
    In code, IPython calls the function that follows a slash.

    Raises:
        BotError: a mistyped command, or one without the argument that it needs.
    """
    match = _SLASH_COMMAND.match(text.strip())
    if match is None:
        return None
    word, argument = match[1], match[2] or ""
    commands = commands_of(platform)
    if command_and_argument := _find_command(word, argument, platform):
        return _check_argument(*command_and_argument, platform)
    elsewhere = [command for command in COMMANDS if command.name == word.lower()]
    if elsewhere and not is_code:
        raise errors.BotError(command_words.works_elsewhere(word, elsewhere[0].platforms))
    likeness = _MIN_LIKENESS if word.islower() else _MIN_CAPITALIZED_LIKENESS
    similar_names = difflib.get_close_matches(word.lower(), commands, 1, likeness)
    if is_code or not (word.islower() or similar_names):
        return None
    raise errors.BotError(
        command_words.unknown_command(word, similar_names[0] if similar_names else "")
    )


def _find_command(
    word: str, argument: str, platform: str
) -> tuple[command_types.Command, str] | None:
    """Return the command whose name or alias a word is on a platform, and its argument."""
    for command in commands_of(platform).values():
        if command.name == word.lower():
            return command, argument
        if word.lower() in command.aliases:
            return command, f"{command.aliases[word.lower()]} {argument}"
    return None


def _check_argument(
    command: command_types.Command, text: str, platform: str
) -> command_types.Invocation:
    """Check a command's argument.

    Raises:
        BotError: it has one that it does not take, or lacks the one that it needs.
    """
    arguments = command.arguments_on(platform)
    # The indentation of code counts.
    text = text if command.name == "py" else text.strip()
    if not arguments:
        if text:
            raise errors.BotError(command_words.takes_no_arguments(command.name))
        return command_types.Invocation(command)
    if arguments[0].choices:
        text = text.lower()
        if text not in ("", *arguments[0].choices):
            raise errors.BotError(command_words.write_command_as(f"/{command.usage(platform)}"))
    if arguments[0].is_required and not text.strip():
        raise errors.BotError(command_words.write_command_as(f"/{command.usage(platform)}"))
    return command_types.Invocation(command, text)


def parse_words(text: str, platform: str) -> command_types.Invocation | None:
    """Parse a message that may be a command in words: "reset files" is one, "reset the index" not.

    `has_existing_name` checks whether the file or setting that it names exists.
    """
    commands = commands_of(platform)
    if stop_words.is_stop_request(text):
        return command_types.Invocation(commands["stop"])
    match = _COMMAND_IN_WORDS.match(text.strip())
    command_and_argument = _find_command(match[1], match[2] or "", platform) if match else None
    if command_and_argument is None:
        return None
    try:
        invocation = _check_argument(*command_and_argument, platform)
    except errors.BotError:
        return None
    return (
        None
        if command_and_argument[0].name == "py" and _is_prose(invocation.argument)
        else invocation
    )


def _is_prose(text: str) -> bool:
    """Return whether the text after `py` is prose: it neither looks like code nor parses."""
    if _CODE_SIGN.search(text):
        return False
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return True
    return False


async def has_existing_name(
    invocation: command_types.Invocation, place: command_types.Place
) -> bool:
    """Return whether what a command names exists, such as a file; True if it names nothing."""
    arguments = invocation.command.arguments_on(place.key.platform)
    if not invocation.argument or not arguments or arguments[0].names is None:
        return True
    if len(arguments) == 1:
        return invocation.argument in await arguments[0].names(place, ())
    if invocation.command.effect is command_effects.manage_schedules:
        action, _, number = invocation.argument.lower().partition(" ")
        return action in command_effects.SCHEDULE_ACTIONS and number.strip().isdecimal()
    name, value, _ = command_effects.split_setting(invocation.argument)
    is_complete = value or len(invocation.argument.split()) == 1
    possible_values = await command_effects.setting_values(place, (name,))
    if not is_complete or name not in place.settings:
        return False
    return not value or value.casefold() in map(str.casefold, possible_values)


async def run(
    invocation: command_types.Invocation,
    place: command_types.Place,
    entered: Mapping[str, str] | None = None,
) -> command_types.Result:
    """Carry a command out.

    Args:
        invocation: the command.
        place: where it is given.
        entered: the values that were entered into its form, by the names of its fields.

    Raises:
        BotError: it cannot be carried out; the sentence says why.
    """
    command = invocation.command
    if entered is not None and command.submit is not None:
        return await command.submit(place, invocation.argument, entered)
    if command.effect is None or entered is not None:
        raise errors.BotError(command_words.not_offered(command.name))
    return await command.effect(place, invocation.argument)


async def find_code(invocation: command_types.Invocation, place: command_types.Place) -> str:
    """Return the code of a command that becomes a request.

    Raises:
        BotError: there is no code to run.
    """
    result = await run(invocation, place)
    return result.code if isinstance(result, command_types.CodeToRun) else ""


def list_facts(
    result: command_types.FactList | command_types.Help, platform: str
) -> Sequence[session_facts.Fact]:
    """Return the facts of a list, for platforms whose commands begin with a slash."""
    if isinstance(result, command_types.FactList):
        return result.facts
    return [
        session_facts.Fact(f"/{command.usage(platform)}", command.help)
        for command in result.commands
    ]


async def completions(text: str, place: command_types.Place) -> list[tuple[str, int, str]]:
    """Complete a command behind a slash, or its argument.

    Returns:
        Words, each with the number of its characters that are typed already, and a description.
    """
    platform = place.key.platform
    name, space, typed_text = text[1:].partition(" ")
    commands = commands_of(platform)
    if not space:
        return [
            (
                f"/{command.name}{' ' if command.arguments_on(platform) else ''}",
                len(text),
                command.help,
            )
            for command in commands.values()
            if command.name.startswith(name.lower())
        ]
    command_and_argument = _find_command(name, typed_text.lstrip(), platform)
    arguments = command_and_argument[0].arguments_on(platform) if command_and_argument else ()
    if command_and_argument is None or not arguments:
        return []
    earlier_arguments: Sequence[str] = ()
    typed_text = command_and_argument[1]
    if len(arguments) > 1:
        *earlier_arguments, typed_text = typed_text.split(" ")
    argument = arguments[min(len(earlier_arguments), len(arguments) - 1)]
    names = await argument.names(place, earlier_arguments) if argument.names else argument.choices
    return [
        (word, len(typed_text), argument.help)
        for word in names
        if word.lower().startswith(typed_text.lower())
    ]


async def pin_last_turn(
    invocation: command_types.Invocation, place: command_types.Place
) -> command_types.Invocation:
    """Return a command for a button; `undo` gets the id of the turn that is the last one now."""
    if invocation.command.name != "undo":
        return invocation
    last_turns = await place.service.queries.history(place.key, limit=1)
    return dataclasses.replace(
        invocation, argument=str(last_turns[-1].record.id if last_turns else NO_TURN)
    )
