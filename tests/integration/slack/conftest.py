"""Fixtures of the real bolt app on the loopback Slack."""

import logging

import pytest

from interpreter_bot import settings
from tests.fakes import conversations
from tests.fakes.slack_server import servers
from tests.integration.slack.worlds import connect_platform


@pytest.fixture
async def slack():
    async with servers.Server(speed=60) as server:
        yield server


@pytest.fixture
async def service(tmp_path):
    allowance = settings.DailyAllowance(tokens=50_000)
    async with conversations.opened(tmp_path / "bot", allowance=allowance) as opened:
        yield opened


@pytest.fixture
async def app(slack, service):
    async with connect_platform(slack, service) as address:
        yield address


@pytest.fixture(autouse=True)
def _no_secret_is_logged(caplog):
    caplog.set_level(logging.INFO)
    yield
    for record in caplog.get_records("call"):
        text = record.getMessage()
        assert "xoxb-loopback" not in text or record.name.startswith("asyncio"), text
