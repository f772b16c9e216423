"""The effects of commands, and the values that their arguments can have in a place.

An effect takes the place and the argument, and returns a result that every platform can show.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Final

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms import command_types, preferences
from interpreter_bot.platforms.rendering import session_facts
from interpreter_bot.sessions import approval_policy, places, schedule_texts
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

_MAX_LISTED_FILES: Final = 100
# A form of Discord has at most five.
_MAX_FORM_FIELDS: Final = 5
_SCOPE_OF_WORD: Final = {
    "me": "me",
    "channel": "channel",
    "server": "server",
    "workspace": "server",
}
SCHEDULE_ACTIONS: Final = ("pause", "resume", "run", "history", "delete")


async def run_code(_: command_types.Place, code: str) -> command_types.Result:
    return command_types.CodeToRun(code)


async def rebuild_variables(place: command_types.Place, _: str) -> command_types.Result:
    return command_types.CodeToRun(
        "\n\n".join(await place.service.branches.find_lost_cells(place.key))
    )


async def stop(place: command_types.Place, _: str) -> command_types.Result:
    if not await place.stop():
        raise errors.BotError(run_words.NOTHING_RUNS)
    return command_types.Sentence(command_words.STOPPING)


async def reset(place: command_types.Place, argument: str) -> command_types.Result:
    await place.service.reset(place.key, files=bool(argument))
    return command_types.Sentence(session_words.reset_done(files_deleted=bool(argument)))


async def undo(place: command_types.Place, turn_id: str) -> command_types.Result:
    """Undo the last answer; with the id of a turn, only if that turn is the last one."""
    undone = await place.service.branches.undo(place.key, turn_id=int(turn_id) if turn_id else None)
    return command_types.Sentence(
        session_words.answer_undone(undone.request, undone.missed_runs, undone.files_notice)
    )


async def fork(place: command_types.Place, _: str) -> command_types.Result:
    if place.open_copy is None:
        raise errors.BotError(session_words.NO_THREAD_FOR_COPY)
    async with place.open_copy() as (thread, link):
        copy = dataclasses.replace(place.key, thread=thread)
        await place.service.branches.fork(place.key, copy, place.person.id)
    return command_types.Sentence(session_words.COPY_MADE, link)


async def list_files(place: command_types.Place, name: str) -> command_types.Result:
    if name:
        return command_types.FileResult(name)
    files = await place.service.queries.files(place.key)
    if not files:
        return command_types.Sentence(file_words.NO_FILES)
    newest = sorted(files, key=lambda file: file.modified_ns, reverse=True)
    facts = [
        session_facts.Fact(
            file.name,
            f"{quantities.size(file.size_bytes)}, {place.format_time(file.modified_ns // 10**9)}",
        )
        for file in newest[:_MAX_LISTED_FILES]
    ]
    if len(files) > _MAX_LISTED_FILES:
        facts.append(session_facts.Fact("…", f"{len(files) - _MAX_LISTED_FILES:,} more"))
    return command_types.FactList(command_words.FILES_TITLE, facts, has_names=True)


async def list_variables(place: command_types.Place, _: str) -> command_types.Result:
    variables = await place.service.queries.variables(place.key)
    return command_types.FactList(
        "Variables", session_facts.describe_variables(variables, format_time=place.format_time)
    )


async def send_notebook(place: command_types.Place, _: str) -> command_types.Result:
    data = await place.service.queries.export_notebook(place.key)
    return command_types.FileResult("conversation.ipynb", data, file_words.NOTEBOOK_FOLLOWS)


async def link_to_page(place: command_types.Place, _: str) -> command_types.Result:
    link = await place.service.visits.link(place.key)
    return command_types.PrivateSentence(
        session_words.ABOUT_PAGE_LINK, link, session_words.PAGE_LINK
    )


async def choose_model(place: command_types.Place, name: str) -> command_types.Result:
    service, models = place.service, place.service.queries.models
    if not models:
        return command_types.Sentence(service.model_notice or model_words.NO_MODEL)
    find_title = functools.partial(
        service.queries.find_model_title, place.key, person=place.person.id
    )
    if name:
        is_default = name.lower() == command_words.DEFAULT_VALUE and name not in models
        await service.choose_model(
            place.key, None if is_default else preferences.model_title(name, models)
        )
        return command_types.Sentence(model_words.now_used(await find_title()))
    return command_types.FactList("Models", session_facts.list_models(models, await find_title()))


async def show_usage(place: command_types.Place, _: str) -> command_types.Result:
    usage = await place.service.queries.usage(place.key, place.person)
    return command_types.FactList("Usage", session_facts.describe_usage(usage))


async def list_limits(place: command_types.Place, _: str) -> command_types.Result:
    queries = place.service.queries
    facts = session_facts.describe_limits(queries.limits, queries.kernels, queries.sandbox_level)
    if place.file_bytes is not None:
        size = quantities.size(place.file_bytes)
        facts.append(session_facts.Fact(command_words.FILE_SENT_HERE, size))
    return command_types.FactList(command_words.CODE_LIMITS, facts)


async def list_network(place: command_types.Place, _: str) -> command_types.Result:
    return command_types.FactList(
        "Network", session_facts.describe_network(place.service.queries.reach(place.key))
    )


async def list_tools(place: command_types.Place, _: str) -> command_types.Result:
    tools = await place.service.queries.list_tools(place.key, place.person)
    return command_types.FactList("Tools", session_facts.describe_tools(tools))


async def connect(place: command_types.Place, server: str) -> command_types.Result:
    return command_types.PrivateSentence(
        await place.service.logins.create_link_sentence(place.key, place.person, server)
    )


async def disconnect(place: command_types.Place, server: str) -> command_types.Result:
    return command_types.Sentence(
        await place.service.logins.log_out(place.key, place.person.id, server)
    )


async def change_settings(place: command_types.Place, text: str) -> command_types.Result:
    """Show the settings in effect; with a value, change one."""
    name, value, scope = split_setting(text)
    if name and name not in place.settings:
        raise errors.BotError(access_words.no_such_setting(", ".join(place.settings)))
    models = place.service.queries.models
    if not value:
        facts = [
            session_facts.Fact(
                setting_name,
                f"{await _effective_value(place, setting_name)} "
                f"({access_words.SETTING_DESCRIPTIONS[setting_name]})",
            )
            for setting_name in ([name] if name else place.settings)
        ]
        if name:
            choices = (*preferences.possible_values(name, models), command_words.DEFAULT_VALUE)
            facts.append(session_facts.Fact(access_words.POSSIBLE_VALUES, ", ".join(choices)))
        return command_types.FactList(access_words.SETTINGS_TITLE, facts, has_names=True)
    scope_kind = _SCOPE_OF_WORD[scope]
    if refusal := place.refusals.get(scope_kind):
        raise errors.BotError(refusal)
    parsed_value = preferences.parse(name, value, models)
    scope_of_choice, author = _choice_scope(place.scope, scope_kind), place.person.name
    await place.service.places.choose(
        scope_of_choice, name, parsed_value, author=author or place.person.id
    )
    sentences = [access_words.setting_changed(name, preferences.format_value(parsed_value), scope)]
    value_in_effect = await _effective_value(place, name)
    if value_in_effect != preferences.format_value(parsed_value):
        if name == preferences.APPROVAL and parsed_value is not None:
            sentences.append(access_words.WEAKER_THAN_OTHER)
        sentences.append(access_words.value_in_effect(value_in_effect))
    return command_types.Sentence(" ".join(sentences))


async def show_place(place: command_types.Place, action: str) -> command_types.Result:
    """Show what applies in a place; with an action, open the form that changes it."""
    if action:
        fields = [
            command_types.FormField(
                name, place_words.FIELD_LABELS[name], value, *_describe_field(place, name)
            )
            for name, value in (await _find_form_values(place, action)).items()
        ]
        return command_types.Form(place_words.FORM_TITLES[len(action.split()) > 1], fields)
    queries, service = place.service.queries, place.service
    choices = await service.places.choices(place.scope)
    facts = [
        session_facts.describe_choice(choice.name, str(choice.value), choice)
        for choice in choices.of(preferences.INSTRUCTIONS)
    ] or [session_facts.Fact(preferences.INSTRUCTIONS, place_words.NO_INSTRUCTIONS)]
    for name in place.settings:
        value = await _effective_value(place, name)
        deciding_choices = [
            choice for choice in choices.of(name) if preferences.format_value(choice.value) == value
        ]
        facts.append(
            session_facts.describe_choice(
                name, value, deciding_choices[-1] if deciding_choices else None
            )
        )
    if service.places.max_notes:
        count = len(await service.places.notes(place.scope))
        facts.append(session_facts.Fact(place_words.NOTES_LABEL, f"{count:,}"))
    facts += session_facts.list_offers(
        queries.reach(place.key),
        await queries.list_tools(place.key, place.person),
        packages=queries.list_packages(place.key),
        skills=await queries.list_skills(),
        summary=await queries.usage(place.key, place.person),
    )
    return command_types.FactList(place_words.PLACE_TITLE, facts, has_names=True)


async def submit_place(
    place: command_types.Place, action: str, entered: Mapping[str, str]
) -> command_types.Result:
    """Store the entered values that differ from the present ones."""
    changes: dict[str, object | None] = {}
    for name, value in (await _find_form_values(place, action)).items():
        entered_text = entered.get(name, value).strip()
        if entered_text == value:
            continue
        if name == preferences.INSTRUCTIONS:
            changes[name] = entered_text or None
        else:
            changes[name] = preferences.parse(name, entered_text, place.service.queries.models)
    scope, author = _find_form_scope(place, action), place.person.name or place.person.id
    for name, value_or_none in changes.items():
        await place.service.places.choose(scope, name, value_or_none, author=author)
    return command_types.Sentence(
        place_words.choices_saved(", ".join(changes)) if changes else place_words.NOTHING_CHANGED
    )


def _find_form_scope(place: command_types.Place, action: str) -> values.Scope:
    """Return the scope that a form changes.

    Raises:
        BotError: the person may not administer it.
    """
    place_scope = place.scope.place
    if len(action.split()) > 1:
        scope = dataclasses.replace(place_scope, channel="", person="", thread="")
    else:
        scope = place_scope
    if refusal := place.refusal(scope):
        raise errors.BotError(refusal)
    return scope


async def _find_form_values(place: command_types.Place, action: str) -> Mapping[str, str]:
    """Return what was chosen for the scope of a form, by the names of its fields.

    Raises:
        BotError: nothing can be chosen there, or not by this person.
    """
    scope = _find_form_scope(place, action)
    choices = (await place.service.places.choices(scope)).entries
    # People can choose a stricter approval beside the operator's.
    own_choices = {
        choice.name: choice
        for choice in choices
        if choice.scope == scope and not (choice.is_fixed and choice.name == preferences.APPROVAL)
    }
    names = [
        name
        for name in (preferences.INSTRUCTIONS, *place.settings)
        if not (name in own_choices and own_choices[name].is_fixed)
    ]
    if not names:
        raise errors.BotError(place_words.FIXED_BY_OPERATOR)
    return {
        name: ("" if name == preferences.INSTRUCTIONS else command_words.DEFAULT_VALUE)
        if name not in own_choices
        else preferences.format_value(own_choices[name].value)
        for name in names[:_MAX_FORM_FIELDS]
    }


def _describe_field(place: command_types.Place, name: str) -> tuple[Sequence[str], int]:
    """Return the choices of a field, and the most characters it can have; 0 if it has choices."""
    if name == preferences.INSTRUCTIONS:
        return (), settings.MAX_INSTRUCTION_CHARACTERS
    models = place.service.queries.models
    return (command_words.DEFAULT_VALUE, *preferences.possible_values(name, models)), 0


async def manage_notes(place: command_types.Place, text: str) -> command_types.Result:
    """List the notes of a place, open a form for one, or forget some."""
    service = place.service
    if not service.places.max_notes:
        raise errors.BotError(place_words.MEMORY_OFF)
    action, _, target = text.partition(" ")
    match action, target:
        case "", "":
            return await _list_notes(place)
        case "add", "" | "server" | "workspace":
            _find_note_scope(place, target)
            return _note_form(place_words.NEW_NOTE_TITLE, "")
        case "edit", _ if target:
            return _note_form(
                place_words.EDIT_NOTE_TITLE, (await _find_changeable_note(place, target)).text
            )
        case "forget", "all":
            await service.places.forget_all(_find_form_scope(place, ""))
            return command_types.Sentence(place_words.ALL_FORGOTTEN)
        case "forget", _ if target:
            await service.places.forget(await _find_changeable_note(place, target))
            return command_types.Sentence(place_words.FORGOTTEN)
    raise errors.BotError(place_words.MEMORY_USAGE)


async def submit_note(
    place: command_types.Place, text: str, entered: Mapping[str, str]
) -> command_types.Result:
    """Store a note that a person wrote or changed."""
    memory, note_text = place.service.places, entered.get(place_words.NOTE_FIELD, "")
    action, _, target = text.partition(" ")
    if not memory.max_notes:
        raise errors.BotError(place_words.MEMORY_OFF)
    if action == "add":
        await memory.remember(_find_note_scope(place, target), note_text, place.person)
        return command_types.Sentence(place_words.REMEMBERED)
    await memory.change_note(await _find_changeable_note(place, target), note_text)
    return command_types.Sentence(place_words.NOTE_CHANGED)


def _note_form(title: str, text: str) -> command_types.Form:
    field = command_types.FormField(
        place_words.NOTE_FIELD,
        place_words.NOTE_LABEL,
        text,
        max_characters=values.MAX_NOTE_CHARACTERS,
    )
    return command_types.Form(title, [field])


def _find_note_scope(place: command_types.Place, target: str) -> values.Scope:
    """Return the scope of a new note: of the channel, or with a target of the server.

    Raises:
        BotError: the person may not add notes to the server.
    """
    return _find_form_scope(place, f"add {target}") if target else place.scope.place


async def _find_changeable_note(place: command_types.Place, number: str) -> places.Note:
    """Return a note that the person may change: the one who confirmed it, or an administrator.

    Raises:
        BotError: there is no such note here, or the person may not change it.
    """
    note = await place.service.places.find_note(place.scope, number)
    if note.confirmed_by != place.person.id and place.refusal(note.scope):
        raise errors.BotError(place_words.NOT_YOUR_NOTE)
    return note


async def _list_notes(place: command_types.Place) -> command_types.Result:
    memory = place.service.places
    notes = await memory.notes(place.scope)
    if not notes:
        return command_types.Sentence(place_words.NOTHING_REMEMBERED)
    facts = [session_facts.describe_note(note, format_time=place.format_time) for note in notes]
    if omitted_count := len(notes) - len(memory.select_for_model(notes)):
        facts.insert(0, session_facts.Fact("…", place_words.notes_not_told(omitted_count)))
    return command_types.FactList(place_words.MEMORY_TITLE, facts, has_names=True)


def split_setting(text: str) -> tuple[str, str, str]:
    """Split an argument into the name of a setting, a value, and a word such as `channel`."""
    name, *words = text.split() or [""]
    scope = words.pop().lower() if words and words[-1].lower() in _SCOPE_OF_WORD else ""
    return name.lower(), " ".join(words), scope or "me"


async def _effective_value(place: command_types.Place, name: str) -> str:
    """Return the value of a setting that is in effect."""
    queries, default = place.service.queries, place.settings[name]
    if name == preferences.APPROVAL:
        return await queries.approval(place.scope, approval_policy.strictest_approval(default))
    choices = await queries.choices(place.scope)
    return preferences.format_value(
        getattr(preferences.find_effective(choices, place.settings), name)
    )


def _choice_scope(scope: values.Scope, scope_kind: str) -> values.Scope:
    match scope_kind:
        case "channel":
            return dataclasses.replace(scope, person="")
        case "server":
            return dataclasses.replace(scope, person="", channel="", thread="")
    return dataclasses.replace(scope, workspace="", channel="", thread="")


async def propose_schedule(place: command_types.Place, text: str) -> command_types.Result:
    limits = place.service.schedules.limits
    if not limits.per_person:
        raise errors.BotError(schedule_words.SCHEDULES_OFF)
    plan = schedule_texts.parse(
        text,
        zone=place.person.zone,
        now=place.service.schedules.now(),
    )
    return command_types.CodeToRun(schedule_texts.make_command(plan.text))


async def manage_schedules(place: command_types.Place, text: str) -> command_types.Result:
    """List schedules; or pause, resume, run or delete one, or list its runs."""
    schedules, key, person = place.service.schedules, place.key.place, place.person.id
    if not text:
        facts = [
            session_facts.Fact(str(listed_schedule.id), schedules.describe(listed_schedule))
            for listed_schedule in await schedules.visible(key, person)
        ]
        return (
            command_types.FactList(command_words.SCHEDULES, facts)
            if facts
            else command_types.Sentence(schedule_words.NO_SCHEDULES)
        )
    action, _, number = text.lower().partition(" ")
    if action not in SCHEDULE_ACTIONS or place.key.platform == "console":
        raise errors.BotError(schedule_words.HOW_TO_MANAGE)
    is_admin = "channel" not in place.refusals
    schedule = await schedules.find(key, person, number.strip(), is_admin=is_admin)
    if action in ("resume", "run") and schedule.key.scope() != key.scope():
        # Not every network says whether the owner is still in that channel.
        raise errors.BotError(schedule_words.ONLY_IN_ITS_CHANNEL)
    match action:
        case "pause":
            await schedules.pause(schedule)
            return command_types.Sentence(schedule_words.PAUSED_BY_PERSON)
        case "resume":
            return command_types.Sentence(
                schedule_words.schedule_resumed(await schedules.resume(schedule))
            )
        case "run":
            await schedules.run_now(schedule)
            return command_types.Sentence(schedule_words.RUN_STARTED)
        case "delete":
            await schedules.delete(schedule)
            return command_types.Sentence(schedule_words.DELETED)
    facts = [session_facts.Fact(*run) for run in await schedules.history(schedule)]
    return (
        command_types.FactList(command_words.SCHEDULE_RUNS, facts)
        if facts
        else command_types.Sentence(schedule_words.NO_RUNS)
    )


async def schedule_actions(_: command_types.Place, __: Sequence[str]) -> Sequence[str]:
    return SCHEDULE_ACTIONS


async def schedule_numbers(place: command_types.Place, _: Sequence[str]) -> Sequence[str]:
    visible = await place.service.schedules.visible(place.key.place, place.person.id)
    return [str(schedule.id) for schedule in visible]


async def file_names(place: command_types.Place, _: Sequence[str]) -> Sequence[str]:
    return [file.name for file in await place.service.queries.files(place.key)]


async def model_names(place: command_types.Place, _: Sequence[str]) -> Sequence[str]:
    return (*place.service.queries.models, command_words.DEFAULT_VALUE)


async def server_names(place: command_types.Place, _: Sequence[str]) -> Sequence[str]:
    servers = await place.service.queries.list_tools(place.key, place.person)
    return [server.server for server in servers if server.is_logged_in is not None]


async def note_actions(place: command_types.Place, _: Sequence[str]) -> Sequence[str]:
    notes = await place.service.places.notes(place.scope)
    server_words = [word for word, scope in _SCOPE_OF_WORD.items() if scope == "server"]
    numbered = [f"{action} {note.id}" for note in notes for action in ("edit", "forget")]
    return ["add", *(f"add {word}" for word in server_words), "forget all", *numbered]


async def setting_names(place: command_types.Place, _: Sequence[str]) -> Sequence[str]:
    return tuple(place.settings)


async def setting_values(
    place: command_types.Place, earlier_arguments: Sequence[str]
) -> Sequence[str]:
    name = "".join(earlier_arguments[:1])
    if name not in place.settings:
        return ()
    models = place.service.queries.models
    return (*preferences.possible_values(name, models), command_words.DEFAULT_VALUE)
