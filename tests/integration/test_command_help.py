"""Help of the page and of the terminal lists the commands that do something here."""

import pytest

from interpreter_bot import values
from interpreter_bot.platforms import command_table
from interpreter_bot.sessions import requests
from tests.fakes import offers

CONDITIONAL = {command for commands in offers.COMMANDS.values() for command in commands}


@pytest.mark.parametrize("platform", ["web", "console"])
@pytest.mark.parametrize(
    "things", [(), *((thing,) for thing in offers.COMMANDS), tuple(offers.COMMANDS)], ids=str
)
async def test_help_lists_only_what_is_on(tmp_path, platform, things):
    key, person = values.SessionKey(platform, thread="1" * 32), requests.Person("owner")
    async with offers.opened(tmp_path, *things) as service:
        place = command_table.Place(service, key, person, values.Scope(platform))
        facts = await command_table.run(command_table.parse("/help", platform), place)
    on = {command for thing in things for command in offers.COMMANDS[thing]}
    off = CONDITIONAL - on | ({"approval"} if "models" not in things else set())
    # In the order of the table; /page is of chats alone.
    assert [fact.label.split()[0] for fact in facts] == [
        f"/{name}" for name in command_table.offered(platform) if name not in off
    ]
