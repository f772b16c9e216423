"""A real small model on every platform: a chart out of a database, and a package it lacks.

Opt in by naming a server of a real model on this machine, and what it calls the model:

    INTERPRETER_BOT_TEST_SERVER=http://127.0.0.1:8911/v1 INTERPRETER_BOT_TEST_NAME=… pytest -m live

Everything but the chat network is what people have. A small model is not always right, so these ask
what people of the chat see in the end, and not how it came about.
"""

import contextlib
import os
import random
import sqlite3

import pytest

from interpreter_bot import settings
from interpreter_bot.app import bot_startup
from interpreter_bot.platforms.discord import startup as discord_startup
from interpreter_bot.platforms.web import server as web_server
from tests import futures, waiting
from tests.fakes import package_indexes
from tests.fakes.discord_server import servers as discord_servers
from tests.fakes.slack_server import servers as slack_servers
from tests.integration.discord import steps
from tests.integration.slack.worlds import connect_platform
from tests.integration.web import visits

# Read at import, for the settings of whoever runs the tests are taken away from every test.
SERVER = os.environ.get("INTERPRETER_BOT_TEST_SERVER")
NAME = os.environ.get("INTERPRETER_BOT_TEST_NAME", "qwen2.5-coder-1.5b-instruct")
SECONDS = 600
CHART = "How many orders were there in May 2026 by region, as a bar chart?"
INSTALL = "Install the package greeter, then run code that imports it and prints greeter.version"
REGIONS = ("north", "south", "east", "west")

pytestmark = [
    pytest.mark.live,
    pytest.mark.kernel,
    pytest.mark.timeout(2 * SECONDS),
    pytest.mark.skipif(not SERVER, reason="INTERPRETER_BOT_TEST_SERVER names no server"),
]


def orders(path):
    """Make a database of orders."""
    chosen = random.Random(7)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, region TEXT, amount REAL, "
            "ordered_on TEXT)"
        )
        rows = [
            (
                chosen.choice(REGIONS),
                round(chosen.uniform(5, 500), 2),
                f"2026-{chosen.randint(4, 6):02}-{chosen.randint(1, 30):02}",
            )
            for _ in range(400)
        ]
        database.executemany(
            "INSERT INTO orders (region, amount, ordered_on) VALUES (?, ?, ?)", rows
        )


@pytest.fixture
def config(tmp_path, short_path):
    orders(tmp_path / "shop.db")
    with package_indexes.serving() as index:
        index.add("greeter", "2.5")
        yield settings.Settings(
            paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
            models=(settings.Model(name=NAME, base_url=SERVER),),
            connections=(
                settings.Connection(
                    name="shop",
                    kind="sqlite",
                    address=f"sqlite://{tmp_path}/shop.db",
                    description="Orders of the shop, with the region and date of each.",
                ),
            ),
            package_index=settings.PackageIndex(
                url=index.url, allow=("greeter",), missing="install"
            ),
        )


def _opened(config):
    return bot_startup.open_service(config, {"OPENAI_API_KEY": "none"})


async def on_slack(config, question):
    """Ask in a channel; gives what its thread says, and the pictures there."""
    async with (
        slack_servers.Server(speed=60) as slack,
        _opened(config) as service,
        connect_platform(slack, service),
    ):
        ts = slack.say("U1", "C1", f"<@UBOT> {question}")
        await slack.until(lambda: slack.status("C1", ts) == "active", seconds=SECONDS)
        answers = slack.answers("C1", ts)
        blocks = [block for one in answers for block in one.get("blocks", ())]
        pictures = [block for block in blocks if block["type"] == "image"]
        pictures += [f for one in answers for f in one.get("files", ()) if f["name"][-3:] == "png"]
        return str(answers), pictures


async def on_discord(config, question):
    """Ask in a channel; gives what its thread says, and the pictures there."""
    async with discord_servers.Server(window_seconds=0.5) as server, _opened(config) as service:
        lab = server.guild("Lab")
        alice, channel = lab.person("alice"), lab.channel("general")
        async with discord_startup.connected_platform(
            service, settings.Discord(), token=server.token
        ):
            server.say(alice, channel, f"{server.bot.mention} {question}")
            thread = await steps.wait_for_thread(channel)
            await waiting.until(
                lambda: steps.is_final(thread), subject="an answer", seconds=SECONDS
            )
            said = "\n".join(one.content for one in thread.bot_messages)
            return said, [file for one in thread.bot_messages for file in one.attachments]


async def on_the_page(config, question, browsing, data):
    """Ask on the page; gives what the answer says, and the pictures in it."""
    async with (
        _opened(config) as service,
        web_server.serve(
            futures.completed_future(service), settings.Web(listen="127.0.0.1:0"), data
        ) as address,
        browsing() as browser,
    ):
        page = await browser.page()
        await page.go(address)
        await page.until("!document.getElementById('welcome').hidden")
        await visits.send_message(page, question)
        await page.until(f"{visits.ENDED} === 1", seconds=SECONDS)
        words = await page.value("document.querySelector('.turn').innerText")
        pictures = "[...document.querySelectorAll('.turn figure img')].map(one => one.alt)"
        return words, await page.value(pictures)


@pytest.fixture
def ask(config, browsing, tmp_path):
    """Ask on a platform: what people see, as text and pictures."""

    async def ask(platform, question):
        match platform:
            case "slack":
                return await on_slack(config, question)
            case "discord":
                return await on_discord(config, question)
            case "page":
                return await on_the_page(config, question, browsing, tmp_path / "data")

    return ask


@pytest.mark.parametrize("platform", ["slack", "discord", "page"])
async def test_orders_of_a_month_are_a_chart(ask, platform):
    said, pictures = await ask(platform, CHART)
    assert pictures, said


@pytest.mark.parametrize("platform", ["slack", "discord", "page"])
async def test_a_package_is_installed_and_used(ask, platform):
    said, _ = await ask(platform, INSTALL)
    assert "Installed greeter 2.5" in said
    assert "2.5" in said.replace("greeter 2.5", "")
