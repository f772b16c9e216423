"""A simulated fleet of thousands of machines: waiting times, moved sessions and database load.

Time is simulated and random numbers are seeded, so that a run can be repeated. The product's own
code makes the decisions: which hosts are asked for offers and which one gets a session
(`placement_offers`), whether a kernel fits (`spares.has_room`), which kernel is ended to make room
(`kernel_capacity`) and which session starts next (`admissions.FairQueue`). The durations on a host
were measured on a real one.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import heapq
import itertools
import math
import random
from collections.abc import Callable
from typing import Any, cast

from interpreter_bot import errors, settings
from interpreter_bot.hosts import placement_offers
from interpreter_bot.kernels import admissions, kernel_capacity, live_kernels, spares

_MIB = settings.MIB
# From `kernels.json` and `loads.json`, on two cores: a kernel's start, and loading its variables.
_START_SECONDS = 0.10
_RESTORE_SECONDS = 0.05
_CORES = 4
_MACHINE_BYTES = 8 * 1024 * _MIB
_ZONES = 3
# Counted in `store.placements` during one turn with a fleet of two.
_FINDS_PER_TURN = 4
_BUSY_SECONDS = 5.0
_REAP_SECONDS = 60.0
_DRAIN_SECONDS = 15.0
_REPLACE_SECONDS = 3.0


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The size of a simulation, and its events.

    Attributes:
        hosts: number of machines, spread over three zones.
        sessions: number of sessions that begin, evenly over the time.
        people: number of people who have them.
        seconds: simulated time.
        deaths: number of hosts that are killed, one after the other.
        away_seconds: how long a killed host, or a lost zone, is away.
        zone_is_lost: whether a whole zone is lost in the middle of the time.
        lost_seconds: the setting `host.lost_seconds`.
        deploy_share: share of hosts that are drained and replaced at a time, in the last quarter.
    """

    hosts: int = 10_000
    sessions: int = 1_000_000
    people: int = 400_000
    seconds: float = 3600.0
    deaths: int = 100
    away_seconds: float = 600.0
    zone_is_lost: bool = True
    lost_seconds: float = 30.0
    deploy_share: float = 0.02


SMALL = Shape(hosts=60, sessions=3000, people=1200, deaths=3)


@dataclasses.dataclass(eq=False, slots=True)
class _Kernel:
    """Takes the place of a kernel, its provisioner and its meter."""

    session: _Session
    bytes: int
    last_used: float
    is_alive: bool = True
    is_busy: bool = False

    @property
    def person(self) -> str:
        return self.session.person

    @property
    def provisioner(self) -> _Kernel:
        return self

    def meter(self) -> _Kernel:
        return self

    def counted_bytes(self) -> int:
        return self.bytes


@dataclasses.dataclass(eq=False, slots=True)
class _Session:
    key: str
    person: str
    turns: int
    bytes: int
    host: _Host | None = None
    has_files: bool = False


@dataclasses.dataclass(eq=False, slots=True)
class _Host:
    number: int
    kernels: dict[str, Any] = dataclasses.field(default_factory=dict)
    used_bytes: int = 0
    starting_count: int = 0
    queue: admissions.FairQueue = dataclasses.field(default_factory=admissions.FairQueue)
    queued_sessions: dict[str, tuple[_Session, float]] = dataclasses.field(default_factory=dict)
    waiting_sessions: dict[str, tuple[_Session, float]] = dataclasses.field(default_factory=dict)
    down_since: float | None = None
    is_draining: bool = False
    # Counts deaths: a kernel start of an earlier generation has no effect.
    generation: int = 0

    def offer(self) -> placement_offers.Offer:
        return placement_offers.Offer(has_files=False, free_bytes=_MACHINE_BYTES - self.used_bytes)


@dataclasses.dataclass(slots=True)
class Figures:
    """The results of a simulation.

    Attributes:
        waits: seconds from each message to a kernel that takes its code.
        moved: sessions that began again on another host.
        restored: kernel starts with saved variables.
        lost: executions that died with their host.
        evicted: kernels that were ended to make room.
        refused: turns without a host, or whose host was full or draining.
        finds: reads of a placement from the database, by second.
        puts: new placements in the database, by second.
        questions: requests to hosts for an offer, by second.
        used_byte_minutes: memory of all kernels.
        idle_byte_minutes: memory of kernels that were unused for five minutes.
        spread: memory of the fullest host divided by the mean, each minute.
        events: number of simulated events.
    """

    waits: list[float] = dataclasses.field(default_factory=list)
    moved: int = 0
    restored: int = 0
    lost: int = 0
    evicted: int = 0
    refused: int = 0
    finds: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    puts: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    questions: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    used_byte_minutes: int = 0
    idle_byte_minutes: int = 0
    spread: list[float] = dataclasses.field(default_factory=list)
    events: int = 0


