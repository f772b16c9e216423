"""Help lists the commands that do something here; what commands name has to exist."""

import dataclasses

import pytest

from interpreter_bot import errors, values
from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.sessions import requests
from interpreter_bot.skills import accepted_skills
from tests.fakes import optional_features

CONDITIONAL = {
    command for commands in optional_features.COMMANDS_BY_FEATURE.values() for command in commands
}


@pytest.mark.first_case
@pytest.mark.parametrize("platform", ["web", "console"])
@pytest.mark.parametrize(
    "things",
    [
        (),
        *((thing,) for thing in optional_features.COMMANDS_BY_FEATURE),
        tuple(optional_features.COMMANDS_BY_FEATURE),
    ],
    ids=str,
)
async def test_help_lists_only_what_is_on(tmp_path, platform, things):
    key, person = values.SessionKey(platform, thread="1" * 32), requests.Person("owner")
    async with optional_features.open_conversations(tmp_path, *things) as service:
        place = command_types.Place(service, key, person, values.Scope(platform))
        result = await command_table.run(command_table.parse("/help", platform), place)
    facts = command_table.list_facts(result, platform)
    on = {command for thing in things for command in optional_features.COMMANDS_BY_FEATURE[thing]}
    off = CONDITIONAL - on
    # In the order of the table; /page is of chats alone.
    assert [fact.label.split()[0] for fact in facts] == [
        f"/{name}" for name in command_table.commands_of(platform) if name not in off
    ]


@pytest.fixture
async def place_on(tmp_path):
    """Return the place of a conversation on a platform, with a file, two models and a server."""
    async with optional_features.open_conversations(tmp_path, "models", "logins") as service:

        def place(platform):
            key = values.SessionKey(platform, thread="1" * 32)
            (service.directory(key) / "report.csv").write_bytes(b"1")
            person = requests.Person("owner")
            scope = values.Scope(platform, "T1", "C1", "owner")
            chosen = {"approval": "plan", "model": "", "follow_threads": True}
            return command_types.Place(service, key, person, scope, chosen)

        yield place


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("text", "exists"),
    [
        ("model cheap", True),
        ("model default", True),
        ("model this", False),
        ("files report.csv", True),
        ("files uploaded?", False),
        ("connect jira", True),
        ("connect dots", False),
        ("files", True),
        ("follow off", True),
        ("approval never channel", True),
        ("settings", True),
        ("settings model cheap workspace", True),
        ("follow me", False),
        ("approval please", False),
        ("settings of my phone", False),
        ("memory", True),
        ("memory add", True),
        ("memory leak in this code?", False),
        ("memory forget 1", False),
    ],
)
async def test_what_a_command_in_words_names_has_to_exist(place_on, text, exists):
    invocation = command_table.parse_words(text, "slack")
    assert await command_table.has_existing_name(invocation, place_on("slack")) is exists


async def test_commands_and_what_they_name_are_completed(place_on):
    place = place_on("console")

    async def completed(text):
        return [word for word, _, _ in await command_table.completions(text, place)]

    assert [word.strip("/ ") for word in await completed("/")] == [
        *command_table.commands_of("console")
    ]
    assert await completed("/mo") == ["/model "]
    assert await completed("/model C") == ["cheap"]
    assert await completed("/disconnect ") == ["jira"]
    assert await completed("/approval ") == ["never", "plan", "every", "default"]
    assert await completed("/settings a") == ["approval"]
    assert await completed("/settings follow_threads o") == ["on", "off"]
    assert await completed("/files ") == await completed("/nothing x") == []


async def test_a_model_is_chosen_and_its_choice_taken_back(place_on):
    place = place_on("slack")
    for words, model in (("cheap", "cheap"), ("default", "good")):
        invocation = command_table.parse_words(f"model {words}", "slack")
        result = await command_table.run(invocation, place)
        assert result.text == f"This conversation now uses {model}."


async def chosen(place, words):
    """Carry out a command in words; return what it says, or lists."""
    result = await command_table.run(command_table.parse_words(words, "slack"), place)
    return (
        result.text
        if isinstance(result, command_types.Sentence)
        else {fact.label: fact.value for fact in result.facts}
    )


