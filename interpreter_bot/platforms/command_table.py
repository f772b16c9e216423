"""The table of commands that people type behind a slash: name, argument, help, where, effect.

Parsing, help, completion and dispatch of the page and of the terminal are made from it. An effect
answers with a sentence or a list of facts; what only one platform can do has none.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, TypeAlias, get_args

from interpreter_bot import errors, values
from interpreter_bot.platforms.rendering import offered_commands, session_facts
from interpreter_bot.sessions import approval_policy, requests, session_service
from interpreter_bot.text import quantities
from interpreter_bot.wording import command_words, file_words, model_words, run_words, session_words

Platform: TypeAlias = Literal["web", "console"]

Answer: TypeAlias = str | Sequence[session_facts.Fact]

_SHAPE: Final = re.compile(r"/([A-Za-z][A-Za-z0-9_-]*)[?!.:,;]*(?:\s+(.*))?\Z", re.DOTALL)
_MIN_LIKENESS: Final = 0.6
# With a capital it may as well be the name of a folder.
_MIN_LIKENESS_OF_NAMES: Final = 0.75


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a command is given: a conversation, and the person who gives it.

    Attributes:
        scope: of the person's choices.
        approval: what the platform's own settings demand.
        when: writes a moment, in seconds since the epoch, as the person reads it.
    """

    service: session_service.SessionService
    key: values.SessionKey
    person: requests.Person
    scope: values.Scope
    approval: requests.Approval = "never"
    when: Callable[[float], str] = session_facts.in_utc


