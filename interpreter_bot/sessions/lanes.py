"""Lanes: one turn at a time in each session, and a bounded number in all, fairly.

Requests of one session are served in order. If the bot is full, the next request is that of the
person with the fewest running turns, then the oldest.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import math
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeAlias

from interpreter_bot import errors, values
from interpreter_bot.sessions import requests
from interpreter_bot.wording import session_words

# People see the end of an answer a moment before it is recorded.
_RECORDING_SECONDS: Final = 3.0


class LaneError(errors.BotError):
    """The request could not wait for its turn."""


class WithdrawnError(LaneError):
    """A person withdrew the request."""


class TakenUpError(LaneError):
    """The turn that runs has taken the request up."""


Steering: TypeAlias = tuple[requests.Request, Callable[[], bool]]
"""A request that waits, and a function that lets the turn that runs take it up: then it has no turn
of its own any more. That returns False if the request was withdrawn meanwhile."""


@dataclasses.dataclass(eq=False, slots=True)
class _Ticket:
    key: values.SessionKey
    person: str
    request_id: str
    request: requests.Request | None
    report: Callable[[int], None]
    granted: asyncio.Future[None]
    number: int
    is_first: bool
    last_count: int = 0


class Lanes:
    """The lanes of all sessions. An empty lane takes no memory."""

    def __init__(self, *, concurrent: int, waiting: int, per_person: int = 0) -> None:
        """Make the lanes.

        Args:
            concurrent: turns at once, in all.
            waiting: requests that may wait in one lane.
            per_person: turns of one person at once; 0 means that only `concurrent` bounds them.
        """
        self._concurrent = concurrent
        self._per_person = per_person or math.inf
        self._max_waiting = waiting
        self._lanes: dict[values.SessionKey, collections.deque[_Ticket]] = {}
        self._running: dict[values.SessionKey, _Ticket] = {}
        self._by_person: collections.Counter[str] = collections.Counter()
        self._arrivals = 0
        self._expected: dict[values.SessionKey, str] = {}
        self.is_closed = False
        """Whether new requests are refused."""
        self._idle = asyncio.Event()
        self._idle.set()

    def is_busy(self, key: values.SessionKey) -> bool:
        """Whether a turn runs or waits in that session."""
        return key in self._running or key in self._lanes

    def works_for(self, key: values.SessionKey, person: str) -> bool:
        """Whether a turn of a person runs or waits in that session."""
        running = (self._running[key],) if key in self._running else ()
        return any(ticket.person == person for ticket in (*running, *self._lanes.get(key, ())))

    @contextlib.asynccontextmanager
    async def turn(
        self,
        key: values.SessionKey,
        *,
        person: str,
        request_id: str = "",
        request: requests.Request | None = None,
        waiting: Callable[[int], None],
        is_first: bool = False,
    ) -> AsyncIterator[None]:
        """Wait for the lane, and hold it until the context is left.

        Args:
            key: the session.
            person: the person whose share is counted.
            request_id: for `withdraw`.
            request: for `find_steering`.
            waiting: called with the number of requests before this one, whenever that changes.
            is_first: pass all that wait in this lane; for what people do to the session.

        Raises:
            LaneError: too many wait, the request was withdrawn, or the bot is being closed.
        """
        ticket = self._join(key, person, request_id, request, waiting, is_first)
        try:
            await ticket.granted
            yield
        finally:
            self._leave(ticket)

    @contextlib.asynccontextmanager
    async def hold(self, key: values.SessionKey) -> AsyncIterator[None]:
        """Hold a session's lane for a person; wait only for a turn that is just being recorded.

        Raises:
            BotError: a turn runs, or the bot is being closed.
        """
        async with contextlib.AsyncExitStack() as stack:
            turn = self.turn(key, person="", waiting=lambda _: None, is_first=True)
            try:
                async with asyncio.timeout(_RECORDING_SECONDS):
                    await stack.enter_async_context(turn)
            except TimeoutError:
                raise errors.BotError(session_words.SESSION_BUSY) from None
            yield

    def expect(self, key: values.SessionKey, request_id: str) -> None:
        """Let a request that is on its way have its turn before all others of a session."""
        self._expected[key] = request_id

    def is_expected(self, key: values.SessionKey, request_id: str) -> bool:
        """Whether a request is on its way."""
        return self._expected.get(key) == request_id

    def stop_expecting(self, key: values.SessionKey) -> None:
        """Serve other requests again: the expected one has had its turn, or will not come."""
        self._expected.pop(key, None)
        self._serve()

    def withdraw(self, key: values.SessionKey, request_id: str) -> bool:
        """Withdraw a request that still waits; return whether it did."""
        for ticket in self._lanes.get(key, ()):
            if ticket.request_id == request_id and not ticket.granted.done():
                ticket.granted.set_exception(WithdrawnError(session_words.REQUEST_WITHDRAWN))
                return True
        return False

    def find_steering(self, key: values.SessionKey, person: str) -> list[Steering]:
        """Return what a person asks for meanwhile, and the turn that runs may take up."""
        tickets = [
            ticket
            for ticket in self._lanes.get(key, ())
            if ticket.person == person and not ticket.granted.done()
        ]
        return [
            (ticket.request, functools.partial(_take_up, ticket))
            for ticket in tickets
            if ticket.request and ticket.request.may_steer and not ticket.request.is_edit
        ]

    def empty(self, key: values.SessionKey) -> None:
        """Refuse all that wait in a session; the turn that runs goes on."""
        for ticket in self._lanes.get(key, ()):
            if not ticket.granted.done():
                ticket.granted.set_exception(LaneError(session_words.DELETED_FIRST))

    def close(self) -> None:
        """Refuse new and waiting requests; running turns go on."""
        self.is_closed = True
        for ticket in [ticket for lane in self._lanes.values() for ticket in lane]:
            if not ticket.granted.done():
                ticket.granted.set_exception(LaneError(session_words.BOT_CLOSING))

    async def wait_idle(self) -> None:
        """Wait until no turn runs."""
        await self._idle.wait()

    def _join(
        self,
        key: values.SessionKey,
        person: str,
        request_id: str,
        request: requests.Request | None,
        report: Callable[[int], None],
        is_first: bool,
    ) -> _Ticket:
        lane = self._lanes.get(key, collections.deque())
        if self.is_closed:
            raise LaneError(session_words.BOT_CLOSING)
        is_first = is_first or self._expected.get(key) == request_id
        if len(lane) >= self._max_waiting and not is_first:
            raise LaneError(session_words.queue_full(len(lane)))
        self._arrivals += 1
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ticket = _Ticket(
            key, person, request_id, request, report, granted, self._arrivals, is_first
        )
        if is_first:
            lane.appendleft(ticket)
        else:
            lane.append(ticket)
        self._lanes[key] = lane
        self._serve()
        return ticket

    def _leave(self, ticket: _Ticket) -> None:
        if self._running.get(ticket.key) is ticket:
            del self._running[ticket.key]
            self._by_person[ticket.person] -= 1
            self._by_person += collections.Counter()  # drops persons without running turns
        else:
            lane = self._lanes[ticket.key]
            lane.remove(ticket)
            if not lane:
                del self._lanes[ticket.key]
        if not self._running:
            self._idle.set()
        self._serve()

    def _serve(self) -> None:
        """Start the turns that can run, and report their positions to the waiting requests."""
        while len(self._running) < self._concurrent and (ready := self._ready()):
            ticket = ready[0]
            lane = self._lanes[ticket.key]
            lane.popleft()
            if not lane:
                del self._lanes[ticket.key]
            self._running[ticket.key] = ticket
            self._by_person[ticket.person] += 1
            self._idle.clear()
            ticket.granted.set_result(None)
        positions = {ticket: position for position, ticket in enumerate(self._ready(), start=1)}
        for key, lane in self._lanes.items():
            # The head of a lane waits for the turn that runs in it, or for the whole bot.
            ahead = 1 if key in self._running else positions.get(lane[0], 1)
            for position, ticket in enumerate(lane):
                if ticket.last_count != ahead + position and not ticket.granted.done():
                    ticket.last_count = ahead + position
                    _report_position(ticket)

    def _ready(self) -> list[_Ticket]:
        """Return the heads of lanes where nothing runs, in the order in which they are served."""
        heads = [lane[0] for key, lane in self._lanes.items() if key not in self._running]
        ready_tickets = [
            ticket
            for ticket in heads
            if not ticket.granted.done()
            and (ticket.is_first or ticket.key not in self._expected)
            and (ticket.is_first or self._by_person[ticket.person] < self._per_person)
        ]
        return sorted(
            ready_tickets, key=lambda ticket: (self._by_person[ticket.person], ticket.number)
        )


def _take_up(ticket: _Ticket) -> bool:
    if ticket.granted.done():
        return False
    ticket.granted.set_exception(TakenUpError(session_words.MESSAGE_TAKEN_UP))
    return True


def _report_position(ticket: _Ticket) -> None:
    """Report a request's position in the queue; a failure of its callback is only logged."""
    try:
        ticket.report(ticket.last_count)
    except Exception as error:
        # Not raised: this runs inside another request's turn.
        ticket.granted.set_exception(error)
