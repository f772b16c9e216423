"""A fleet of which any process is killed or stopped: `bench.chaos`, for a short time."""

import pytest

from bench import chaos
from tests.integration.store import servers

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(240)]


@pytest.mark.skipif(servers.find_programs() is None, reason="no PostgreSQL here")
async def test_nothing_is_lost_unsaid_doubled_or_crossed_in_a_fleet():
    async with chaos.Chaos.open(seed=4) as fleet:
        await fleet.run_crowd(8)
        await fleet.run(seconds=7.0)
    assert fleet.faults == []
    # Somebody was killed or stopped, and most were answered nevertheless.
    assert any(what.startswith(("kill", "stop")) for what in fleet.counts)
    assert fleet.counts["turns"] > 2 * fleet.counts["turns without an answer"]