Effect: TypeAlias = Callable[[Place, str], Awaitable[Answer]]


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A row of the table.

    Attributes:
        argument: as help shows it; empty if there is none.
        help: what the command does, in a sentence.
        effect: what it does; None if each platform does it in its own way.
        platforms: on which it is offered.
    """

    name: str
    argument: str
    help: str
    effect: Effect | None = None
    platforms: frozenset[Platform] = frozenset(get_args(Platform))

    @property
    def usage(self) -> str:
        """The command as people type it."""
        return f"/{self.name} {self.argument}".rstrip()


@dataclasses.dataclass(frozen=True, slots=True)
class Invocation:
    """A command as a person typed it, and its argument."""

    command: Command
    argument: str


async def _limits(place: Place, _: str) -> Answer:
    queries = place.service.queries
    return session_facts.limits(queries.limits, queries.kernels, queries.sandbox_level)


async def _network(place: Place, _: str) -> Answer:
    return session_facts.network(place.service.queries.reach(place.key))


async def _tools(place: Place, _: str) -> Answer:
    return session_facts.tools(await place.service.queries.tools(place.key, place.person))


async def _usage(place: Place, _: str) -> Answer:
    return session_facts.usage(await place.service.queries.usage(place.key, place.person))


async def _variables(place: Place, _: str) -> Answer:
    return session_facts.variables(
        await place.service.queries.variables(place.key), when=place.when
    )


async def _files(place: Place, _: str) -> Answer:
    files = await place.service.queries.files(place.key)
    newest = sorted(files, key=lambda file: file.modified_ns, reverse=True)
    facts = [session_facts.Fact(file.name, quantities.size(file.size_bytes)) for file in newest]
    return facts or file_words.NONE


async def _connect(place: Place, server: str) -> Answer:
    return await place.service.logins.link(place.key, place.person, server)


async def _disconnect(place: Place, server: str) -> Answer:
    return await place.service.logins.forget(place.key, place.person.id, server)


async def _model(place: Place, words: str) -> Answer:
    service = place.service
    if words:
        title = model_title(words, service.queries.models)
        await service.choose_model(place.key, title)
        return model_words.now_used(title)
    current = await service.queries.model(place.key)
    return session_facts.models(service.queries.models, current) or (model_words.NONE)


async def _approval(place: Place, choice: str) -> Answer:
    if choice:
        await choose_approval(place, choice.lower())
    level = await place.service.queries.approval(place.scope, place.approval)
    return [session_facts.Fact(command_words.ASKS_BEFORE, level)]


async def _help(place: Place, _: str) -> Answer:
    is_on = await offered_commands.switches(place.service, place.key, place.person)
    # Without a model nothing runs that a person would be asked about.
    is_on["approval"] = is_on["model"]
    return [
        session_facts.Fact(command.usage, command.help)
        for command in COMMANDS
        if place.key.platform in command.platforms and is_on.get(command.name, True)
    ]


async def _stop(place: Place, _: str) -> Answer:
    if not await place.service.stop(place.key):
        raise errors.BotError(run_words.NOTHING_RUNS)
    return "Stopped."


async def _reset(place: Place, _: str) -> Answer:
    await place.service.reset(place.key)
    return session_words.reset(files_deleted=False)


_WEB: Final = frozenset[Platform]({"web"})
_CONSOLE: Final = frozenset[Platform]({"console"})

COMMANDS: Final = (
    Command("py", "CODE", "Run your own Python, without a model; it may span several lines."),
    Command("files", "", "List the files of this conversation.", _files),
    Command("variables", "", "List variables and what is saved.", _variables),
    Command("limits", "", "List the limits of a conversation.", _limits),
    Command("network", "", "List the hosts and data that code may reach.", _network),
    Command("tools", "", "List tools that your code can call.", _tools),
    Command("connect", "NAME", "Log in at a tool server, so that tools act as you.", _connect),
    Command("disconnect", "NAME", "Log out of a tool server, and delete your login.", _disconnect),
    Command("model", "[NAME]", "List the models, or switch this conversation to one.", _model),
    Command(
        "approval",
        "[never|plan|every]",
        "Show or choose when you are asked before the model's code runs.",
        _approval,
    ),
    Command("usage", "", "Show tokens and cost.", _usage),
    Command("stop", "", "Stop the running code; variables are kept.", _stop),
    Command("reset", "", "Restart Python without variables; files are kept.", _reset),
    Command(
        "fork",
        "",
        "Continue in a copy of this conversation: variables, files and history.",
        platforms=_WEB,
    ),
    Command(
        "undo",
        "",
        "Go back to before the last answer: variables, files and history.",
        platforms=_WEB,
    ),
    Command("again", "", "Rebuild lost variables by running their code again."),
    Command("notebook", "", "Download the conversation as a notebook.", platforms=_WEB),
    Command("help", "", "List the commands.", _help),
    Command("exit", "", "End the chat.", platforms=_CONSOLE),
)


def offered(platform: Platform) -> dict[str, Command]:
    """Return the commands of a platform by their names, in the order of the help."""
    return {command.name: command for command in COMMANDS if platform in command.platforms}


def parse(text: str, platform: Platform, *, is_code: bool = False) -> Invocation | None:
    """Parse a command in letters of any case; None if the text is something else.

    Words that merely begin with a slash and a capital, such as a folder's name, are no command,
    nor is code, in which IPython calls what stands behind a slash.

    Raises:
        BotError: a mistyped command, or one without the argument that it needs.
    """
    match = _SHAPE.match(text.strip())
    if match is None:
        return None
    word, argument = match[1], match[2] or ""
    commands = offered(platform)
    command = commands.get(word.lower())
    if command is not None:
        if command.argument in ("CODE", "NAME") and not argument.strip():
            raise errors.BotError(command_words.write_as(command.usage))
        if argument and not command.argument:
            raise errors.BotError(command_words.takes_nothing(command.name))
        return Invocation(command, argument if command.name == "py" else argument.strip())
    elsewhere = [row for row in COMMANDS if row.name == word.lower()]
    if elsewhere and not is_code:
        place = "on the page" if elsewhere[0].platforms == _WEB else "in the terminal"
        raise errors.BotError(command_words.works_elsewhere(word, place))
    likeness = _MIN_LIKENESS if word.islower() else _MIN_LIKENESS_OF_NAMES
    alike = difflib.get_close_matches(word.lower(), commands, 1, likeness)
    if is_code or not (word.islower() or alike):
        return None
    raise errors.BotError(command_words.unknown(word, alike[0] if alike else ""))


async def run(invocation: Invocation, place: Place) -> Answer:
    """Do what a command of the table does by itself.

    Raises:
        BotError: it cannot be done; the sentence says why.
    """
    effect = invocation.command.effect
    if effect is None:
        raise errors.BotError(command_words.not_offered(invocation.command.name))
    return await effect(place, invocation.argument)


async def choose_approval(place: Place, choice: str) -> None:
    """Choose when the person is asked before code runs.

    Raises:
        BotError: there is no such choice, or it cannot be kept.
    """
    if choice not in get_args(requests.Approval):
        raise errors.BotError(command_words.APPROVAL_CHOICES)
    await place.service.choose(place.scope, approval_policy.NAME, choice)


def model_title(words: str, titles: Sequence[str]) -> str:
    """Return the title that a person typed, or of which they typed a part that only it has.

    Raises:
        BotError: none is meant, or several; the sentence says which there are.
    """
    typed = words.casefold()
    matches = [title for title in titles if title.casefold() == typed]
    matches = matches or [title for title in titles if typed in title.casefold()]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise errors.BotError(model_words.ambiguous(words, matches))
    raise errors.BotError(model_words.unknown(words, titles))
