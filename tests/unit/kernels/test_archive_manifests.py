"""What machines write into the store that they share."""

from __future__ import annotations

import asyncio

import pytest

from interpreter_bot import errors, private_files, settings
from interpreter_bot.kernels import archive_manifests, shared_object_stores, snapshot_keys


@pytest.fixture
def machines(tmp_path):
    """Five machines that never ran, and the store that they share."""
    machines = [
        settings.Settings(paths=settings.Paths(data=tmp_path / str(number) / "data"))
        for number in range(5)
    ]
    return machines, shared_object_stores.SharedStore((tmp_path / "shared").as_uri())


async def test_of_machines_that_come_at_once_one_makes_the_key(machines):
    configs, store = machines
    await asyncio.gather(*(archive_manifests.share_key(store, config) for config in configs))
    assert len({snapshot_keys.load(config).secret for config in configs}) == 1


async def test_a_machine_that_saved_something_before_keeps_its_key(machines):
    (first, second, third, *_), store = machines
    own = snapshot_keys.load(first).secret
    await archive_manifests.share_key(store, first)
    await archive_manifests.share_key(store, second)
    assert snapshot_keys.load(second).secret == own
    snapshot_keys.load(third)
    with pytest.raises(errors.SettingsError, match="another key"):
        await archive_manifests.share_key(store, third)


async def test_former_keys_of_a_ring_can_be_dropped_once_each_host_began_again(tmp_path):
    store = shared_object_stores.SharedStore((tmp_path / "shared").as_uri())
    ring = tmp_path / "ring"
    configs = [
        settings.Settings(
            paths=settings.Paths(data=tmp_path / name / "data"),
            snapshots=settings.Snapshots(key_file=ring),
        )
        for name in "abc"
    ]

    async def begin(config):
        await archive_manifests.share_key(store, config)
        return snapshot_keys.load(config).secret

    first, second, late = configs
    secret = await begin(first)
    assert await begin(second) == secret
    former = ring.read_text().strip()
    assert snapshot_keys.rotate(first)
    assert [await begin(config) for config in (first, second)] == [secret, secret]
    present = ring.read_text().split()
    assert present[1:] == [former]
    # One that has the former file still, and one that has none.
    for keys in (former, ""):
        private_files.replace(ring, keys)
        await begin(second)
    private_files.replace(ring, present[0])
    assert [await begin(config) for config in (first, second, late)] == [secret] * 3
