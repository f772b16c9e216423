"""Kill -9 in the middle of turns, at four chosen moments; `bench.kills` does it at two hundred."""

import pytest

from bench import kills, restarts
from tests.integration.store import servers

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(240)]


async def test_nothing_is_lost_unsaid_or_done_twice_whoever_is_killed():
    moments = [
        kills.Moment(0, "bot", "input"),
        kills.Moment(1, "kernel", "stdout"),
        kills.Moment(4, "host", "stdout"),
    ]
    async with kills.Conversation.open() as conversation:
        assert await _faults(conversation, moments) == []
    assert conversation.kill_counts == {"bot": 1, "kernel": 1, "host": 1}


@pytest.mark.skipif(servers.find_programs() is None, reason="no PostgreSQL here")
async def test_nothing_is_lost_unsaid_or_done_twice_in_a_database_that_bots_share():
    moments = [kills.Moment(2, "bot", "model"), kills.Moment(3, "bot", "input")]
    with servers.Server.run() as server, server.database() as url:
        async with kills.Conversation.open(url) as conversation:
            assert await _faults(conversation, moments) == []
    assert conversation.kill_counts == {"bot": 2}


async def _faults(conversation, moments):
    return [(one, fault) for one in moments for fault in await conversation.take_turn(one)]


async def test_page_shows_each_line_once_of_a_cell_whose_bot_was_killed_twice():
    async with restarts.Restarts.open() as opened:
        for _ in range(2):
            _, faults = await opened.restart(lines=8, seconds=0.2)
            assert faults == []
