"""Guards of kernels that are played: who is looked at, when, and what follows."""

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import types

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels import (
    session_monitors,
    snapshot_generations,
    snapshots,
    watchdog_loop,
)
from interpreter_bot.kernels.files import directory_contents
from interpreter_bot.kernels.metering import procfs, session_metering
from interpreter_bot.wording import run_words
from tests import waiting

MIB = settings.MIB
LIMITS = settings.Limits(
    memory_bytes=512 * MIB,
    workspace_bytes=64 * MIB,
    workspace_files=100,
    disk_reserve_bytes=1,
)
QUICK = session_monitors.Pace(tick_seconds=0.01)
FINE = session_metering.Reading(MIB, 2, 1)
NOTHING = directory_contents.DirectoryUsage(0, 0, is_partial=False, is_over_limit=False)


class Kernel:
    id = "k"
    is_busy = True
    is_alive = True
    execution_count = 1
    is_frozen = False

    def __init__(self):
        self.last_used = time.monotonic()
        self.condemned = []
        self.interrupted = []

    def kill_with_reason(self, ending, reason):
        self.condemned.append((ending, reason))
        self.is_alive = False

    async def freeze(self):
        self.is_frozen = True

    def interrupt_with_reason(self, ending, reason):
        self.interrupted.append((ending, reason))


class Session(Kernel):
    """A kernel with its provisioner, processes and workspace, all in one."""

    def __init__(self, directory, *, reading=FINE, usage=NOTHING, stored=0, wait=None):
        super().__init__()
        self.workspace = self
        self.provisioner = types.SimpleNamespace(
            meter=lambda: self, can_freeze=True, has_own_id=True
        )
        self.person, self.weight = str(id(self)), 1.0
        self.directory = directory
        self.looks = self.at_once = self.most_at_once = self.checks = self.written = 0
        self.threads = set()
        self.group_bytes = None
        # As if something ran all the time.
        self.seen_clocks = {}
        self._reading, self._usage, self._wait = reading, usage, wait
        self.stored = stored

    @property
    def is_counted(self):
        return self.group_bytes is not None

    has_run_since = staticmethod(session_metering.SessionProcesses.has_run_since)

    def reading(self, limit_bytes, max_tasks):
        assert (limit_bytes, max_tasks) == (576 * MIB, None if self.provisioner.has_own_id else 128)
        self.looks += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.threads.add(threading.current_thread())
        if self._wait is not None:
            self._wait.wait()
        self.at_once -= 1
        return self._reading

    def clocks(self):
        return self.seen_clocks

    def stored_bytes(self):
        self.checks += 1
        return self.stored

    def measure(self):
        self.directory.stat()
        return self._usage

    def measure_variables(self, max_bytes):
        return NOTHING

    def measure_temporary(self):
        return NOTHING

    def written_bytes(self):
        return self.written


@pytest.fixture
def disk(monkeypatch):
    """What is free on the disk each time that somebody looks, and at last for ever."""

    def play(*free):
        left = list(free)

        def usage(_):
            return types.SimpleNamespace(free=left.pop(0) if len(left) > 1 else left[0])

        monkeypatch.setattr(shutil, "disk_usage", usage)

    return play


def configured(tmp_path, **kernels):
    return settings.Settings(
        limits=LIMITS,
        kernels=settings.Kernels(**kernels),
        paths=settings.Paths(data=tmp_path, runtime=tmp_path),
    )


def not_saving(config):
    return snapshots.Snapshots(config, snapshot_generations.SnapshotKey())


@contextlib.asynccontextmanager
async def watched(
    tmp_path, live, *, starting=(), pace=None, max_resident_bytes=sys.maxsize, **kernels
):
    config = configured(tmp_path, **kernels)
    pace = dataclasses.replace(QUICK, **(pace or {}))
    task = asyncio.create_task(
        watchdog_loop.watch(
            live, starting, config, not_saving(config), pace, max_resident_bytes=max_resident_bytes
        )
    )
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        left = [one.get_name() for one in asyncio.all_tasks() if "guard" in one.get_name()]
        assert left == []


async def test_one_that_takes_for_ever_to_look_at_costs_nobody_else_a_look(tmp_path):
    forever = threading.Event()
    slow, quick = Session(tmp_path, wait=forever), Session(tmp_path)
    try:
        async with watched(tmp_path, {"slow": slow, "quick": quick}):
            await waiting.until(lambda: quick.looks > 10)
            assert (slow.looks, slow.most_at_once) == (1, 1)
            assert all("watchdog" in thread.name for thread in quick.threads)
    finally:
        forever.set()


