"""The one table of commands: name, help, argument, where, effect.

Slack's words, help and manifest hint, Discord's tree, the page's and the terminal's list, help and
completion are made from it. An effect returns one of a few results, which each platform draws by
one function. Commands without an effect are done by each platform in its own way.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms import preferences
from interpreter_bot.platforms.rendering import session_facts, stop_words
from interpreter_bot.sessions import (
    approval_policy,
    places,
    requests,
    schedule_texts,
    session_service,
)
from interpreter_bot.text import quantities
from interpreter_bot.wording import (
    access_words,
    command_words,
    file_words,
    model_words,
    place_words,
    run_words,
    schedule_words,
    session_words,
)

_SHAPE: Final = re.compile(r"/([A-Za-z][A-Za-z0-9_-]*)[?!.:,;]*(?:\s+(.*))?\Z", re.DOTALL)
_WORDS: Final = re.compile(r"([A-Za-z]+)(?:\s+(.*))?\Z", re.DOTALL)
_SIGNS_OF_CODE: Final = re.compile(r"[=()\[\]{}:#\"`+*/\\%!_\n]|\A\W*\w+\W*\Z")
_MIN_LIKENESS: Final = 0.6
# With a capital it may as well be the name of a folder.
_MIN_LIKENESS_OF_NAMES: Final = 0.75
_MAX_FILES: Final = 100
_MAX_SHOWN_CHARACTERS: Final = 500
# Discord's forms have no more.
_MAX_FIELDS: Final = 5
NO_TURN: Final = 0
"""The id of no turn: there is nothing to undo."""

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

_CHAT_NETWORKS: Final = frozenset({"slack", "discord"})
_SCOPES: Final = {"me": "me", "channel": "channel", "server": "server", "workspace": "server"}
_ALL_PLATFORMS: Final = _CHAT_NETWORKS | {"web", "console"}
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
    platforms: frozenset[str] = _ALL_PLATFORMS

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
    platforms: frozenset[str] = _ALL_PLATFORMS
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


async def _py(_: Place, code: str) -> Result:
    return Run(code)


async def _again(place: Place, _: str) -> Result:
    return Run("\n\n".join(await place.service.branches.lost_cells(place.key)))


async def _stop(place: Place, _: str) -> Result:
    if not await place.stop():
        raise errors.BotError(run_words.NOTHING_RUNS)
    return Said(command_words.STOPPING)


async def _reset(place: Place, choice: str) -> Result:
    await place.service.reset(place.key, files=bool(choice))
    return Said(session_words.reset(files_deleted=bool(choice)))


async def _undo(place: Place, turn_id: str) -> Result:
    """Take the last answer back; with the id of a turn, only if that is the last one."""
    undone = await place.service.branches.undo(place.key, turn_id=int(turn_id) if turn_id else None)
    return Said(session_words.undone(undone.request, undone.missed_runs, undone.files_notice))


async def _fork(place: Place, _: str) -> Result:
    if place.open_copy is None:
        raise errors.BotError(session_words.NO_THREAD_FOR_COPY)
    async with place.open_copy() as (thread, link):
        copy = dataclasses.replace(place.key, thread=thread)
        await place.service.branches.fork(place.key, copy, place.person.id)
    return Said(session_words.COPIED, link)


async def _files(place: Place, name: str) -> Result:
    if name:
        return FileSent(name)
    files = await place.service.queries.files(place.key)
    if not files:
        return Said(file_words.NONE)
    newest = sorted(files, key=lambda file: file.modified_ns, reverse=True)
    facts = [
        session_facts.Fact(
            file.name,
            f"{quantities.size(file.size_bytes)}, {place.when(file.modified_ns // 10**9)}",
        )
        for file in newest[:_MAX_FILES]
    ]
    if len(files) > _MAX_FILES:
        facts.append(session_facts.Fact("…", f"{len(files) - _MAX_FILES:,} more"))
    return Listed(command_words.FILES_TITLE, facts, has_names=True)


async def _variables(place: Place, _: str) -> Result:
    variables = await place.service.queries.variables(place.key)
    return Listed("Variables", session_facts.variables(variables, when=place.when))


async def _notebook(place: Place, _: str) -> Result:
    data = await place.service.queries.notebook(place.key)
    return FileSent("conversation.ipynb", data, file_words.NOTEBOOK)


async def _page(place: Place, _: str) -> Result:
    link = await place.service.visits.link(place.key)
    return Private(session_words.ABOUT_PAGE_LINK, link, session_words.PAGE_LINK)


async def _model(place: Place, words: str) -> Result:
    service, models = place.service, place.service.queries.models
    if not models:
        return Said(service.model_notice or model_words.NONE)
    if words:
        is_default = words.lower() == command_words.DEFAULT and words not in models
        await service.choose_model(
            place.key, None if is_default else preferences.model_title(words, models)
        )
        return Said(model_words.now_used(str(await service.queries.model(place.key))))
    return Listed("Models", session_facts.models(models, await service.queries.model(place.key)))


async def _usage(place: Place, _: str) -> Result:
    usage = await place.service.queries.usage(place.key, place.person)
    return Listed("Usage", session_facts.usage(usage))


async def _limits(place: Place, _: str) -> Result:
    queries = place.service.queries
    facts = session_facts.limits(queries.limits, queries.kernels, queries.sandbox_level)
    if place.file_bytes is not None:
        size = quantities.size(place.file_bytes)
        facts.append(session_facts.Fact(command_words.FILE_SENT_HERE, size))
    return Listed(command_words.CODE_LIMITS, facts)


async def _network(place: Place, _: str) -> Result:
    return Listed("Network", session_facts.network(place.service.queries.reach(place.key)))


async def _tools(place: Place, _: str) -> Result:
    tools = await place.service.queries.tools(place.key, place.person)
    return Listed("Tools", session_facts.tools(tools))


async def _connect(place: Place, server: str) -> Result:
    return Private(await place.service.logins.link(place.key, place.person, server))


async def _disconnect(place: Place, server: str) -> Result:
    return Said(await place.service.logins.forget(place.key, place.person.id, server))


async def _settings(place: Place, text: str) -> Result:
    """Show the settings in effect; with a value, choose it."""
    name, value, scope = _words_of_setting(text)
    if name and name not in place.settings:
        raise errors.BotError(access_words.no_such_setting(", ".join(place.settings)))
    models = place.service.queries.models
    if not value:
        facts = [
            session_facts.Fact(
                setting_name,
                f"{await _holds(place, setting_name)} ({access_words.SETTINGS[setting_name]})",
            )
            for setting_name in ([name] if name else place.settings)
        ]
        if name:
            choices = (*preferences.possible_values(name, models), command_words.DEFAULT)
            facts.append(session_facts.Fact(access_words.POSSIBLE_VALUES, ", ".join(choices)))
        return Listed(access_words.SETTINGS_TITLE, facts, has_names=True)
    widest = _SCOPES[scope]
    if refusal := place.refusals.get(widest):
        raise errors.BotError(refusal)
    parsed_value = preferences.parse(name, value, models)
    scope_of_choice, author = _scope_of_choice(place.scope, widest), place.person.name
    await place.service.choose(
        scope_of_choice, name, parsed_value, author=author or place.person.id
    )
    sentences = [access_words.setting_changed(name, preferences.written(parsed_value), scope)]
    holds = await _holds(place, name)
    if holds != preferences.written(parsed_value):
        if name == preferences.APPROVAL and parsed_value is not None:
            sentences.append(access_words.WEAKER)
        sentences.append(access_words.in_effect(holds))
    return Said(" ".join(sentences))


async def _place(place: Place, action: str) -> Result:
    """Show what holds in a place; with an action, open the form in which it is chosen."""
    if action:
        fields = [
            Field(name, place_words.LABELS[name], value, *_possible(place, name))
            for name, value in (await _own_choices(place, action)).items()
        ]
        return Form(place_words.FORM_TITLES[len(action.split()) > 1], fields)
    queries, service = place.service.queries, place.service
    choices = await service.places.choices(place.scope)
    facts = [
        session_facts.chosen(choice.name, str(choice.value), choice)
        for choice in choices.of(preferences.INSTRUCTIONS)
    ] or [session_facts.Fact(preferences.INSTRUCTIONS, place_words.NONE)]
    for name in place.settings:
        value = await _holds(place, name)
        origins = [
            choice for choice in choices.of(name) if preferences.written(choice.value) == value
        ]
        facts.append(session_facts.chosen(name, value, origins[-1] if origins else None))
    if service.places.max_notes:
        count = len(await service.places.notes(place.scope))
        facts.append(session_facts.Fact(place_words.NOTES, f"{count:,}"))
    facts += session_facts.offers(
        queries.reach(place.key),
        await queries.tools(place.key, place.person),
        packages=queries.packages(place.key),
        summary=await queries.usage(place.key, place.person),
    )
    return Listed(place_words.TITLE, facts, has_names=True)


async def _submit_place(place: Place, action: str, entered: Mapping[str, str]) -> Result:
    """Store what was entered, as far as it was changed."""
    changed: dict[str, object | None] = {}
    for name, value in (await _own_choices(place, action)).items():
        text = entered.get(name, value).strip()
        if text == value:
            continue
        if name == preferences.INSTRUCTIONS:
            changed[name] = text or None
        else:
            changed[name] = preferences.parse(name, text, place.service.queries.models)
    scope, author = _scope_of_form(place, action), place.person.name or place.person.id
    for name, chosen in changed.items():
        await place.service.choose(scope, name, chosen, author=author)
    return Said(place_words.saved(", ".join(changed)) if changed else place_words.UNCHANGED)


def _scope_of_form(place: Place, action: str) -> values.Scope:
    """Return the scope that a form is about, if the person administers it.

    Raises:
        BotError: they do not.
    """
    here = place.scope.place
    is_wider = len(action.split()) > 1
    scope = dataclasses.replace(here, channel="", person="") if is_wider else here
    if refusal := place.refusal(scope):
        raise errors.BotError(refusal)
    return scope


async def _own_choices(place: Place, action: str) -> Mapping[str, str]:
    """Return what was chosen for the scope of a form, by what can be chosen in it.

    Raises:
        BotError: nothing can be chosen there, or not by this person.
    """
    scope = _scope_of_form(place, action)
    choices = (await place.service.places.choices(scope)).entries
    own = {choice.name: choice for choice in choices if choice.scope == scope}
    names = [
        name
        for name in (preferences.INSTRUCTIONS, *place.settings)
        if not (name in own and own[name].is_fixed)
    ]
    if not names:
        raise errors.BotError(place_words.FIXED)
    return {
        name: ("" if name == preferences.INSTRUCTIONS else command_words.DEFAULT)
        if name not in own
        else preferences.written(own[name].value)
        for name in names[:_MAX_FIELDS]
    }


def _possible(place: Place, name: str) -> tuple[Sequence[str], int]:
    """Return the choices of a field, and how many characters it takes."""
    if name == preferences.INSTRUCTIONS:
        return (), settings.MAX_INSTRUCTION_CHARACTERS
    models = place.service.queries.models
    return (command_words.DEFAULT, *preferences.possible_values(name, models)), 0


async def _memory(place: Place, text: str) -> Result:
    """List the notes of a place, open a form for one, or forget some."""
    service = place.service
    if not service.places.max_notes:
        raise errors.BotError(place_words.MEMORY_OFF)
    action, _, about = text.partition(" ")
    match action, about:
        case "", "":
            return await _list_notes(place)
        case "add", "" | "server" | "workspace":
            _scope_of_note(place, about)
            return _note_form(place_words.NEW_NOTE, "")
        case "edit", _ if about:
            return _note_form(place_words.CHANGE_NOTE, (await _note(place, about)).text)
        case "forget", "all":
            await service.places.forget_all(_scope_of_form(place, ""))
            return Said(place_words.ALL_FORGOTTEN)
        case "forget", _ if about:
            await service.places.forget(await _note(place, about))
            return Said(place_words.FORGOTTEN)
    raise errors.BotError(place_words.MEMORY_USAGE)


async def _submit_note(place: Place, text: str, entered: Mapping[str, str]) -> Result:
    """Keep a note that a person wrote or changed."""
    memory, note = place.service.places, entered.get(place_words.NOTE, "")
    action, _, about = text.partition(" ")
    if not memory.max_notes:
        raise errors.BotError(place_words.MEMORY_OFF)
    if action == "add":
        await memory.remember(_scope_of_note(place, about), note, place.person)
        return Said(place_words.REMEMBERED)
    await memory.change_note(await _note(place, about), note)
    return Said(place_words.NOTE_CHANGED)


def _note_form(title: str, text: str) -> Form:
    field = Field(
        place_words.NOTE, place_words.NOTE_LABEL, text, max_characters=values.MAX_NOTE_CHARACTERS
    )
    return Form(title, [field])


def _scope_of_note(place: Place, about: str) -> values.Scope:
    """Return the scope of a new note: everybody adds to a channel, administrators to a server.

    Raises:
        BotError: the person may not.
    """
    return _scope_of_form(place, f"add {about}") if about else place.scope.place


async def _note(place: Place, number: str) -> places.Note:
    """Return a note if the person may change it: who confirmed it, or an administrator.

    Raises:
        BotError: they may not, or there is none here.
    """
    note = await place.service.places.find_note(place.scope, number)
    if note.confirmed_by != place.person.id and place.refusal(note.scope):
        raise errors.BotError(place_words.NOT_YOUR_NOTE)
    return note


async def _list_notes(place: Place) -> Result:
    memory = place.service.places
    notes = await memory.notes(place.scope)
    if not notes:
        return Said(place_words.NOTHING_REMEMBERED)
    facts = [session_facts.note(note, when=place.when) for note in notes]
    if untold_count := len(notes) - len(memory.told(notes)):
        facts.insert(0, session_facts.Fact("…", place_words.not_told(untold_count)))
    return Listed(place_words.MEMORY, facts, has_names=True)


def _words_of_setting(text: str) -> tuple[str, str, str]:
    """Split an argument into the name of a setting, a value and for whom it is."""
    name, *words = text.split() or [""]
    scope = words.pop().lower() if words and words[-1].lower() in _SCOPES else ""
    return name.lower(), " ".join(words), scope or "me"


async def _holds(place: Place, name: str) -> str:
    """Return the value of a setting that is in effect."""
    queries, default = place.service.queries, place.settings[name]
    if name == preferences.APPROVAL:
        return await queries.approval(place.scope, approval_policy.strictest(default))
    choices = await queries.choices(place.scope)
    return preferences.written(getattr(preferences.effective(choices, place.settings), name))


def _scope_of_choice(scope: values.Scope, widest: str) -> values.Scope:
    match widest:
        case "channel":
            return dataclasses.replace(scope, person="")
        case "server":
            return dataclasses.replace(scope, person="", channel="")
    return dataclasses.replace(scope, workspace="", channel="")


async def _schedule(place: Place, text: str) -> Result:
    limits = place.service.schedules.limits
    if not limits.per_person:
        raise errors.BotError(schedule_words.OFF)
    plan = schedule_texts.parse(
        text,
        zone=place.person.zone,
        now=place.service.schedules.now(),
        min_minutes=limits.min_minutes,
    )
    return Run(schedule_texts.as_code(plan.text))


async def _schedules(place: Place, text: str) -> Result:
    """List schedules, or do something with one."""
    schedules, key, person = place.service.schedules, place.key.place, place.person.id
    if not text:
        facts = [
            session_facts.Fact(str(listed_schedule.id), schedules.described(listed_schedule))
            for listed_schedule in await schedules.visible(key, person)
        ]
        return Listed(command_words.SCHEDULES, facts) if facts else Said(schedule_words.NONE)
    action, _, number = text.lower().partition(" ")
    if action not in _SCHEDULE_ACTIONS or place.key.platform == "console":
        raise errors.BotError(schedule_words.ACTIONS)
    is_admin = "channel" not in place.refusals
    schedule = await schedules.find(key, person, number.strip(), is_admin=is_admin)
    if action in ("resume", "run") and schedule.channel != key.channel:
        # Not all networks say whether the owner can still be there.
        raise errors.BotError(schedule_words.ONLY_THERE)
    match action:
        case "pause":
            await schedules.pause(schedule)
            return Said(schedule_words.PAUSED_BY_PERSON)
        case "resume":
            return Said(schedule_words.resumed(await schedules.resume(schedule)))
        case "run":
            await schedules.run_now(schedule)
            return Said(schedule_words.STARTED)
        case "delete":
            await schedules.delete(schedule)
            return Said(schedule_words.DELETED)
    facts = [session_facts.Fact(*run) for run in await schedules.history(schedule)]
    return Listed(command_words.SCHEDULE_RUNS, facts) if facts else Said(schedule_words.NO_RUNS)


async def _help(place: Place, _: str) -> Result:
    queries = place.service.queries
    reach = queries.reach(place.key)
    servers = await queries.tools(place.key, place.person)
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
    commands = offered(place.key.platform).values()
    return Help([command for command in commands if is_on[command.needs]])


async def _schedule_actions(_: Place, __: Sequence[str]) -> Sequence[str]:
    return _SCHEDULE_ACTIONS


async def _schedule_numbers(place: Place, _: Sequence[str]) -> Sequence[str]:
    visible = await place.service.schedules.visible(place.key.place, place.person.id)
    return [str(schedule.id) for schedule in visible]


async def _file_names(place: Place, _: Sequence[str]) -> Sequence[str]:
    return [file.name for file in await place.service.queries.files(place.key)]


async def _model_names(place: Place, _: Sequence[str]) -> Sequence[str]:
    return (*place.service.queries.models, command_words.DEFAULT)


async def _server_names(place: Place, _: Sequence[str]) -> Sequence[str]:
    servers = await place.service.queries.tools(place.key, place.person)
    return [server.server for server in servers if server.is_logged_in is not None]


async def _note_actions(place: Place, _: Sequence[str]) -> Sequence[str]:
    notes = await place.service.places.notes(place.scope)
    wider = [word for word, scope in _SCOPES.items() if scope == "server"]
    numbered = [f"{action} {note.id}" for note in notes for action in ("edit", "forget")]
    return ["add", *(f"add {word}" for word in wider), "forget all", *numbered]


async def _setting_names(place: Place, _: Sequence[str]) -> Sequence[str]:
    return tuple(place.settings)


async def _setting_values(place: Place, before: Sequence[str]) -> Sequence[str]:
    name = "".join(before[:1])
    if name not in place.settings:
        return ()
    models = place.service.queries.models
    return (*preferences.possible_values(name, models), command_words.DEFAULT)


_SCHEDULE_ACTIONS: Final = ("pause", "resume", "run", "history", "delete")
_SERVER: Final = Argument(
    "name", "The server, as “tools” lists it", is_required=True, names=_server_names
)

COMMANDS: Final = (
    Command(
        "py",
        "Run your own Python, without a model; it may span several lines.",
        _py,
        (Argument("code", "The code to run; without it, an editor opens", is_required=True),),
        is_request=True,
    ),
    Command(
        "again", "Rebuild lost variables by running their code again.", _again, is_request=True
    ),
    Command("stop", "Stop the running code; variables are kept.", _stop, is_public=True),
    Command(
        "reset",
        "Restart Python without variables and history; files are kept.",
        _reset,
        (Argument("files", "Delete the files in /mnt/data as well", choices=("files",)),),
        is_public=True,
        questions={
            "": (command_words.RESET_QUESTION, "Reset"),
            "files": (command_words.RESET_FILES_QUESTION, "Reset and delete"),
        },
    ),
    Command(
        "undo",
        "Go back to before the last answer: variables, files and history.",
        _undo,
        platforms=_ALL_PLATFORMS - {"console"},
        is_public=True,
        questions={"": (command_words.UNDO_QUESTION, "Undo")},
    ),
    Command(
        "fork",
        "Continue in a copy of this conversation: variables, files and history.",
        _fork,
        platforms=_ALL_PLATFORMS - {"console"},
        is_public=True,
    ),
    Command(
        "files",
        "List the files of this conversation.",
        _files,
        (Argument("name", "The file to get", names=_file_names, platforms=_CHAT_NETWORKS),),
    ),
    Command("variables", "List variables and what is saved.", _variables),
    Command(
        "notebook",
        "Get this conversation as a notebook.",
        _notebook,
        platforms=_ALL_PLATFORMS - {"console"},
    ),
    Command(
        "page",
        "Get a link to read this conversation on the page.",
        _page,
        platforms=_CHAT_NETWORKS,
        needs="page",
    ),
    Command(
        "model",
        "List the models, or switch this conversation to one.",
        _model,
        (Argument("name", "The model to use", names=_model_names),),
        needs="models",
    ),
    Command(
        "settings",
        "View or change settings; in chats for you, a channel or everybody.",
        _settings,
        (
            Argument("name", "The setting", names=_setting_names),
            Argument("value", "New value; default resets it", names=_setting_values),
            Argument(
                "scope",
                "For whom",
                choices=("me", "channel", "server"),
                platforms=frozenset({"discord"}),
            ),
            Argument(
                "scope",
                "For whom",
                choices=("me", "channel", "workspace"),
                platforms=frozenset({"slack"}),
            ),
        ),
        aliases={"approval": preferences.APPROVAL, "follow": preferences.FOLLOW_THREADS},
    ),
    Command(
        "place",
        "Show what applies here, such as instructions; administrators can edit it.",
        _place,
        (
            Argument(
                "action",
                "Edit it, for this channel or the whole workspace",
                choices=("edit", "edit workspace"),
                platforms=frozenset({"slack"}),
            ),
            Argument(
                "action",
                "Edit it, for this channel or the whole server",
                choices=("edit", "edit server"),
                platforms=frozenset({"discord"}),
            ),
            Argument("action", "Edit it", choices=("edit",), platforms=frozenset({"web"})),
        ),
        submit=_submit_place,
    ),
    Command(
        "memory",
        "List what I remember here; add, edit or forget a note.",
        _memory,
        (Argument("action", "add, edit 3, forget 3 or forget all", names=_note_actions),),
        platforms=_ALL_PLATFORMS - {"console"},
        needs="memory",
        submit=_submit_note,
    ),
    Command(
        "schedule",
        "Do something at set times.",
        _schedule,
        (
            Argument(
                "text",
                "When, zone and what, such as: weekdays 9:00 Europe/Berlin: refresh the chart",
                is_required=True,
            ),
        ),
        platforms=_ALL_PLATFORMS - {"console"},
        needs="schedules",
        is_request=True,
    ),
    Command(
        "schedules",
        "List schedules; pause, resume, run or delete one, or list its runs.",
        _schedules,
        (
            Argument("action", "What to do with one", names=_schedule_actions),
            Argument("number", "Its number", names=_schedule_numbers),
        ),
        needs="schedules",
    ),
    Command("usage", "Show tokens and cost.", _usage),
    Command("limits", "List the limits of a conversation.", _limits),
    Command("network", "List the hosts and data that code may reach.", _network, needs="network"),
    Command("tools", "List tools that your code can call.", _tools, needs="tools"),
    Command(
        "connect",
        "Log in at a tool server, so that tools act as you.",
        _connect,
        (_SERVER,),
        needs="logins",
    ),
    Command(
        "disconnect",
        "Log out of a tool server, and delete your login.",
        _disconnect,
        (_SERVER,),
        needs="logins",
    ),
    Command("help", "List the commands.", _help),
    Command("exit", "End the chat.", platforms=frozenset({"console"})),
)


def offered(platform: str) -> dict[str, Command]:
    """Return the commands of a platform by their names, in the order of the help."""
    return {command.name: command for command in COMMANDS if platform in command.platforms}


def parse(text: str, platform: str, *, is_code: bool = False) -> Invocation | None:
    """Parse a command behind a slash, in letters of any case; None if the text is something else.

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
    if named := _named(word, argument, platform):
        return _invocation(*named, platform)
    elsewhere = [row for row in COMMANDS if row.name == word.lower()]
    if elsewhere and not is_code:
        raise errors.BotError(command_words.works_elsewhere(word, elsewhere[0].platforms))
    likeness = _MIN_LIKENESS if word.islower() else _MIN_LIKENESS_OF_NAMES
    alike = difflib.get_close_matches(word.lower(), commands, 1, likeness)
    if is_code or not (word.islower() or alike):
        return None
    raise errors.BotError(command_words.unknown(word, alike[0] if alike else ""))


