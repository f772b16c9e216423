"""Whether one more kernel fits on this machine."""

from __future__ import annotations

from collections.abc import Iterable

from interpreter_bot import settings
from interpreter_bot.kernels import grounds, launching

_IDLE_KERNEL_BYTES = 64 * settings.MIB


def has_room(kernels: settings.Kernels, live: Iterable[launching.Launched], others: int) -> bool:
    """Say whether one more kernel fits beside those there are.

    Args:
        kernels: the settings, which bound their number or their memory.
        live: those that sessions have. What is left of one that died takes no room.
        others: how many there are beside these: standing by, being started, being ended.
    """
    alive = [launched for launched in live if launched.kernel.is_alive]
    unused = others + 1
    if kernels.concurrent:
        return len(alive) + unused <= kernels.concurrent
    used = [launched.provisioner.memory_bytes() or 0 for launched in alive]
    budget_bytes = grounds.memory_bytes() * kernels.memory_share
    used_bytes = sum(max(size, _IDLE_KERNEL_BYTES) for size in used)
    return used_bytes + unused * _IDLE_KERNEL_BYTES <= budget_bytes
