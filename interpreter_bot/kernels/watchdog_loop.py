"""Watchdog of sessions' memory and disk usage, which no single system call bounds.

Memory is watched only if no cgroup bounds it. Disk usage has no portable quota, so a workspace can
exceed its limit by what code writes between two checks. Each session has a monitor, so that slow
checks of one session delay no other. All monitors share one clock; its ticks are all that idle
sessions cost.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import pathlib
import shutil
from collections.abc import (
    AsyncIterator,
    Collection,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from concurrent import futures
from typing import Final

from interpreter_bot import settings, values
from interpreter_bot.kernels import (
    live_kernels,
    machine_exhaustion,
    session_monitors,
    snapshots,
)
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)

# The watchdog has threads of its own, so slow checks delay no other work and no kill. Memory may
# grow by gigabytes a second, so memory and files have separate threads.
_THREADS: Final = 4
_FULL_DISK_CHECK_SECONDS: Final = 1.0
_MIN_KILLED_BYTES: Final = 64 * settings.MIB
# How much this process may grow while kernels run. It is not counted from zero, because the process
# may belong to another program, which has data of its own.
_MAX_GROWTH_BYTES: Final = 640 * settings.MIB
_RECOVERY_SECONDS: Final = 1.0


@contextlib.asynccontextmanager
async def run_watchdog(
    kernels: Mapping[str, live_kernels.Kernel],
    starts: Sized,
    config: settings.Settings,
    session_snapshots: snapshots.Snapshots,
) -> AsyncIterator[None]:
    """Watch kernels as `watch` does while the context is open."""

    max_resident_bytes = _resident_bytes() + _MAX_GROWTH_BYTES

    async def watch_for_ever() -> None:
        while True:
            try:
                await watch(
                    kernels,
                    starts,
                    config,
                    session_snapshots,
                    max_resident_bytes=max_resident_bytes,
                )
            except Exception:
                # Any exception: unwatched limits would be worse.
                _log.critical("the watchdog failed and is restarted", exc_info=True)
                await asyncio.sleep(_RECOVERY_SECONDS)

    task = asyncio.create_task(watch_for_ever(), name="watchdog")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def watch(
    kernels: Mapping[str, live_kernels.Kernel],
    starts: Sized,
    config: settings.Settings,
    session_snapshots: snapshots.Snapshots,
    pace: session_monitors.Pace = session_monitors.PACE,
    *,
    max_resident_bytes: int,
) -> None:
    """Watch all live kernels for ever; `kernels` and `starts` are read again at each tick.

    Above `max_resident_bytes` of memory of this process, the session that writes most is ended.
    """
    monitors_by_session: dict[str, session_monitors.SessionMonitor] = {}
    memory_guard, was_disk_full = machine_exhaustion.MemoryGuard(config.limits), False

    async def monitor_session(key: str, kernel: live_kernels.Kernel) -> None:
        monitor = monitors_by_session[key] = session_monitors.SessionMonitor(
            kernel,
            config,
            session_snapshots,
            pace,
            memory_threads=memory_threads,
            disk_threads=disk_threads,
        )
        try:
            await monitor.watch()
        finally:
            if monitors_by_session.get(key) is monitor:
                del monitors_by_session[key]

    with _thread_pool("memory") as memory_threads, _thread_pool("files") as disk_threads:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(pace.tick_seconds)
                awake_kernels = {
                    key: kernel for key, kernel in kernels.items() if not kernel.is_frozen
                }
                session_snapshots.busy_count = len(starts) + share_among_people(
                    awake_kernels.values()
                )
                for key in monitors_by_session.keys() - kernels.keys():
                    monitors_by_session[key].tick(is_current=False)
                # Starting kernels count as running, up to a bound.
                running_count = min(len(starts), pace.max_starting) + sum(
                    monitors_by_session[key].is_running
                    for key in awake_kernels
                    if key in monitors_by_session
                )
                for key, kernel in awake_kernels.items():
                    if monitor := monitors_by_session.get(key):
                        monitor.tick(
                            is_current=monitor.kernel is kernel, running_count=running_count
                        )
                    is_new = monitor is None or monitor.kernel is not kernel
                    if is_new and kernel.is_alive:
                        tasks.create_task(monitor_session(key, kernel), name=f"monitor of {key}")
                monitors = list(monitors_by_session.values())
                await memory_guard.end_culprit(monitors)
                if _resident_bytes() > max_resident_bytes:
                    await _kill_largest_writer(monitors)
                if is_disk_full := _is_disk_full(config.paths.data, config.limits):
                    await _kill_largest_disk_user(monitors)
                if is_disk_full and not was_disk_full:
                    _log.error("the disk of %s is nearly full", config.paths.data)
                was_disk_full = is_disk_full


@contextlib.contextmanager
def _thread_pool(work: str) -> Iterator[futures.Executor]:
    threads = futures.ThreadPoolExecutor(_THREADS, f"watchdog of {work}")
    try:
        yield threads
    finally:
        # Running checks end soon, and nobody needs their results.
        threads.shutdown(wait=False, cancel_futures=True)


def _is_disk_full(directory: pathlib.Path, limits: settings.Limits) -> bool:
    try:
        return shutil.disk_usage(directory).free < limits.disk_reserve_bytes
    except OSError:
        _log.exception("the free space of the data directory cannot be read")
        return False


async def _kill_largest_disk_user(monitors: Sequence[session_monitors.SessionMonitor]) -> None:
    """Kill the kernel whose session uses most of a full disk, or hides what it wrote.

    A small session that does not grow is spared, as its end would free nothing. If the disk stays
    full, the next tick kills the next kernel.
    """
    for monitor in monitors:
        monitor.request_check()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FULL_DISK_CHECK_SECONDS):
            for monitor in monitors:
                await monitor.check_done.wait()
    suspects = [
        monitor
        for monitor in monitors
        if monitor.hides_writes or monitor.has_grown or monitor.disk_bytes > _MIN_KILLED_BYTES
    ]
    if suspects:
        largest = max(suspects, key=lambda monitor: (monitor.hides_writes, monitor.disk_bytes))
        largest.kernel.kill_with_reason(values.Ending.STOPPED, run_words.DISK_FULL)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _kill_largest_writer(monitors: Sequence[session_monitors.SessionMonitor]) -> None:
    """Kill the kernel that writes most, because the bot's own memory is running out.

    Readers bound what a session sends. If memory grows in spite of that, the session that writes
    most is the likeliest cause.
    """
    written_bytes = await asyncio.to_thread(
        lambda: [monitor.written_bytes() for monitor in monitors]
    )
    if monitors:
        _, largest_writer = max(zip(written_bytes, monitors, strict=True), key=lambda pair: pair[0])
        _log.critical("the bot uses too much memory; ending the session that writes most")
        largest_writer.kernel.kill_with_reason(values.Ending.STOPPED, run_words.TOO_MUCH_SENT)


def share_among_people(awake_kernels: Collection[live_kernels.Kernel]) -> int:
    """Divide processor and disk among people, and each person's share among their sessions.

    A person's busy sessions together weigh as much as one busy session of another person. An idle
    session, in which background code may run, weighs no more than a busy one. `awake_kernels`
    are all kernels that are not frozen.

    Returns:
        The number of busy kernels.
    """
    kernel_counts = collections.Counter(kernel.person for kernel in awake_kernels)
    busy_counts = collections.Counter(kernel.person for kernel in awake_kernels if kernel.is_busy)
    for kernel in awake_kernels:
        session_count = (
            busy_counts[kernel.person] if kernel.is_busy else kernel_counts[kernel.person]
        )
        if kernel.weight != (weight := 1 / session_count):
            kernel.weight = weight
            kernel.provisioner.set_weight(weight)
    return busy_counts.total()
