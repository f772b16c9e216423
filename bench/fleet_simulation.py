"""A fleet of thousands of machines, simulated: what people wait for, what moves, what it costs.

Time is simulated and chance is seeded, so that a run can be repeated. What is decided is decided by
the product: who is asked for a place and who gets it (`placement_offers`), whether a kernel fits
(`spares.has_room`), whose goes for it (`kernel_capacity`), who starts next
(`admissions.FairQueue`). What a host does, and how long it takes, are figures that were measured
on one.
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
# Of `kernels.json` and `loads.json` on two cores: a start, and what loading variables adds.
_START_SECONDS = 0.10
_RESTORE_SECONDS = 0.05
_CORES = 4
_MACHINE_BYTES = 8 * 1024 * _MIB
_ZONES = 3
# Of one turn, counted at `store.placements` with a fleet of two.
_FINDS_PER_TURN = 4
_BUSY_SECONDS = 5.0
_REAP_SECONDS = 60.0
_DRAIN_SECONDS = 15.0
_REPLACE_SECONDS = 3.0


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How large a simulation is, and what happens in it.

    Attributes:
        hosts: machines, spread over three zones.
        sessions: that begin, evenly over the time.
        people: who have them.
        seconds: of simulated time.
        deaths: hosts that are killed, one after the other, and are back after `away_seconds`.
        away_seconds: also how long a zone is away that is lost.
        zone_is_lost: whether one is, in the middle.
        lost_seconds: `host.lost_seconds`.
        deploy_share: hosts that are drained and replaced at a time, in the last quarter.
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
    """Stands for a kernel, its provisioner, and what it uses."""

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

    def usage(self) -> _Kernel:
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
    starting: int = 0
    queue: admissions.FairQueue = dataclasses.field(default_factory=admissions.FairQueue)
    waiting: dict[str, tuple[_Session, float]] = dataclasses.field(default_factory=dict)
    awaited: dict[str, tuple[_Session, float]] = dataclasses.field(default_factory=dict)
    down_since: float | None = None
    is_draining: bool = False
    # What was begun before a death ends nowhere.
    life: int = 0

    def offer(self) -> placement_offers.Offer:
        return placement_offers.Offer(has_files=False, free_bytes=_MACHINE_BYTES - self.used_bytes)


@dataclasses.dataclass(slots=True)
class Figures:
    """What came out.

    Attributes:
        waits: seconds from each message to a kernel that takes its code.
        moved: sessions that began again on another host.
        restored: starts that brought variables back.
        lost: executions that died with their host.
        evicted: kernels that made room for another.
        refused: turns whose host was full or just drained, or that found none.
        finds, puts, questions: to the database and to hosts, by second.
        used, idle: memory of kernels, and of those unused for five minutes, in byte-minutes.
        spread: the fullest host over the mean, each minute.
        events: that were simulated.
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
    used: int = 0
    idle: int = 0
    spread: list[float] = dataclasses.field(default_factory=list)
    events: int = 0