def _named(word: str, argument: str, platform: str) -> tuple[Command, str] | None:
    """Return the command that a word names on a platform, also by an alias, and its argument."""
    for command in offered(platform).values():
        if command.name == word.lower():
            return command, argument
        if word.lower() in command.aliases:
            return command, f"{command.aliases[word.lower()]} {argument}"
    return None


def _invocation(command: Command, text: str, platform: str) -> Invocation:
    """Check a command's argument.

    Raises:
        BotError: it has one that it does not take, or lacks the one that it needs.
    """
    arguments = command.arguments_on(platform)
    # The indentation of code counts.
    text = text if command.name == "py" else text.strip()
    if not arguments:
        if text:
            raise errors.BotError(command_words.takes_nothing(command.name))
        return Invocation(command)
    if arguments[0].choices:
        text = text.lower()
        if text not in ("", *arguments[0].choices):
            raise errors.BotError(command_words.write_as(f"/{command.usage(platform)}"))
    if arguments[0].is_required and not text.strip():
        raise errors.BotError(command_words.write_as(f"/{command.usage(platform)}"))
    return Invocation(command, text)


def parse_words(text: str, platform: str) -> Invocation | None:
    """Parse a message that may be a command in words: "reset files" is one, "reset the index" not.

    Whether a name that it gives exists is for `names_something` to say.
    """
    commands = offered(platform)
    if stop_words.is_stop(text):
        return Invocation(commands["stop"])
    match = _WORDS.match(text.strip())
    named = _named(match[1], match[2] or "", platform) if match else None
    if named is None:
        return None
    try:
        invocation = _invocation(*named, platform)
    except errors.BotError:
        return None
    return None if named[0].name == "py" and _is_prose(invocation.argument) else invocation


