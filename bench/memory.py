"""Private memory of an idle kernel that has imported the stack."""

from __future__ import annotations

import asyncio
import pathlib
import re
from collections.abc import Iterable

from bench import measured_bots, metrics, sample_sizes, stock_jupyter

_FIELD = re.compile(r"^(\w+): +(\d+) kB", re.MULTILINE)
_SETTLE_SECONDS = 1.0


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure kernels of the bot, and as many stock kernels."""
    private, proportional, unreadable_count, stock_private = [], [], 0, []
    async with measured_bots.open_pool() as pool:
        for number in range(effort.idle_kernels):
            async with pool.lease(f"session {number}") as lease:
                await measured_bots.execute(await lease.kernel(), measured_bots.IMPORT_STACK_CODE)
        await asyncio.sleep(_SETTLE_SECONDS)
        for kernel in pool.kernels.values():
            private_bytes, proportional_bytes, unreadable = _sum_megabytes(
                kernel.provisioner.meter().pids()
            )
            private.append(private_bytes)
            proportional.append(proportional_bytes)
            unreadable_count += unreadable
    for _ in range(effort.idle_kernels):
        async with stock_jupyter.open_kernel() as client:
            await stock_jupyter.execute(client, measured_bots.IMPORT_STACK_CODE)
            pid = await _ask_pid(client)
            await asyncio.sleep(_SETTLE_SECONDS)
            stock_private.append(_sum_megabytes([pid])[0])
    return [
        metrics.Measure(
            "private memory of an idle kernel",
            "MB",
            private,
            bar=30.0,
            alternative=metrics.Alternative("cold ipykernel", stock_private),
            notes={"proportional": proportional, "processes_not_readable": unreadable_count},
        )
    ]


def _sum_megabytes(pids: Iterable[int]) -> tuple[float, float, int]:
    """Return private and proportional megabytes of processes, and how many are not readable."""
    private = proportional = unreadable_count = 0
    for pid in pids:
        try:
            private_bytes, proportional_bytes = read_memory_bytes(pid)
        except PermissionError:
            unreadable_count += 1
        except (FileNotFoundError, ProcessLookupError):
            # A child that saved variables has ended.
            continue
        else:
            private += private_bytes
            proportional += proportional_bytes
    return private / measured_bots.MEGABYTE, proportional / measured_bots.MEGABYTE, unreadable_count


def read_memory_bytes(pid: int) -> tuple[int, int]:
    """Return the private and the proportional bytes of a process."""
    listing = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    sizes = {name: int(kilobytes) * 1024 for name, kilobytes in _FIELD.findall(listing)}
    return sizes["Private_Clean"] + sizes["Private_Dirty"], sizes["Pss"]


async def _ask_pid(client: object) -> int:
    """Ask a stock kernel for its process id."""
    answers: list[int] = []

    def take_message(message: dict) -> None:
        if message["msg_type"] == "execute_result":
            answers.append(int(message["content"]["data"]["text/plain"]))

    code = "__import__('os').getpid()"
    await client.execute_interactive(code, allow_stdin=False, output_hook=take_message)
    return answers[0]
