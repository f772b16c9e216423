"""Hosts of a cluster, as they are listed for bots."""

import dataclasses
import datetime

import pytest
import sqlalchemy as sa

from interpreter_bot.ray_fleet import host_reports
from interpreter_bot.store import columns, records

REPORT = host_reports.HostReport("10.0.0.5:7443", "d", 5, 10, False)


async def test_hosts_stay_listed_while_nobody_tells_of_them(database):
    other = dataclasses.replace(REPORT, address="10.0.0.6:7443")
    await database.fleet_hosts.put([REPORT, other])
    await database.fleet_hosts.put([dataclasses.replace(REPORT, data_id="later", free_bytes=3)])
    assert await database.fleet_hosts.list_addresses() == ["10.0.0.5:7443", "10.0.0.6:7443"]
    async with database.engine.connect() as connection:
        rows = (await connection.execute(sa.select(records.FleetHost))).all()
    assert {(row.data_id, row.free_bytes) for row in rows} == {("later", 3), ("d", 5)}


@pytest.mark.first_case
async def test_one_that_nobody_told_of_for_a_day_is_forgotten(database):
    other = dataclasses.replace(REPORT, address="10.0.0.6:7443")
    await database.fleet_hosts.put([REPORT, other])
    yesterday = columns.now() - datetime.timedelta(hours=25)
    async with database.engine.begin() as connection:
        await connection.execute(sa.update(records.FleetHost).values(seen=yesterday))
    await database.fleet_hosts.put([])
    assert await database.fleet_hosts.list_addresses() == []
