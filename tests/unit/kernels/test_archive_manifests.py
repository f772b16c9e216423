"""What machines write into the store that they share."""

from __future__ import annotations

import asyncio

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.kernels import archive_manifests, shared_object_stores, snapshot_generations


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
    assert len({snapshot_generations.load_key(config).secret for config in configs}) == 1


async def test_a_machine_that_saved_something_before_keeps_its_key(machines):
    (first, second, third, *_), store = machines
    own = snapshot_generations.load_key(first).secret
    await archive_manifests.share_key(store, first)
    await archive_manifests.share_key(store, second)
    assert snapshot_generations.load_key(second).secret == own
    snapshot_generations.load_key(third)
    with pytest.raises(errors.SettingsError, match="another key"):
        await archive_manifests.share_key(store, third)
