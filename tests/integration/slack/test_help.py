"""Help, wherever Slack shows it, lists the commands that do something in this installation."""

import itertools
import re

import pytest

from interpreter_bot.platforms import command_table
from tests.fakes import optional_features
from tests.integration.slack.worlds import connect_platform

ALWAYS = {
    name
    for name, row in command_table.commands_of("slack").items()
    if row.needs in optional_features.ON_BY_DEFAULT
}


def listed(text):
    """The commands that a help lists."""
    return set(re.findall(r"^- `([a-z]+)", text, re.MULTILINE))


async def helped(slack, way):
    """Ask for help in one of the ways there are; return it."""
    if way == "command":
        slack.command("U1", "C1", "/interpreter", "help")
        [told] = await slack.until(lambda: slack.world.responses)
        return told["blocks"][0]["text"]
    if way == "home":
        slack.open_home("U1")
        view = await slack.until(lambda: slack.world.homes.get("U1"))
        return view["blocks"][-1]["text"]["text"]
    if way == "nothing":
        slack.say("U1", "C1", "<@UBOT>")
        [told] = await slack.until(lambda: slack.world.ephemerals)
        return told["blocks"][0]["text"]
    ts = slack.say("U1", "C1", "<@UBOT> help")
    [answer] = await slack.until(lambda: slack.answers("C1", ts))
    return answer["blocks"][0]["text"]


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("way", "things"),
    [
        *(("command", (thing,)) for thing in optional_features.COMMANDS_BY_FEATURE),
        *itertools.product(
            ("command", "mention", "nothing", "home"),
            ((), tuple(optional_features.COMMANDS_BY_FEATURE)),
        ),
    ],
    ids=str,
)
async def test_help_lists_only_what_is_on(slack, tmp_path, way, things):
    async with (
        optional_features.open_conversations(tmp_path, *things) as service,
        connect_platform(slack, service),
    ):
        text = await helped(slack, way)
    expected = {
        command for thing in things for command in optional_features.COMMANDS_BY_FEATURE[thing]
    }
    assert listed(text) == ALWAYS | expected
    assert ("Mention me with a question" in text) == ("models" in things)