class Simulation:
    """One run."""

    def __init__(self, shape: Shape, *, seed: int) -> None:
        """Plan what is known beforehand: sessions, deaths, the loss of a zone, the deploy."""
        self._shape = shape
        self._chance = random.Random(seed)
        self._settings = settings.Kernels()
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._hosts = [_Host(number) for number in range(shape.hosts)]
        self._up, self._taking = list(self._hosts), list(self._hosts)
        self.figures = Figures()

    def _at(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (seconds, next(self._order), act))

    def run(self) -> Figures:
        """Run it to the end of its time."""
        shape = self._shape
        self._at(0.0, self._arrive)
        for number in range(shape.deaths):
            at = shape.seconds * (number + 1) / (shape.deaths + 1)
            self._at(at, lambda: self._die(self._chance.choice(self._hosts)))
        if shape.zone_is_lost:
            self._at(shape.seconds / 2, self._lose_zone)
        self._at(shape.seconds * 0.75, lambda: self._deploy(0))
        self._at(_REAP_SECONDS, self._reap)
        while self._events and self._events[0][0] <= shape.seconds:
            self._now, _, act = heapq.heappop(self._events)
            self.figures.events += 1
            act()
        return self.figures

    def _arrive(self) -> None:
        """Begin one session, and plan the next."""
        chance = self._chance
        number = next(self._order)
        turns = 1 + int(chance.expovariate(1 / 3))
        size = int(min(chance.lognormvariate(math.log(80), 1.0), 2000) * _MIB)
        person = str(int(self._shape.people * chance.random() ** 2))
        self._turn(_Session(str(number), person, turns, size), self._now)
        self._at(
            self._now + chance.expovariate(self._shape.sessions / self._shape.seconds), self._arrive
        )

    def _turn(self, session: _Session, asked: float) -> None:
        """Take a message, as `placed_hosts` does: where the session is, once that is known."""
        self.figures.finds[int(self._now)] += _FINDS_PER_TURN
        self._find(session, asked)

    def _find(self, session: _Session, asked: float) -> None:
        host = session.host
        if host is not None and host.down_since is not None:
            lost_at = host.down_since + self._shape.lost_seconds
            if self._now < lost_at:
                host.awaited[session.key] = session, asked

                def give_up() -> None:
                    if host.awaited.pop(session.key, None) is not None:
                        self._find(session, asked)

                self._at(lost_at, give_up)
                return
            host = None
        if host is None:
            host = self._placed(session)
            if host is None:
                self.figures.refused += 1
                return
        self._use(session, host, asked)

    def _placed(self, session: _Session) -> _Host | None:
        asked = placement_offers.sample_hosts(self._taking, sample=self._chance.sample)
        self.figures.questions[int(self._now)] += len(asked)
        offers = [(host, host.offer()) for host in asked]
        chosen = placement_offers.choose_host(offers, sample=self._chance.sample)
        if chosen is not None:
            self.figures.puts[int(self._now)] += 1
            if session.host is not None:
                self.figures.moved += 1
                session.has_files = False
            session.host = chosen
        return chosen

    def _use(self, session: _Session, host: _Host, asked: float) -> None:
        kernel = host.kernels.get(session.key)
        if kernel is not None:
            self._execute(kernel, host, asked)
        elif host.is_draining:
            # A host that ends starts nothing, also for sessions of its own.
            self.figures.refused += 1
            self._plan_next(session)
        elif host.starting < _CORES:
            host.starting += 1
            self._start(session, host, asked)
        else:
            host.queue.add(session.key, session.person)
            host.waiting[session.key] = session, asked

    def _start(self, session: _Session, host: _Host, asked: float) -> None:
        """Make room as `kernel_capacity` does, and start a kernel."""
        life, kernels = host.life, cast(dict[str, live_kernels.Kernel], host.kernels)
        held = {key for key, one in host.kernels.items() if one.is_busy}
        # What one person may have counts on each host: nothing counts it over all.
        try:
            own = kernel_capacity.choose_own_session_to_evict(
                session.person,
                kernels,
                starting_count=0,
                max_kernels=self._settings.per_person,
                leased_sessions=held,
            )
            if own is not None:
                self._evict(host, own)
            while not spares.has_room(
                self._settings, kernels.values(), host.starting - 1, machine_bytes=_MACHINE_BYTES
            ):
                self._evict(
                    host, kernel_capacity.choose_session_to_evict(session.person, kernels, held)
                )
        except errors.PoolFullError:
            self.figures.refused += 1
            self._next_start(host)
            self._plan_next(session)
            return
        seconds = _START_SECONDS * self._chance.lognormvariate(0, 0.4)
        if session.has_files:
            self.figures.restored += 1
            seconds += _RESTORE_SECONDS
        kernel = _Kernel(session, session.bytes, self._now)

        def started() -> None:
            if host.life != life:
                self._turn(session, asked)
                return
            host.kernels[session.key] = kernel
            host.used_bytes += kernel.bytes
            self._next_start(host)
            self._execute(kernel, host, asked)

        self._at(self._now + seconds, started)

    def _next_start(self, host: _Host) -> None:
        """Hand the place on, as `Admissions` does."""
        host.starting -= 1
        if host.waiting:
            key = host.queue.ordered_keys()[0]
            host.queue.mark_served(key)
            host.queue.remove(key)
            host.starting += 1
            session, asked = host.waiting.pop(key)
            self._start(session, host, asked)

    def _execute(self, kernel: _Kernel, host: _Host, asked: float) -> None:
        self.figures.waits.append(self._now - asked)
        kernel.is_busy = True
        kernel.session.has_files = True

        def ended() -> None:
            kernel.is_busy, kernel.last_used = False, self._now
            if not kernel.is_alive:
                self.figures.lost += 1
            self._plan_next(kernel.session)

        self._at(self._now + self._chance.expovariate(1 / _BUSY_SECONDS), ended)

    def _plan_next(self, session: _Session) -> None:
        session.turns -= 1
        if session.turns > 0:
            pause = self._chance.lognormvariate(math.log(90), 1.2)
            self._at(self._now + pause, lambda: self._turn(session, self._now))

    def _evict(self, host: _Host, key: str) -> None:
        self.figures.evicted += 1
        self._end(host, key)

    def _end(self, host: _Host, key: str) -> None:
        kernel = host.kernels.pop(key)
        kernel.is_alive = False
        host.used_bytes -= kernel.bytes

    def _reap(self) -> None:
        """End kernels that were idle for long, and look how the memory is used."""
        for host in self._up:
            for key, one in list(host.kernels.items()):
                if not one.is_busy and self._now - one.last_used > self._settings.idle_seconds:
                    self._end(host, key)
                elif not one.is_busy and self._now - one.last_used > 300:
                    self.figures.idle += one.bytes
            self.figures.used += host.used_bytes
        used = [host.used_bytes for host in self._up]
        self.figures.spread.append(max(used) * len(used) / max(1, sum(used)))
        self._at(self._now + _REAP_SECONDS, self._reap)

    def _die(self, host: _Host) -> None:
        if host.down_since is not None:
            return
        self._go(host, self._shape.away_seconds)

    def _go(self, host: _Host, away_seconds: float) -> None:
        host.down_since = self._now
        host.life += 1
        self._up.remove(host)
        if not host.is_draining:
            self._taking.remove(host)
        self._leave(host)
        self._at(self._now + away_seconds, lambda: self._return(host))

    def _leave(self, host: _Host) -> None:
        """End all that a host's process had."""
        for key in list(host.kernels):
            self._end(host, key)
        waiting, host.waiting, host.starting = host.waiting, {}, 0
        host.queue = admissions.FairQueue()
        for session, asked in waiting.values():
            self._turn(session, asked)

    def _return(self, host: _Host) -> None:
        host.down_since, host.is_draining = None, False
        self._up.append(host)
        self._taking.append(host)
        awaited, host.awaited = host.awaited, {}
        for session, asked in awaited.values():
            self._find(session, asked)

    def _lose_zone(self) -> None:
        for host in [one for one in self._up if one.number % _ZONES == 0]:
            self._die(host)

    def _deploy(self, first: int) -> None:
        """Replace some hosts, and then the next ones: each drains first."""
        some = max(1, int(len(self._hosts) * self._shape.deploy_share))
        for host in self._hosts[first : first + some]:
            if host.down_since is None:
                host.is_draining = True
                self._taking.remove(host)
                self._at(self._now + _DRAIN_SECONDS, functools.partial(self._replace, host))
        if first + some < len(self._hosts):
            self._at(self._now + _DRAIN_SECONDS + 1, lambda: self._deploy(first + some))

    def _replace(self, host: _Host) -> None:
        if host.down_since is None:
            # Its files and snapshots stay, so its sessions do: they wait for the few seconds.
            self._go(host, _REPLACE_SECONDS)
