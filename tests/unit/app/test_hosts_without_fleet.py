"""What the operator is told if `host.store` has no effect."""

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.app import execution_startup


@pytest.mark.parametrize("store", ["", "file:///mnt/shared"])
async def test_a_store_without_a_fleet_is_warned_of(tmp_path, short_path, caplog, store):
    config = settings.Settings(
        host=settings.Host(mode="service", store=store),
        paths=settings.Paths(data=tmp_path, runtime=short_path),
    )
    # No host runs, which ends the start after the warning.
    with pytest.raises(errors.KernelError, match="Start one"):
        async with execution_startup.open_hosts(config, kernels_outlive_bot=True):
            pass
    assert ("host.fleet is empty" in caplog.text) == bool(store)