class Simulation:
    """One run."""

    def __init__(self, shape: Shape, *, seed: int) -> None:
        """Prepare the hosts and an empty schedule."""
        self._shape = shape
        self._random = random.Random(seed)
        self._settings = settings.Kernels()
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._hosts = [_Host(number) for number in range(shape.hosts)]
        self._running_hosts, self._accepting_hosts = list(self._hosts), list(self._hosts)
        self.figures = Figures()

    def _schedule(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (seconds, next(self._order), action))

    def run(self) -> Figures:
        """Simulate the whole time."""
        shape = self._shape
        self._schedule(0.0, self._arrive)
        for number in range(shape.deaths):
            time_of_death = shape.seconds * (number + 1) / (shape.deaths + 1)
            self._schedule(time_of_death, lambda: self._die(self._random.choice(self._hosts)))
        if shape.zone_is_lost:
            self._schedule(shape.seconds / 2, self._lose_zone)
        self._schedule(shape.seconds * 0.75, lambda: self._deploy(0))
        self._schedule(_REAP_SECONDS, self._reap)
        while self._events and self._events[0][0] <= shape.seconds:
            self._now, _, action = heapq.heappop(self._events)
            self.figures.events += 1
            action()
        return self.figures

    def _arrive(self) -> None:
        """Begin one session, and schedule the next."""
        rng = self._random
        number = next(self._order)
        turns = 1 + int(rng.expovariate(1 / 3))
        size = int(min(rng.lognormvariate(math.log(80), 1.0), 2000) * _MIB)
        person = str(int(self._shape.people * rng.random() ** 2))
        self._take_message(_Session(str(number), person, turns, size), self._now)
        self._schedule(
            self._now + rng.expovariate(self._shape.sessions / self._shape.seconds), self._arrive
        )

    def _take_message(self, session: _Session, sent_at: float) -> None:
        """Look up the session's host as `placed_hosts` does, then route the message."""
        self.figures.finds[int(self._now)] += _FINDS_PER_TURN
        self._route(session, sent_at)

    def _route(self, session: _Session, sent_at: float) -> None:
        host = session.host
        if host is not None and host.down_since is not None:
            lost_at = host.down_since + self._shape.lost_seconds
            if self._now < lost_at:
                host.waiting_sessions[session.key] = session, sent_at

                def give_up() -> None:
                    if host.waiting_sessions.pop(session.key, None) is not None:
                        self._route(session, sent_at)

                self._schedule(lost_at, give_up)
                return
            host = None
        if host is None:
            host = self._place(session)
            if host is None:
                self.figures.refused += 1
                return
        self._run_on_host(session, host, sent_at)

    def _place(self, session: _Session) -> _Host | None:
        candidates = placement_offers.sample_hosts(
            self._accepting_hosts, sample=self._random.sample
        )
        self.figures.questions[int(self._now)] += len(candidates)
        offers = [(host, host.offer()) for host in candidates]
        choice = placement_offers.choose_host(offers, sample=self._random.sample)
        if choice is not None:
            self.figures.puts[int(self._now)] += 1
            if session.host is not None:
                self.figures.moved += 1
                session.has_files = False
            session.host = choice
        return choice

    def _run_on_host(self, session: _Session, host: _Host, sent_at: float) -> None:
        kernel = host.kernels.get(session.key)
        if kernel is not None:
            self._execute(kernel, host, sent_at)
        elif host.is_draining:
            # A draining host starts no kernel, not even for its own sessions.
            self.figures.refused += 1
            self._plan_next_message(session)
        elif host.starting_count < _CORES:
            host.starting_count += 1
            self._start_kernel(session, host, sent_at)
        else:
            host.queue.add(session.key, session.person)
            host.queued_sessions[session.key] = session, sent_at

    def _start_kernel(self, session: _Session, host: _Host, sent_at: float) -> None:
        """Make room as `kernel_capacity` does, and start a kernel."""
        generation, kernels = host.generation, cast(dict[str, live_kernels.Kernel], host.kernels)
        busy_keys = {key for key, kernel in host.kernels.items() if kernel.is_busy}
        # The limit on a person's kernels applies to each host separately.
        try:
            own_key = kernel_capacity.choose_own_session_to_evict(
                session.person,
                kernels,
                starting_count=0,
                max_kernels=self._settings.per_person,
                leased_sessions=busy_keys,
            )
            if own_key is not None:
                self._evict(host, own_key)
            while not spares.has_room(
                self._settings,
                kernels.values(),
                host.starting_count - 1,
                machine_bytes=_MACHINE_BYTES,
            ):
                self._evict(
                    host,
                    kernel_capacity.choose_session_to_evict(session.person, kernels, busy_keys),
                )
        except errors.PoolFullError:
            self.figures.refused += 1
            self._start_next(host)
            self._plan_next_message(session)
            return
        seconds = _START_SECONDS * self._random.lognormvariate(0, 0.4)
        if session.has_files:
            self.figures.restored += 1
            seconds += _RESTORE_SECONDS
        kernel = _Kernel(session, session.bytes, self._now)

        def finish_start() -> None:
            if host.generation != generation:
                self._take_message(session, sent_at)
                return
            host.kernels[session.key] = kernel
            host.used_bytes += kernel.bytes
            self._start_next(host)
            self._execute(kernel, host, sent_at)

        self._schedule(self._now + seconds, finish_start)

    def _start_next(self, host: _Host) -> None:
        """Let the next waiting session start, as `Admissions` does."""
        host.starting_count -= 1
        if host.queued_sessions:
            key = host.queue.ordered_keys()[0]
            host.queue.mark_served(key)
            host.queue.remove(key)
            host.starting_count += 1
            session, sent_at = host.queued_sessions.pop(key)
            self._start_kernel(session, host, sent_at)

    def _execute(self, kernel: _Kernel, host: _Host, sent_at: float) -> None:
        self.figures.waits.append(self._now - sent_at)
        kernel.is_busy = True
        kernel.session.has_files = True

        def finish_execution() -> None:
            kernel.is_busy, kernel.last_used = False, self._now
            if not kernel.is_alive:
                self.figures.lost += 1
            self._plan_next_message(kernel.session)

        self._schedule(self._now + self._random.expovariate(1 / _BUSY_SECONDS), finish_execution)

    def _plan_next_message(self, session: _Session) -> None:
        session.turns -= 1
        if session.turns > 0:
            pause = self._random.lognormvariate(math.log(90), 1.2)
            self._schedule(self._now + pause, lambda: self._take_message(session, self._now))

    def _evict(self, host: _Host, key: str) -> None:
        self.figures.evicted += 1
        self._end_kernel(host, key)

    def _end_kernel(self, host: _Host, key: str) -> None:
        kernel = host.kernels.pop(key)
        kernel.is_alive = False
        host.used_bytes -= kernel.bytes

    def _reap(self) -> None:
        """End kernels that were idle for too long, and record the memory use."""
        for host in self._running_hosts:
            for key, kernel in list(host.kernels.items()):
                if (
                    not kernel.is_busy
                    and self._now - kernel.last_used > self._settings.idle_seconds
                ):
                    self._end_kernel(host, key)
                elif not kernel.is_busy and self._now - kernel.last_used > 300:
                    self.figures.idle_byte_minutes += kernel.bytes
            self.figures.used_byte_minutes += host.used_bytes
        used_bytes = [host.used_bytes for host in self._running_hosts]
        self.figures.spread.append(max(used_bytes) * len(used_bytes) / max(1, sum(used_bytes)))
        self._schedule(self._now + _REAP_SECONDS, self._reap)

    def _die(self, host: _Host) -> None:
        if host.down_since is not None:
            return
        self._take_down(host, self._shape.away_seconds)

    def _take_down(self, host: _Host, away_seconds: float) -> None:
        host.down_since = self._now
        host.generation += 1
        self._running_hosts.remove(host)
        if not host.is_draining:
            self._accepting_hosts.remove(host)
        self._end_all_kernels(host)
        self._schedule(self._now + away_seconds, lambda: self._bring_back(host))

    def _end_all_kernels(self, host: _Host) -> None:
        """End all kernels of a host, and route its queued messages again."""
        for key in list(host.kernels):
            self._end_kernel(host, key)
        queued_sessions, host.queued_sessions, host.starting_count = host.queued_sessions, {}, 0
        host.queue = admissions.FairQueue()
        for session, sent_at in queued_sessions.values():
            self._take_message(session, sent_at)

    def _bring_back(self, host: _Host) -> None:
        host.down_since, host.is_draining = None, False
        self._running_hosts.append(host)
        self._accepting_hosts.append(host)
        waiting_sessions, host.waiting_sessions = host.waiting_sessions, {}
        for session, sent_at in waiting_sessions.values():
            self._route(session, sent_at)

    def _lose_zone(self) -> None:
        for host in [host for host in self._running_hosts if host.number % _ZONES == 0]:
            self._die(host)

    def _deploy(self, start: int) -> None:
        """Drain and replace some hosts, then the next ones."""
        count = max(1, int(len(self._hosts) * self._shape.deploy_share))
        for host in self._hosts[start : start + count]:
            if host.down_since is None:
                host.is_draining = True
                self._accepting_hosts.remove(host)
                self._schedule(self._now + _DRAIN_SECONDS, functools.partial(self._replace, host))
        if start + count < len(self._hosts):
            self._schedule(self._now + _DRAIN_SECONDS + 1, lambda: self._deploy(start + count))

    def _replace(self, host: _Host) -> None:
        if host.down_since is None:
            # Its files and snapshots stay, so its sessions wait for its return.
            self._take_down(host, _REPLACE_SECONDS)
