"""What the doctor says of the tokens of Slack and Discord."""

import asyncio
import urllib.parse

import pytest

from interpreter_bot import settings
from interpreter_bot.doctor import chat_tokens
from interpreter_bot.platforms.discord import startup as discord_startup
from interpreter_bot.platforms.slack import installations
from tests.fakes.discord_server import servers as discord_servers
from tests.fakes.slack_server import servers as slack_servers
from tests.integration.slack import worlds


async def findings(**platforms):
    """What the doctor says, by name."""
    found = await asyncio.to_thread(chat_tokens.check, settings.Settings(**platforms))
    return {finding.name: finding for finding in found}


async def test_the_invitation_of_a_discord_bot_names_what_it_needs():
    async with discord_servers.Server() as discord:
        application = await discord_startup.check_token(discord.token)
    address = urllib.parse.urlsplit(application.invitation)
    fields = dict(urllib.parse.parse_qsl(address.query))
    assert (address.scheme, fields["client_id"].isdigit()) == ("https", True)
    assert set(fields["scope"].split()) == {"bot", "applications.commands"}
    # View channels, send messages (in threads, too), create threads, attach files, read history.
    assert int(fields["permissions"]) == sum(1 << bit for bit in (10, 11, 15, 16, 35, 38))


async def test_of_platforms_that_are_off_nothing_is_said():
    assert await findings() == {}


async def test_good_tokens_are_said_to_be_good():
    async with slack_servers.Server() as slack, discord_servers.Server() as discord:
        slack.world.teams["T1"].scopes = ",".join((*installations.SCOPES, "emoji:read"))
        discord.rest.application_flags = 1 << 19
        found = await findings(
            slack=worlds.make_settings(slack), discord=settings.Discord(token=discord.token)
        )
    assert {name: finding.detail for name, finding in found.items()} == {
        "Slack bot token": "@interpreter in Loopback",
        "Slack scopes": "all that the manifest asks for",
        "Slack app token": "Socket Mode can connect",
        "Discord token": f"logged in as {discord.bot.name}",
        "Discord messages": "message content is granted",
    }
    assert all(finding.is_active for finding in found.values())


async def test_wrong_tokens_are_said_to_be_wrong_and_shown_nowhere():
    async with slack_servers.Server() as slack, discord_servers.Server() as discord:
        found = await findings(
            slack=worlds.make_settings(slack, bot_token="xoxb-wrong", app_token="xapp-wrong"),
            discord=settings.Discord(token="wrong-secret"),
        )
        discord.rest.refusals.clear()
    assert [(name, finding.is_active, finding.detail) for name, finding in found.items()] == [
        (
            "Slack bot token",
            False,
            "Slack refused the bot token (SLACK_BOT_TOKEN): the token is not valid.",
        ),
        (
            "Slack app token",
            False,
            "Slack refused the app token (SLACK_APP_TOKEN): the token is not valid.",
        ),
        ("Discord token", False, "Discord does not accept the token."),
    ]
    assert "SLACK_APP_TOKEN" in found["Slack app token"].fix
    assert "DISCORD_TOKEN" in found["Discord token"].fix
    assert not any(word in str(found) for word in ("xoxb-wrong", "xapp-wrong", "wrong-secret"))


async def test_missing_scopes_and_intents_are_named():
    async with slack_servers.Server() as slack, discord_servers.Server() as discord:
        scopes = [scope for scope in installations.SCOPES if not scope.startswith("files:")]
        slack.world.teams["T1"].scopes = ",".join(scopes)
        found = await findings(
            slack=worlds.make_settings(slack, **worlds.HTTP),
            discord=settings.Discord(token=discord.token),
        )
    assert "Slack app token" not in found
    assert found["Slack scopes"].detail == "missing: files:read, files:write"
    assert "manifest.yml" in found["Slack scopes"].fix
    assert found["Discord messages"].detail == "the message-content intent is off"
    wrong = {name for name, finding in found.items() if not finding.is_active}
    assert wrong == {"Slack scopes", "Discord messages"}


@pytest.mark.parametrize("is_silent", [pytest.param(True, marks=pytest.mark.slow), False])
async def test_networks_that_do_not_answer_are_not_waited_for_long(is_silent):
    async with slack_servers.Server() as slack, discord_servers.Server() as discord:
        if is_silent:
            slack.choose_fault = lambda *_: slack_servers.Fault("slow", seconds=20)
            discord.rest.delay_seconds = 20
        chosen = {
            "slack": worlds.make_settings(slack),
            "discord": settings.Discord(token=discord.token),
        }
        if is_silent:
            found = await findings(**chosen)
    if not is_silent:
        # A port on which nobody listens any more.
        found = await findings(slack=chosen["slack"])
    assert not any(finding.is_active for finding in found.values())
    assert "cannot be reached" in found["Slack bot token"].detail
    assert "connect" in found["Slack bot token"].fix
    if is_silent:
        assert found["Discord token"].detail == "Discord did not answer in time."
        assert "connect" in found["Discord token"].fix
