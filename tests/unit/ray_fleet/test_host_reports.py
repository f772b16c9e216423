"""How many hosts a cluster should have."""

import dataclasses

import pytest

from interpreter_bot.ray_fleet import host_reports

ROOMY = host_reports.HostReport("10.0.0.5:7443", "d", "b", 90, 100, False)
FULL = dataclasses.replace(ROOMY, free_bytes=5)


@pytest.mark.parametrize(
    ("reports", "count"),
    [
        ([], 0),
        ([ROOMY], 1),
        ([FULL], 2),
        ([ROOMY, FULL], 2),
        ([FULL] * 3, 4),
        # One that drains has room for nobody.
        ([FULL, dataclasses.replace(ROOMY, is_draining=True)], 3),
        # A small one that is empty does not make up for large ones.
        ([dataclasses.replace(ROOMY, free_bytes=1, memory_bytes=1), FULL, FULL], 4),
    ],
)
def test_there_is_one_more_where_a_fifth_of_all_memory_is_not_left(reports, count):
    assert host_reports.wanted_hosts(reports, least_room=0.2) == count
