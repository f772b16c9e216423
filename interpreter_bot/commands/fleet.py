"""`interpreter-bot fleet`: keep a host on each node of a Ray cluster, and list them for bots."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import signal

from interpreter_bot import errors, settings
from interpreter_bot.app import execution_startup
from interpreter_bot.wording import host_words


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Manage the hosts of the cluster until a signal; they keep running afterwards.

    Raises:
        BotError: there is no cluster, or no database.
    """
    if importlib.util.find_spec("ray") is None:
        raise errors.SettingsError(host_words.NO_RAY)
    return asyncio.run(_drive(config, options.address))


async def _drive(config: settings.Settings, address: str) -> int:
    # Imported here: Ray takes seconds, and help and the house tests do without.
    from interpreter_bot.ray_fleet import ray_driver

    async with execution_startup.open_database(config, takes_orphans=False) as database:
        driver = await asyncio.to_thread(ray_driver.RayDriver, address)
        try:
            drive_task = asyncio.create_task(driver.drive(database.fleet_hosts), name="fleet")
            for signum in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(signum, drive_task.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await drive_task
        finally:
            await asyncio.to_thread(driver.close)
    return 0