def _is_prose(text: str) -> bool:
    """Return whether what follows `py` is words: nothing of it looks like code, and it is none."""
    if _SIGNS_OF_CODE.search(text):
        return False
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return True
    return False


async def names_something(invocation: Invocation, place: Place) -> bool:
    """Return whether what a command names exists, such as a file; true if it names nothing."""
    arguments = invocation.command.arguments_on(place.key.platform)
    if not invocation.argument or not arguments or arguments[0].names is None:
        return True
    if len(arguments) == 1:
        return invocation.argument in await arguments[0].names(place, ())
    if invocation.command.effect is _schedules:
        action, _, number = invocation.argument.lower().partition(" ")
        return action in _SCHEDULE_ACTIONS and number.strip().isdecimal()
    name, value, _ = _words_of_setting(invocation.argument)
    is_whole = value or len(invocation.argument.split()) == 1
    possible = await _setting_values(place, (name,))
    return (
        bool(is_whole)
        and name in place.settings
        and value.casefold()
        in (
            "",
            *map(str.casefold, possible),
        )
    )


async def run(
    invocation: Invocation, place: Place, entered: Mapping[str, str] | None = None
) -> Result:
    """Do what a command of the table does by itself.

    Args:
        invocation: the command.
        place: where it is given.
        entered: what was entered into the form that it opened, by the names of its fields.

    Raises:
        BotError: it cannot be done; the sentence says why.
    """
    command = invocation.command
    if entered is not None and command.submit is not None:
        return await command.submit(place, invocation.argument, entered)
    if command.effect is None or entered is not None:
        raise errors.BotError(command_words.not_offered(command.name))
    return await command.effect(place, invocation.argument)


