"""Types of commands: the place where one is given, its arguments, and the results to show."""

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
"""Opens a thread for a copy; yields its id and a link. If the block raises, it is deleted."""


def _default_refusals() -> Mapping[str, str]:
    return dict.fromkeys(("channel", "server"), access_words.ONLY_FOR_YOURSELF)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a command is given: a conversation, and the person who gives it.

    Attributes:
        scope: the narrowest scope for which the person can choose here.
        settings: the names of settings that can be chosen here, each with the operator's value.
        refusals: why the person may not choose for the `channel` or the `server`; a key is missing
            if they may.
        is_own: nobody else uses the place, so the person may choose for it.
        format_time: writes a moment, in seconds since the epoch, as the person reads it.
        file_bytes: the largest file that can be sent here; None if there is no limit.
        open_copy: opens a thread for a copy; None if the platform copies in its own way.
        stop_running: stops what the person may stop here, and returns whether anything ran; by
            default, everything here is stopped.
    """

    service: session_service.SessionService
    key: values.SessionKey
    person: requests.Person
    scope: values.Scope
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    refusals: Mapping[str, str] = dataclasses.field(default_factory=_default_refusals)
    is_own: bool = False
    format_time: Callable[[float], str] = session_facts.format_utc
    file_bytes: int | None = None
    open_copy: OpenCopy | None = None
    stop_running: Callable[[], Awaitable[bool]] | None = None

    async def stop(self) -> bool:
        """Stop what the person may stop here; return whether anything ran.

        Raises:
            BotError: the person may not stop it.
        """
        if self.stop_running is not None:
            return await self.stop_running()
        return await self.service.stop(self.key)

    def refusal(self, scope: values.Scope) -> str:
        """Return why the person may not administer a scope around this place; empty if they may."""
        if self.is_own and scope == self.scope.place:
            return ""
        return self.refusals.get("channel" if scope.channel or scope.person else "server", "")


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, and perhaps a link in the platform's own markup."""

    text: str
    link: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class FactList:
    """A list of facts; with `has_names`, their labels are names and are not capitalized."""

    title: str
    facts: Sequence[session_facts.Fact]
    has_names: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class FileResult:
    """A file; without data, it is the conversation's file of that name."""

    name: str
    data: bytes | None = None
    about: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class PrivateSentence:
    """A sentence for the person alone, and perhaps a link with its label."""

    text: str
    url: str = ""
    label: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class CodeToRun:
    """Code that the platform runs as a request."""

    code: str


@dataclasses.dataclass(frozen=True, slots=True)
class Help:
    """The commands that do something here."""

    commands: Sequence[Command]


@dataclasses.dataclass(frozen=True, slots=True)
class FormField:
    """Field of a form: a selection if it has choices, else a text."""

    name: str
    label: str
    value: str = ""
    choices: Sequence[str] = ()
    max_characters: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """A form; the command's `submit` receives what the person entered."""

    title: str
    fields: Sequence[FormField]


Result: TypeAlias = Sentence | FactList | FileResult | PrivateSentence | CodeToRun | Help | Form

Effect: TypeAlias = Callable[[Place, str], Awaitable[Result]]
Submit: TypeAlias = Callable[[Place, str, Mapping[str, str]], Awaitable[Result]]

CHAT_NETWORKS: Final = frozenset({"slack", "discord"})
ALL_PLATFORMS: Final = CHAT_NETWORKS | {"web", "console"}
_FORM_ACTIONS: Final = frozenset({"add", "edit"})
"""An argument that begins with one of these opens a form."""


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a command.

    Attributes:
        choices: all possible values; empty if other values are possible.
        names: returns the values that exist in a place, given the earlier arguments; None if any
            text is possible.
        platforms: where it is accepted.
    """

    name: str
    help: str
    is_required: bool = False
    choices: tuple[str, ...] = ()
    names: Callable[[Place, Sequence[str]], Awaitable[Sequence[str]]] | None = None
    platforms: frozenset[str] = ALL_PLATFORMS

    @property
    def is_switch(self) -> bool:
        """Whether its only value is its name, so that it is given or not."""
        return self.choices == (self.name,)

    @property
    def usage(self) -> str:
        """The argument as help shows it."""
        usage = "|".join(self.choices) or self.name.upper()
        return usage if self.is_required else f"[{usage}]"


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        help: says in a sentence what the command does.
        effect: carries it out; None if each platform does that in its own way.
        submit: carries out what was entered into its form; None if it has no form.
        platforms: where it is offered.
        needs: the feature without which it does nothing.
        is_public: everybody in a channel sees its result.
        is_request: it becomes a request that runs code.
        aliases: other names, each with the first argument that it stands for.
        confirmations: by argument, the question that is asked first and the label of its button,
            if a chat message without a slash gave the command.
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
    confirmations: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    submit: Submit | None = None

    def opens_form(self, argument: str) -> bool:
        """Return whether the command answers with a form."""
        return self.submit is not None and not _FORM_ACTIONS.isdisjoint(argument.split()[:1])

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
