"""Hosts of a cluster, as they are listed for bots."""

import dataclasses
import datetime

import pytest
import sqlalchemy as sa

from interpreter_bot.ray_fleet import host_reports
from interpreter_bot.store import columns, records

ONE = host_reports.HostReport("10.0.0.5:7443", "d", "b", 5, 10, False)


async def test_hosts_stay_listed_while_nobody_tells_of_them(database):
    other = dataclasses.replace(ONE, address="10.0.0.6:7443")
    await database.fleet_hosts.put([ONE, other])
    await database.fleet_hosts.put([dataclasses.replace(ONE, boot_id="later", free_bytes=3)])
    assert await database.fleet_hosts.list_addresses() == ["10.0.0.5:7443", "10.0.0.6:7443"]
    async with database.engine.connect() as connection:
        found = (await connection.execute(sa.select(records.FleetHost))).all()
    assert {(one.boot_id, one.free_bytes) for one in found} == {("later", 3), ("b", 5)}


@pytest.mark.first_case
async def test_one_that_nobody_told_of_for_a_day_is_forgotten(database):
    other = dataclasses.replace(ONE, address="10.0.0.6:7443")
    await database.fleet_hosts.put([ONE, other])
    before = columns.now() - datetime.timedelta(hours=25)
    async with database.engine.begin() as connection:
        await connection.execute(sa.update(records.FleetHost).values(seen=before))
    await database.fleet_hosts.put([])
    assert await database.fleet_hosts.list_addresses() == []
