"""Links by which a person reads a thread on the page."""

import re

import pytest

from interpreter_bot import settings
from interpreter_bot.platforms.discord import channels_and_threads
from tests.fakes import conversations
from tests.integration.discord import steps
from tests.integration.discord.conftest import MODELS, echo

LINK = re.compile(r"\[[^\]]+\]\(<https://bot\.example\.org/visit#([A-Za-z0-9_=-]+)>\)")


@pytest.fixture
async def service(tmp_path):
    web = settings.Web(public_url="https://bot.example.org")
    async with conversations.opened(tmp_path / "bot", echo, models=MODELS, web=web) as opened:
        yield opened


async def test_button_and_command_give_a_link_that_only_one_person_sees(
    discord_server, lab, connect, service
):
    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    async with connect(service=service):
        thread = await steps.ask_in_thread(discord_server, alice, channel, "one\ntwo")
        pressed = await discord_server.click(bob, thread.bot_messages[-1], "Open on the page")
        told = await steps.wait_for_final_text(pressed)
        assert pressed.messages[-1].seen_by is bob
        visit, _ = await service.visits.enter(LINK.search(told)[1])
        assert visit.key.platform == channels_and_threads.PLATFORM
        assert visit.key.thread == str(thread.id) or visit.key.channel == str(thread.id)
        typed = await discord_server.command(alice, thread, "interpreter page")
        second, _ = await service.visits.enter(
            LINK.search(await steps.wait_for_final_text(typed))[1]
        )
        assert second.key == visit.key


async def test_who_may_not_use_the_bot_gets_none(discord_server, lab, connect, service):
    alice, bob, channel = lab.person("alice"), lab.person("bob"), lab.channel("general")
    async with connect(service=service, people=(str(alice.id),)):
        thread = await steps.ask_in_thread(discord_server, alice, channel, "one\ntwo")
        pressed = await discord_server.click(bob, thread.bot_messages[-1], "Open on the page")
        assert "/visit#" not in await steps.wait_for_final_text(pressed)


async def test_without_a_public_address_no_button_is_there(discord_server, lab, connect):
    alice, channel = lab.person("alice"), lab.channel("general")
    async with connect():
        thread = await steps.ask_in_thread(discord_server, alice, channel, "one\ntwo")
        assert "Notebook" in thread.bot_messages[-1].buttons
        assert "Open on the page" not in thread.bot_messages[-1].buttons
