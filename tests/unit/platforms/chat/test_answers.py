"""An answer that cannot be shown."""

import asyncio

import pytest

from interpreter_bot import values
from interpreter_bot.platforms.chat import answer, drafts, transport
from interpreter_bot.store import databases
from tests.fakes.socket_chat import transports


class BrokenTransport(transports.SocketTransport):
    """A transport with an error of its own in each post."""

    async def post(self, location, draft, key):
        raise KeyError("ts")


async def test_a_turn_ends_even_if_the_fault_cannot_be_shown_either(tmp_path):
    location = transport.Location(session=values.SessionKey("s", "", "room"), channel="room")
    plan = answer.AnswerPlan(
        request_id="1",
        location=location,
        style=drafts.AnswerStyle(owner="1", is_code=True, shows_code=False, limit_seconds=60),
        pace=lambda: 0.01,
        has_page=False,
    )
    cancelled = asyncio.Event()

    async def cancel():
        cancelled.set()

    network = BrokenTransport(str(tmp_path / "chat.sock"))
    url = f"sqlite:///{tmp_path}/bot.db"
    async with databases.Database.open(url, blobs_directory=tmp_path / "files") as database:
        reply = answer.Answer(
            network, transports.SocketMarkup(), plan, database.deliveries, asyncio.create_task
        )
        reply.show_first_sign()
        with pytest.raises(KeyError):
            await reply.show(cancel)
    assert cancelled.is_set()
