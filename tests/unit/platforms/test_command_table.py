import discord
import pytest
from discord import app_commands

from interpreter_bot import errors
from interpreter_bot.platforms import command_table
from interpreter_bot.platforms.discord import slash_commands

PLATFORMS = ("slack", "discord", "web", "console")


def parsed(invocation):
    return invocation and (invocation.command.name, invocation.argument)


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/help", "help", ""),
        ("  /files", "files", ""),
        ("/files?", "files", ""),
        ("/model GPT 5 ", "model", "GPT 5"),
        ("/py print(1)", "py", "print(1)"),
        ("/py\nif x:\n    print(1)\n", "py", "if x:\n    print(1)"),
        ("/py    x = 1", "py", "x = 1"),
        ("/Help", "help", ""),
        ("/MODEL gpt", "model", "gpt"),
        ("/reset Files", "reset", "files"),
        ("/approval EVERY", "settings", "approval EVERY"),
        ("/settings", "settings", ""),
    ],
)
def test_commands_are_parsed(text, name, argument):
    assert parsed(command_table.parse(text, "web")) == (name, argument)


@pytest.mark.parametrize(
    "text",
    ["hello", "", "/", "/mnt/data/x is what?", "a /help", "/Users and I", "// x", "/1 of 2"],
)
def test_words_are_no_commands(text):
    assert command_table.parse(text, "web") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("/fiels", "There is no command /fiels. Did you mean /files?"),
        ("/Fiels", "There is no command /Fiels. Did you mean /files?"),
        ("/rest", "There is no command /rest. Did you mean /reset?"),
        ("/py3 x", "There is no command /py3. Did you mean /py?"),
        ("/nonsense at all", "There is no command /nonsense. Type /help for a list."),
        ("/py", "Please write it as /py CODE."),
        ("/connect", "Please write it as /connect NAME."),
        ("/reset that", "Please write it as /reset [files]."),
        ("/files a.csv", "/files takes nothing after it."),
    ],
)
def test_what_is_meant_for_a_command_is_never_a_question(text, sentence):
    for platform in ("web", "console"):
        with pytest.raises(errors.BotError) as refused:
            command_table.parse(text, platform)
        assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("text", "platform", "place"),
    [
        ("/undo", "console", "on the page"),
        ("/exit", "web", "in the terminal"),
        ("/page", "web", "in chats"),
    ],
)
def test_a_command_of_another_place_is_said_to_work_there(text, platform, place):
    with pytest.raises(errors.BotError, match=f"^{text} works {place}, not here\\.$"):
        command_table.parse(text, platform)


def test_commands_are_known_in_code_too_and_nothing_else_behind_a_slash():
    assert command_table.parse("/py print(1)", "web", is_code=True).argument == "print(1)"
    assert command_table.parse("/help", "web", is_code=True).command.name == "help"
    assert command_table.parse("/print 1", "web", is_code=True) is None
    assert command_table.parse("/file 1", "web", is_code=True) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("files", ("files", "")),
        ("Files report.csv", ("files", "report.csv")),
        ("reset", ("reset", "")),
        ("reset files", ("reset", "files")),
        ("reset the index", None),
        ("undo that please", None),
        ("limits of what?", None),
        ("connect", None),
        ("follow off", ("settings", "follow_threads off")),
        ("settings", ("settings", "")),
        ("please stop it", ("stop", "")),
        ("py x = 1", ("py", "x = 1")),
        ("py\nx = 1", ("py", "x = 1")),
        ("py is my favourite language", None),
        ("py", None),
        ("", None),
    ],
)
def test_words_are_a_command_only_if_the_whole_message_is_one(text, expected):
    assert parsed(command_table.parse_words(text, "slack")) == expected


def test_what_cannot_be_taken_back_is_asked_about_in_words():
    destructive = {command.name for command in command_table.COMMANDS if command.confirmations}
    assert destructive == {"reset", "undo"}


def test_each_platform_does_what_the_table_does_not():
    without = {
        command.name: command.platforms for command in command_table.COMMANDS if not command.effect
    }
    assert without == {"exit": {"console"}}
    assert {platform for row in command_table.COMMANDS for platform in row.platforms} == set(
        PLATFORMS
    )


async def test_discords_tree_is_the_table():
    client = discord.Client(intents=discord.Intents.none())
    tree = app_commands.CommandTree(client)
    slash_commands.add_commands(tree, handler=None)
    trees = {
        command["name"]: command for command in (row.to_dict(tree) for row in tree.get_commands())
    }
    group = {row["name"]: row for row in trees["interpreter"]["options"]}
    table = command_table.commands_of("discord")
    assert {*group, "py"} == set(table)
    for name, command in table.items():
        row = group.get(name) or trees[name]
        assert row["description"] == command.help
        options = {option["name"]: option for option in row["options"]}
        arguments = command.arguments_on("discord")
        assert set(options) >= {argument.name for argument in arguments}
        for argument in arguments if name in group else ():
            option = options[argument.name]
            assert option["description"] == argument.help
            assert option["required"] is argument.is_required
            assert bool(option.get("autocomplete")) is (argument.names is not None)
            choices = tuple(choice["value"] for choice in option.get("choices") or ())
            assert choices == (() if argument.is_switch else argument.choices)