async def test_memory_is_looked_at_while_as_many_walk_through_files_as_can(tmp_path):
    forever = threading.Event()
    walked = [Session(tmp_path) for _ in range(9)]
    for session in walked:
        session.measure = forever.wait
    greedy = Session(tmp_path, reading=session_metering.Reading(577 * MIB, 2, 1))
    live = dict(enumerate(walked))
    try:
        async with watched(tmp_path, live):
            await waiting.until(lambda: all(one.looks for one in walked))
            live["greedy"] = greedy
            await waiting.until(lambda: greedy.condemned)
    finally:
        forever.set()


async def test_what_there_is_no_time_to_read_ends_a_session_only_if_that_happens_twice(tmp_path):
    late = session_metering.Reading(577 * MIB, 2, 1, is_late=True)
    busy, hiding = Session(tmp_path), Session(tmp_path, reading=late)
    readings = [late, FINE]
    busy.reading = lambda *_: readings[0] if len(readings) == 1 else readings.pop(0)
    async with watched(tmp_path, {"busy": busy, "hiding": hiding}):
        await waiting.until(lambda: hiding.condemned)
        await waiting.until(lambda: len(readings) == 1)
    assert hiding.looks == 2
    assert not busy.condemned


class QuickSession(Session):
    """Runs something else whenever one looks."""

    execution_count = property(lambda self: next(self._numbers))
    _numbers = itertools.count(1)


@pytest.mark.parametrize("idle_ticks", [8, 1_000_000])
async def test_quick_code_is_looked_at_like_code_in_the_background(tmp_path, idle_ticks):
    quick, long = QuickSession(tmp_path), Session(tmp_path)
    quick.group_bytes = long.group_bytes = 0
    live = {"quick": quick, "long": long}
    async with watched(tmp_path, live, pace={"idle_ticks": idle_ticks}):
        await waiting.until(lambda: long.checks > 10)
        if idle_ticks == 8:
            await waiting.until(lambda: quick.checks > 2)
        else:
            assert quick.checks == 0


async def test_where_many_run_each_is_looked_at_less_often_if_a_group_bounds_its_memory(
    tmp_path,
):
    bounded, other = Session(tmp_path), Session(tmp_path)
    bounded.group_bytes = 0
    live = {"bounded": bounded, "other": other}
    async with watched(tmp_path, live, pace={"checks_per_second": 1e-6}):
        # At first like code in the background, after two seconds.
        await waiting.until(lambda: bounded.checks == 1)
        seen = other.looks
        await waiting.until(lambda: other.looks > seen + 10)
        assert bounded.checks == 1


@pytest.mark.parametrize(
    ("limit", "is_looked_at"), [(0, True), (QUICK.max_starting, True), (10**9, False)]
)
async def test_kernels_that_are_started_count_as_running_up_to_a_bound(
    tmp_path, limit, is_looked_at
):
    pace = {"idle_ticks": 1_000_000, "max_starting": limit}
    bounded, other = Session(tmp_path), Session(tmp_path)
    bounded.group_bytes = 0
    live = {"bounded": bounded, "other": other}
    async with watched(tmp_path, live, starting=range(10**6), pace=pace):
        await waiting.until(lambda: other.looks > 10)
        if is_looked_at:
            await waiting.until(lambda: bounded.checks > 1)
        assert bool(bounded.checks) == is_looked_at


@pytest.mark.parametrize("starting", [0, 10**6])
async def test_idle_sessions_wait_at_most_as_long_again_where_many_begin(tmp_path, starting):
    # So many that nobody would be looked at for an hour.
    pace = {"idle_ticks": 100, "max_starting": 10**6}
    idle = Session(tmp_path)
    idle.is_busy, idle.group_bytes = False, 0
    began = time.monotonic()
    async with watched(tmp_path, {"idle": idle}, starting=range(starting), pace=pace):
        await waiting.until(lambda: idle.checks)
        # A second, and as much again.
        seconds = time.monotonic() - began
    assert (seconds >= 2.0) == bool(starting)
    assert seconds < 20


OVER = directory_contents.DirectoryUsage(81 * MIB, 5, is_partial=False, is_over_limit=True)
CONDEMNED = {
    "memory": (
        {"reading": session_metering.Reading(577 * MIB, 2, 1)},
        "out of memory",
        run_words.over_memory(512 * MIB),
    ),
    "process sessions (setsid)": (
        {"reading": session_metering.Reading(MIB, 9, 6)},
        "stopped",
        run_words.TOO_MANY_PROCESS_SESSIONS,
    ),
    "files": ({"usage": OVER}, "stopped", run_words.workspace_full(LIMITS)),
}