async def code_of(invocation: Invocation, place: Place) -> str:
    """Return the code of a command that becomes a request.

    Raises:
        BotError: there is nothing to be run.
    """
    result = await run(invocation, place)
    return result.code if isinstance(result, Run) else ""


def rows(result: Listed | Help, platform: str) -> Sequence[session_facts.Fact]:
    """Return the lines of a list, for platforms whose commands stand behind a slash."""
    if isinstance(result, Listed):
        return result.facts
    return [
        session_facts.Fact(f"/{command.usage(platform)}", command.help)
        for command in result.commands
    ]


async def completions(text: str, place: Place) -> list[tuple[str, int, str]]:
    """Complete a command behind a slash, or its argument.

    Returns:
        Words, how many characters of each are typed, and what it is.
    """
    platform = place.key.platform
    name, space, typed = text[1:].partition(" ")
    commands = offered(platform)
    if not space:
        return [
            (f"/{row.name}{' ' if row.arguments_on(platform) else ''}", len(text), row.help)
            for row in commands.values()
            if row.name.startswith(name.lower())
        ]
    named = _named(name, typed.lstrip(), platform)
    arguments = named[0].arguments_on(platform) if named else ()
    if named is None or not arguments:
        return []
    before: Sequence[str] = ()
    typed = named[1]
    if len(arguments) > 1:
        *before, typed = typed.split(" ")
    argument = arguments[min(len(before), len(arguments) - 1)]
    names = await argument.names(place, before) if argument.names else argument.choices
    return [
        (word, len(typed), argument.help)
        for word in names
        if word.lower().startswith(typed.lower())
    ]


async def pinned(invocation: Invocation, place: Place) -> Invocation:
    """Return a command as a button holds it: it undoes the answer that is the last one now."""
    if invocation.command.name != "undo":
        return invocation
    past = await place.service.queries.history(place.key, limit=1)
    return dataclasses.replace(invocation, argument=str(past[-1].record.id if past else NO_TURN))