async def test_settings_are_shown_chosen_and_taken_back_for_three_scopes(place_on):
    place = dataclasses.replace(place_on("slack"), refusals={})
    assert "plan (ask a person" in (await chosen(place, "approval"))["approval"]
    assert await chosen(place, "follow off") == "follow_threads is now off for you."
    assert (await chosen(place, "settings"))["follow_threads"].startswith("off (")
    assert await chosen(place, "follow on workspace") == (
        "follow_threads is now on in this workspace. In effect for you here: off."
    )
    assert await chosen(place, "follow default") == (
        "follow_threads is reset to the default for you. In effect for you here: on."
    )
    assert await chosen(place, "settings model CHEAP channel") == (
        "model is now cheap in this channel."
    )
    with pytest.raises(
        errors.BotError, match="approval can be one of: never, plan, every, default"
    ):
        await chosen(place, "approval perhaps")
    with pytest.raises(errors.BotError, match=r"no such setting\. You can choose approval, model"):
        await chosen(place, "settings nothing on")


async def test_the_model_that_a_person_chose_for_themselves_is_shown_as_theirs(place_on):
    key = values.SessionKey("slack", "T1", "C1", "1.1")
    place = dataclasses.replace(place_on("slack"), key=key, refusals={})
    await chosen(place, "settings model cheap")
    assert await chosen(place, "model") == {"good": "", "cheap": "in use"}
    other = dataclasses.replace(place, person=requests.Person("U2"))
    assert await chosen(other, "model") == {"good": "in use", "cheap": ""}


async def test_what_holds_is_shown_with_who_chose_it_and_for_whom(place_on):
    place = dataclasses.replace(place_on("slack"), refusals={})
    await chosen(place, "follow off workspace")
    await chosen(place, "settings model cheap")
    other = dataclasses.replace(place, person=requests.Person("U2", "Bob\n_bold_"))
    await chosen(other, "approval every channel")
    await place.service.places.remember(values.Scope("slack", "T1", "C2"), "x", other.person)
    assert await chosen(place, "place") == {
        "instructions": "none",
        "approval": "every (set for this channel by Bob _bold_)",
        "model": "cheap (set by you)",
        "follow_threads": "off (set for the whole server by owner)",
        "notes": "0",
        "tools": "tools.jira",
    }


async def test_a_place_lists_the_skills_that_were_accepted(place_on, tmp_path):
    for name in ("acme", "other"):
        directory = tmp_path / "sources" / name
        directory.mkdir(parents=True)
        (directory / "SKILL.md").write_text(f"---\nname: {name}\ndescription: x\n---\nText.\n")
    place = place_on("slack")
    data = place.service.services.config.paths.data
    skills = accepted_skills.AcceptedSkills([tmp_path / "sources"], data)
    assert "skills" not in await chosen(place, "place")
    status = next(status for status in skills.statuses() if status.name == "acme")
    skills.accept("acme", status.skill.digest)
    assert (await chosen(place, "place"))["skills"] == "acme"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("memory edit 1", "There is no note 1 here"),
        ("memory forget 1; drop table notes", "There is no note 1; drop"),
        ("memory forget", "Write memory, memory add"),
        ("memory leak?", "Write memory, memory add"),
        ("memory add somewhere", "Write memory, memory add"),
        ("memory forget all", "Only admins"),
        ("memory add workspace", "Only admins"),
        ("place edit", "Only admins"),
        ("place edit workspace", "Only admins"),
    ],
)
async def test_what_cannot_be_done_in_a_place_is_said(place_on, words, sentence):
    refusals = dict.fromkeys(("channel", "server"), "Only admins.")
    place = dataclasses.replace(place_on("slack"), refusals=refusals)
    await place.service.places.remember(values.Scope("slack", "T1", "C2"), "x", place.person)
    with pytest.raises(errors.BotError, match=sentence):
        await chosen(place, words)


async def test_a_choice_weaker_than_what_holds_is_said_to_be(place_on):
    assert await chosen(place_on("slack"), "approval never") == (
        "approval is now never for you. That is weaker than another setting here, so the stricter "
        "one applies. In effect for you here: plan."
    )


async def test_only_who_may_chooses_for_a_channel(place_on):
    place = dataclasses.replace(place_on("slack"), refusals={"channel": "Only admins."})
    for words in ("approval every channel", "follow off channel"):
        with pytest.raises(errors.BotError, match="Only admins"):
            await chosen(place, words)
    assert (await chosen(place, "approval every")).endswith("for you.")
