"""What commands are: where they are given, what they take, and the results that platforms draw."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from interpreter_bot import values
from interpreter_bot.platforms.rendering import session_facts
from interpreter_bot.sessions import requests, session_service
from interpreter_bot.wording import access_words

OpenCopy: TypeAlias = Callable[[], contextlib.AbstractAsyncContextManager[tuple[str, str]]]
"""Opens a thread for a copy; gives its id and a link to it. If the block raises, it is deleted."""


def _only_for_yourself() -> Mapping[str, str]:
    return dict.fromkeys(("channel", "server"), access_words.ONLY_FOR_YOURSELF)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a command is given: a conversation, and the person who gives it.

    Attributes:
        scope: the narrowest of the choices that hold here.
        settings: those that can be chosen here, and what the operator chose for each.
        refusals: why the person may choose for no channel or server, by `channel` and `server`;
            empty if they may.
        is_own: nobody else uses the place, so the person may choose for it.
        when: writes a moment, in seconds since the epoch, as the person reads it.
        file_bytes: the largest file that can be sent here; None if there is no limit.
        open_copy: opens a thread for a copy; None if the platform copies in its own way.
        stop_running: stops what the person may stop here, says whether anything ran; by default
            all that runs here.
    """

    service: session_service.SessionService
    key: values.SessionKey
    person: requests.Person
    scope: values.Scope
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    refusals: Mapping[str, str] = dataclasses.field(default_factory=_only_for_yourself)
    is_own: bool = False
    when: Callable[[float], str] = session_facts.in_utc
    file_bytes: int | None = None
    open_copy: OpenCopy | None = None
    stop_running: Callable[[], Awaitable[bool]] | None = None

    async def stop(self) -> bool:
        """Stop what the person may stop here; say whether anything ran.

        Raises:
            BotError: it is not theirs to stop.
        """
        if self.stop_running is not None:
            return await self.stop_running()
        return await self.service.stop(self.key)

    def refusal(self, scope: values.Scope) -> str:
        """Return why the person may not administer a scope around here; empty if they may."""
        if self.is_own and scope == self.scope.place:
            return ""
        return self.refusals.get("channel" if scope.channel or scope.person else "server", "")


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    """A sentence; `link` is in the platform's own markup."""

    text: str
    link: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """A list of facts; `has_names`: their labels are names, to be shown as they are."""

    title: str
    facts: Sequence[session_facts.Fact]
    has_names: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class FileSent:
    """A file; without data it is one of the conversation's files."""

    name: str
    data: bytes | None = None
    about: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Private:
    """Words for the person alone; with `url` a link, and words about it."""

    text: str
    url: str = ""
    label: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Code to be run as a request."""

    code: str


@dataclasses.dataclass(frozen=True, slots=True)
class Help:
    """The commands that do something here."""

    commands: Sequence[Command]


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """Field of a form: a selection if it has choices, else a text."""

    name: str
    label: str
    value: str = ""
    choices: Sequence[str] = ()
    max_characters: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """A form that the person may fill in; the command's `submit` takes what they entered."""

    title: str
    fields: Sequence[Field]


Result: TypeAlias = Said | Listed | FileSent | Private | Run | Help | Form

Effect: TypeAlias = Callable[[Place, str], Awaitable[Result]]
Submit: TypeAlias = Callable[[Place, str, Mapping[str, str]], Awaitable[Result]]

CHAT_NETWORKS: Final = frozenset({"slack", "discord"})
ALL_PLATFORMS: Final = CHAT_NETWORKS | {"web", "console"}
_FORMS: Final = frozenset({"add", "edit"})
"""Words with which arguments begin that open a form."""


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """What follows a command.

    Attributes:
        choices: all there are; empty if there are others.
        names: those that exist in a place, given the arguments before; None if it is free.
        platforms: on which it is taken.
    """

    name: str
    help: str
    is_required: bool = False
    choices: tuple[str, ...] = ()
    names: Callable[[Place, Sequence[str]], Awaitable[Sequence[str]]] | None = None
    platforms: frozenset[str] = ALL_PLATFORMS

    @property
    def is_switch(self) -> bool:
        """Whether it is either there or not."""
        return self.choices == (self.name,)

    @property
    def usage(self) -> str:
        """The argument as help shows it."""
        usage = "|".join(self.choices) or self.name.upper()
        return usage if self.is_required else f"[{usage}]"


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A row of the table.

    Attributes:
        help: what the command does, in a sentence.
        effect: what it does; None if each platform does it in its own way.
        submit: what it does with what was entered into its form; None if it has no form.
        platforms: on which it is offered.
        needs: what has to be on for it to do anything.
        is_public: everybody in a channel sees its result.
        is_request: it becomes a request that runs code.
        aliases: other names, each with the argument that it begins with.
        questions: what is asked first, and the button's label, by the argument, if it came as
            words.
    """

    name: str
    help: str
    effect: Effect | None = None
    arguments: tuple[Argument, ...] = ()
    platforms: frozenset[str] = ALL_PLATFORMS
    needs: Literal["", "models", "network", "tools", "logins", "page", "memory", "schedules"] = ""
    is_public: bool = False
    is_request: bool = False
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    questions: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    submit: Submit | None = None

    def opens_form(self, argument: str) -> bool:
        """Return whether the command answers with a form."""
        return self.submit is not None and not _FORMS.isdisjoint(argument.split()[:1])

    def usage(self, platform: str) -> str:
        """Return the command as people write it, without a slash."""
        return " ".join([self.name, *(argument.usage for argument in self.arguments_on(platform))])

    def arguments_on(self, platform: str) -> Sequence[Argument]:
        """Return the arguments that it takes on a platform."""
        return [argument for argument in self.arguments if platform in argument.platforms]


@dataclasses.dataclass(frozen=True, slots=True)
class Invocation:
    """A command as a person typed it, and its argument."""

    command: Command
    argument: str = ""
