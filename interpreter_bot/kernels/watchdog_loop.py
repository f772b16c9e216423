"""Watchdog over what no single system call bounds: sessions' memory and their disk usage.

Memory is watched only where no cgroup bounds it. Disk has no portable quota: what code writes
between two checks is how far a workspace can grow over its limit. Each session has a monitor of its
own, so that one with much to check delays no other; all share one clock, whose ticks are all that a
hundred idle sessions cost.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import logging
import os
import pathlib
import shutil
from collections.abc import (
    AsyncIterator,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from concurrent import futures
from typing import Final

from interpreter_bot import settings, values
from interpreter_bot.kernels import (
    launchers,
    machine_exhaustion,
    session_monitors,
    snapshots,
)
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)

# The watchdog's own threads: slow checks delay no other work, and no kill. Memory, which grows by
# gigabytes a second, has threads that never wait for a walk through files; only a session whose own
# files are being looked through is not looked at meanwhile.
_THREADS: Final = 4
_FULL_DISK_SECONDS: Final = 1.0
# Frozen sessions do not move; should one all the same, it is noticed after so many.
_FROZEN_TICKS: Final = 40
# The machine is looked at every so many ticks where nobody can change it.
_RARE_TICKS: Final = 4
_LITTLE_BYTES: Final = 64 * settings.MIB
_RECOVERY_SECONDS: Final = 1.0


@contextlib.asynccontextmanager
async def watching(
    live: Mapping[str, launchers.LaunchedKernel],
    starting: Sized,
    config: settings.Settings,
    saved: snapshots.Snapshots,
) -> AsyncIterator[None]:
    """Watch kernels as `watch` does, as long as the context is open."""

    async def watch_on() -> None:
        while True:
            try:
                await watch(live, starting, config, saved)
            except Exception:
                # Any exception: limits that are not watched any more would be worse.
                _log.critical("the watchdog fell, and is started again", exc_info=True)
                await asyncio.sleep(_RECOVERY_SECONDS)

    task = asyncio.create_task(watch_on(), name="watchdog")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def watch(
    live: Mapping[str, launchers.LaunchedKernel],
    starting: Sized,
    config: settings.Settings,
    saved: snapshots.Snapshots,
) -> None:
    """Watch all live kernels for ever.

    Args:
        live: the kernels by session; read anew at each tick.
        starting: those that are to be, which people wait for; read like them.
        config: the settings in effect: the limits, and the disk that must not be filled.
        saved: takes those of idle sessions.
    """
    watched: dict[str, session_monitors.SessionMonitor] = {}
    reserve, was_full = machine_exhaustion.MachineExhaustion(config.limits), False

    async def look_after(key: str, launched: launchers.LaunchedKernel) -> None:
        monitor = watched[key] = session_monitors.SessionMonitor(
            launched, config, saved, memory_threads=memory_threads, disk_threads=disk_threads
        )
        try:
            await monitor.watch()
        finally:
            if watched.get(key) is monitor:
                del watched[key]

    with _threads("memory") as memory_threads, _threads("files") as disk_threads:
        async with asyncio.TaskGroup() as tasks:
            for turn in itertools.cycle(range(_FROZEN_TICKS)):
                await asyncio.sleep(session_monitors.TICK_SECONDS)
                awake = {key: one for key, one in live.items() if not one.kernel.is_frozen}
                saved.busy_count = len(starting) + weigh(awake.values())
                for key in watched.keys() - live.keys():
                    watched[key].tick(is_wanted=False)
                # Frozen ones rarely, and not all in the same tick.
                frozen = itertools.islice(live.items(), turn, None, _FROZEN_TICKS)
                running = _running([watched[key] for key in awake if key in watched], starting)
                for key, launched in (awake | dict(frozen)).items():
                    if monitor := watched.get(key):
                        monitor.tick(is_wanted=monitor.launched is launched, running=running)
                    is_new = monitor is None or monitor.launched is not launched
                    if is_new and launched.kernel.is_alive:
                        tasks.create_task(look_after(key, launched), name=f"guard of {key}")
                is_rare = turn % _RARE_TICKS == 0
                if not (awake or is_rare):
                    continue
                everyone = list(watched.values())
                await reserve.end_culprit(everyone)
                if _resident_bytes() > config.limits.bot_memory_bytes:
                    await _kill_largest_writer(everyone)
                if is_full := _is_full(config.paths.data, config.limits):
                    await _kill_largest_disk_user(everyone)
                if is_full and not was_full:
                    _log.error("the disk of %s is nearly full", config.paths.data)
                was_full = is_full


@contextlib.contextmanager
def _threads(work: str) -> Iterator[futures.Executor]:
    threads = futures.ThreadPoolExecutor(_THREADS, f"watchdog of {work}")
    try:
        yield threads
    finally:
        # Checks under way end in a moment, and their result is not needed.
        threads.shutdown(wait=False, cancel_futures=True)


def _running(seen: Iterable[session_monitors.SessionMonitor], starting: Sized) -> int:
    """Count the sessions that run, and those that begin to, up to a bound."""
    begun = min(len(starting), session_monitors.MOST_STARTING)
    return begun + sum(one.is_running for one in seen)


def _is_full(directory: pathlib.Path, limits: settings.Limits) -> bool:
    try:
        return shutil.disk_usage(directory).free < limits.disk_reserve_bytes
    except OSError:
        _log.exception("the data directory cannot be looked at")
        return False


async def _kill_largest_disk_user(everyone: Sequence[session_monitors.SessionMonitor]) -> None:
    """Kill the kernel whose session holds most of a full disk, or hides what it wrote, busy or not.

    The others are killed only if that is not enough, and none that holds little and does not grow:
    its end would free nothing.
    """
    for monitor in everyone:
        monitor.request_check()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FULL_DISK_SECONDS):
            for monitor in everyone:
                await monitor.checked.wait()
    guilty = [
        one
        for one in everyone
        if one.hides_writes or one.has_grown or one.disk_bytes > _LITTLE_BYTES
    ]
    if guilty:
        largest = max(guilty, key=lambda monitor: (monitor.hides_writes, monitor.disk_bytes))
        largest.launched.kernel.kill_with_reason(values.Ending.STOPPED, run_words.DISK_FULL)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _kill_largest_writer(everyone: Sequence[session_monitors.SessionMonitor]) -> None:
    """Kill the kernel that writes most, because the bot's own memory is running out.

    What a session sends is bounded where it is read. Should something grow all the same, the
    largest writer is the likeliest cause.
    """
    written = await asyncio.to_thread(lambda: [monitor.written_bytes() for monitor in everyone])
    if everyone:
        _, worst = max(zip(written, everyone, strict=True), key=lambda pair: pair[0])
        _log.critical("the bot uses too much memory; ending the session that writes most")
        worst.launched.kernel.kill_with_reason(values.Ending.STOPPED, run_words.TOO_MUCH_SENT)


def weigh(awake: Collection[launchers.LaunchedKernel]) -> int:
    """Divide the processor and the disk among people, and each one's share among their sessions.

    All busy sessions of a person weigh as much together as the one of another. An idle one, in
    which code may run on in the background, weighs less than each of them.

    Args:
        awake: all that are not frozen.

    Returns:
        How many are busy.
    """
    kernels = collections.Counter(one.person for one in awake)
    busy = collections.Counter(one.person for one in awake if one.kernel.is_busy)
    for one in awake:
        among = busy[one.person] if one.kernel.is_busy else kernels[one.person]
        if one.weight != (weight := 1 / among):
            one.weight = weight
            one.provisioner.set_weight(weight)
    return busy.total()
