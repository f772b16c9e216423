"""Which hosts of kernels are opened, where the settings name several machines."""

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.app import host_startup


@pytest.mark.parametrize(
    "reached",
    [
        {"egress": (settings.Egress(host="data.example.org"),)},
        {"connections": (settings.Connection(name="numbers", kind="duckdb", address="/x"),)},
        {"kernels": settings.Kernels(doors=True)},
    ],
    ids=["egress", "connections", "doors"],
)
async def test_code_of_a_fleet_reaches_nothing_through_its_bot(tmp_path, reached):
    config = settings.Settings(
        paths=settings.Paths(data=tmp_path / "data", runtime=tmp_path / "run"),
        host=settings.Host(fleet=(str(tmp_path),)),
        **reached,
    )
    with pytest.raises(errors.SettingsError, match=r"host\.fleet does not go with"):
        async with host_startup.open_hosts(config, kernels_outlive=True):
            pass