@pytest.mark.parametrize("why", CONDEMNED)
async def test_who_goes_too_far_is_condemned_with_its_own_reason(tmp_path, why):
    what, ending, reason = CONDEMNED[why]
    session, other = Session(tmp_path, **what), Session(tmp_path)
    async with watched(tmp_path, {"it": session, "other": other}):
        await waiting.until(lambda: session.condemned)
        assert session.condemned == [(ending, reason)]
        assert not other.condemned


INTERRUPTED = {
    "a little too much": (
        {"usage": dataclasses.replace(OVER, bytes=65 * MIB)},
        run_words.workspace_full(LIMITS),
    ),
    "what cannot be counted": (
        {
            "usage": directory_contents.DirectoryUsage(
                5, 5, is_partial=True, is_over_limit=True, is_uncountable=True
            )
        },
        run_words.FOLDERS_UNCOUNTABLE,
    ),
}


@pytest.mark.parametrize("why", INTERRUPTED)
async def test_busy_code_is_interrupted_once_and_not_condemned(tmp_path, why):
    what, reason = INTERRUPTED[why]
    session = Session(tmp_path, **what)
    async with watched(tmp_path, {"it": session}):
        await waiting.until(lambda: session.looks > 5)
        assert session.interrupted == [(values.Ending.STOPPED, reason)]
        assert not session.condemned


async def test_a_guard_ends_with_its_kernel_and_a_new_one_gets_its_own(tmp_path):
    first, second = Session(tmp_path), Session(tmp_path)
    live = {"it": first}
    async with watched(tmp_path, live):
        await waiting.until(lambda: first.looks > 2)
        live["it"] = second
        await waiting.until(lambda: second.looks > 2)
        seen = first.looks
        await asyncio.sleep(0.05)
        assert first.looks <= seen + 1


async def test_a_full_disk_ends_who_holds_most_after_all_were_looked_at(tmp_path, disk):
    small, large = Session(tmp_path, stored=65 * MIB), Session(tmp_path, stored=90 * MIB)
    for one in (small, large):
        # In a control group, idle, and not its turn: nobody would look at it for a while.
        one.group_bytes, one.is_busy = 0, False
    disk(MIB, MIB, MIB, 0, MIB)
    live = {"small": small, "large": large}
    async with watched(tmp_path, live, pace={"idle_ticks": 10**20}):
        await waiting.until(lambda: small.condemned or large.condemned)
        assert large.condemned == [(values.Ending.STOPPED, run_words.DISK_FULL)]
        assert not small.condemned


async def test_who_cannot_be_looked_at_is_told_to_the_log(tmp_path, caplog):
    session = Session(tmp_path / "missing")
    async with watched(tmp_path, {"it": session}):
        await waiting.until(lambda: any(one.levelno == logging.ERROR for one in caplog.records))


@pytest.fixture
def resting():
    """A process that never runs."""
    process = subprocess.Popen(["sleep", "60"])
    while procfs.stat_fields(process.pid)[0] != b"S":
        time.sleep(0.01)
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.parametrize("group_bytes", [None, 0])
async def test_a_session_that_rests_is_looked_at_once_and_again_when_it_moves(
    tmp_path, resting, group_bytes, monkeypatch
):
    session = Session(tmp_path)
    session.group_bytes, session.is_busy = group_bytes, False
    session.seen_clocks = {resting: procfs.processor_time_ns(resting)}
    looks = count_looks(session, monkeypatch)
    async with watched(tmp_path, {"it": session}):
        await waiting.until(lambda: len(looks) == 1)
        await asyncio.sleep(0.3)
        assert len(looks) == 1
        os.kill(resting, signal.SIGSTOP)
        os.kill(resting, signal.SIGCONT)
        await waiting.until(lambda: len(looks) > 1)
        # On a busy machine it may be a while until the program has answered both signals.
        has_moved = True
        while has_moved:
            session.seen_clocks = {resting: procfs.processor_time_ns(resting)}
            await asyncio.sleep(0.2)
            has_moved = session.has_run_since(session.seen_clocks)
        seen = len(looks)
        # Nor does code that only waits, as for an answer, need to be looked at.
        session.is_busy = True
        await asyncio.sleep(0.2)
        assert len(looks) == seen
        session.seen_clocks.clear()
        await waiting.until(lambda: len(looks) > seen + 3)


