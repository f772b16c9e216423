"""How many hosts a cluster should have."""

import dataclasses

import pytest

from interpreter_bot.ray_fleet import host_reports

EMPTY = host_reports.HostReport("10.0.0.5:7443", "d", 90, 100, False)
FULL = dataclasses.replace(EMPTY, free_bytes=5)


@pytest.mark.parametrize(
    ("reports", "count"),
    [
        ([], 0),
        ([EMPTY], 1),
        ([FULL], 2),
        ([EMPTY, FULL], 2),
        ([FULL] * 3, 4),
        # The memory of a draining host is not free.
        ([FULL, dataclasses.replace(EMPTY, is_draining=True)], 3),
        # A small host with free memory does not make up for large hosts.
        ([dataclasses.replace(EMPTY, free_bytes=1, memory_bytes=1), FULL, FULL], 4),
    ],
)
def test_there_is_one_host_more_if_less_than_a_fifth_of_all_memory_is_free(reports, count):
    assert host_reports.target_host_count(reports, min_free_ratio=0.2) == count
