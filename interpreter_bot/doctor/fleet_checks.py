"""Check of a fleet: whether each host of other machines can be reached, and what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

from interpreter_bot import errors
from interpreter_bot.doctor import diagnosis
from interpreter_bot.hosts import host_addresses, host_processes
from interpreter_bot.text import quantities

_LOST: Final = "Sessions that are there wait, and begin again elsewhere; others go on."
_FIX: Final = (
    "See the log of the host there, and whether host.listen, the network and the certificates of "
    "both ends (`interpreter-bot host certificate`) let this machine reach it."
)
_EMPTY: Final = "host.fleet leads to no host"


def check(listed: Coroutine[None, None, list[host_addresses.Address]]) -> list[diagnosis.Finding]:
    """Ask each host of a fleet what it is; runs an event loop of its own.

    Args:
        listed: gives where they listen; may raise `BotError`.
    """
    try:
        return asyncio.run(_asked(listed))
    except errors.BotError as error:
        return [_finding("fleet", str(error), is_active=False)]


async def _asked(
    listed: Coroutine[None, None, list[host_addresses.Address]],
) -> list[diagnosis.Finding]:
    addresses = await listed
    if not addresses:
        return [_finding("fleet", _EMPTY, is_active=False)]
    return list(await asyncio.gather(*map(_about, addresses)))


async def _about(address: host_addresses.Address) -> diagnosis.Finding:
    name = f"host {address}"
    try:
        told = await host_processes.status(address)
    except errors.KernelError as error:
        return _finding(name, str(error), is_active=False)
    state = "takes no new sessions" if told.is_draining else "takes sessions"
    has = quantities.count(told.kernels, "kernel")
    walls = "" if told.is_sandboxed else ", WITHOUT a sandbox"
    return _finding(name, f"release {told.release}, {has}, {state}{walls}", is_active=True)


def _finding(name: str, detail: str, *, is_active: bool) -> diagnosis.Finding:
    return diagnosis.Finding(name, is_active, _LOST, _FIX, detail)