async def test_a_session_that_rests_for_long_is_looked_at_all_the_same(
    tmp_path, resting, monkeypatch
):
    session = Session(tmp_path)
    session.is_busy = False
    session.seen_clocks = {resting: procfs.processor_time_ns(resting)}
    looks = count_looks(session, monkeypatch)
    async with watched(tmp_path, {"it": session}, pace={"max_seconds_unchecked": 0.1}):
        await waiting.until(lambda: len(looks) == 3)


def count_looks(session, monkeypatch):
    looks, measure = [], session.measure

    def look():
        looks.append(session)
        return measure()

    monkeypatch.setattr(session, "measure", look)
    return looks


async def test_what_was_not_seen_is_looked_for_again_although_it_rests(
    tmp_path, resting, monkeypatch
):
    session = Session(tmp_path, usage=dataclasses.replace(NOTHING, is_partial=True))
    session.is_busy = False
    session.seen_clocks = {resting: procfs.processor_time_ns(resting)}
    looks = count_looks(session, monkeypatch)
    async with watched(tmp_path, {"it": session}):
        await waiting.until(lambda: len(looks) > 2)


async def test_more_processes_than_allowed_end_a_session_that_no_limit_of_the_system_bounds(
    tmp_path,
):
    crowded = Session(tmp_path, reading=session_metering.Reading(task_count=129))
    crowded.provisioner.has_own_id = False
    async with watched(tmp_path, {"it": crowded}):
        await waiting.until(lambda: crowded.condemned)
        reason = run_words.too_many_processes(LIMITS)
        assert crowded.condemned == [(values.Ending.STOPPED, reason)]


async def test_if_the_bot_uses_too_much_memory_the_largest_writer_is_ended(tmp_path):
    quiet, loud = Session(tmp_path), Session(tmp_path)
    loud.written = 1
    async with watched(tmp_path, {"quiet": quiet, "loud": loud}, max_resident_bytes=0):
        await waiting.until(lambda: quiet.condemned or loud.condemned)
        assert loud.condemned[0] == (values.Ending.STOPPED, run_words.TOO_MUCH_SENT)
        assert not quiet.condemned


async def test_a_full_disk_ends_first_who_hides_what_it_wrote(tmp_path, disk):
    large, hiding = Session(tmp_path, stored=900 * MIB), Session(tmp_path, stored=None)
    disk(MIB, MIB, MIB, 0, MIB)
    async with watched(tmp_path, {"large": large, "hiding": hiding}):
        await waiting.until(lambda: large.condemned or hiding.condemned)
        assert hiding.condemned == [(values.Ending.STOPPED, run_words.DISK_FULL)]
        assert not large.condemned


async def test_a_full_disk_ends_nobody_who_holds_little_and_does_not_grow(tmp_path, disk):
    small, growing = Session(tmp_path, stored=60 * MIB), Session(tmp_path)
    disk(0)
    async with watched(tmp_path, {"small": small, "growing": growing}):
        await waiting.until(lambda: min(small.looks, growing.looks) > 5)
        assert not small.condemned
        growing.stored = 2 * MIB + 1
        await waiting.until(lambda: growing.condemned)
        assert growing.condemned == [(values.Ending.STOPPED, run_words.DISK_FULL)]
        assert not small.condemned


async def test_a_session_is_frozen_once_nobody_uses_it_and_looked_at_rarely(
    tmp_path, resting, monkeypatch
):
    idle, busy = Session(tmp_path), Session(tmp_path)
    idle.is_busy = False
    idle.seen_clocks = {resting: procfs.processor_time_ns(resting)}
    looks = count_looks(idle, monkeypatch)
    async with watched(tmp_path, {"idle": idle, "busy": busy}, freeze_seconds=0.3):
        await waiting.until(lambda: idle.is_frozen)
        assert time.monotonic() >= idle.last_used + 0.3
        before, asked = len(looks), []
        monkeypatch.setattr(idle, "has_run_since", lambda _: asked.append(1))
        await asyncio.sleep(1.0)
        assert len(looks) == before
        assert not asked
        assert not busy.is_frozen


async def test_a_session_is_never_frozen_where_the_settings_say_so(tmp_path):
    idle = Session(tmp_path)
    idle.is_busy = False
    async with watched(tmp_path, {"idle": idle}, freeze_seconds=0):
        await waiting.until(lambda: idle.looks > 20)
    assert not idle.is_frozen
