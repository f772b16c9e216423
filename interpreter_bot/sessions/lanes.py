"""Lanes: queues in which turns of a session run one at a time, and a bounded number in all.

Requests of one session are served in order. If the bot is full, people with the fewest running
turns are served first, and among those the oldest request.
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

# People see the end of an answer before its turn has been recorded, and may act on it at once.
_MAX_RECORDING_SECONDS: Final = 3.0


class LaneError(errors.BotError):
    """The request could not wait for its turn."""


class WithdrawnError(LaneError):
    """A person withdrew the request."""


class TakenUpError(LaneError):
    """The running turn answers the request, too."""


Steering: TypeAlias = tuple[requests.Request, Callable[[], bool]]
"""A waiting request, and a function that lets the running turn answer it, instead of a turn of its
own. The function returns False if the request was withdrawn meanwhile."""


@dataclasses.dataclass(eq=False, slots=True)
class _Ticket:
    key: values.SessionKey
    person: str
    request_id: str
    request: requests.Request | None
    on_position: Callable[[int], None]
    admission: asyncio.Future[None]
    arrival_number: int
    skips_queue: bool
    reported_position: int = 0


class Lanes:
    """The lanes of all sessions. An empty lane takes no memory."""

    def __init__(self, *, max_running: int, max_waiting: int, max_per_person: int = 0) -> None:
        """Make the lanes.

        Args:
            max_running: most turns that run at once.
            max_waiting: most requests that wait in one lane.
            max_per_person: most turns of one person that run at once; 0 means `max_running`.
        """
        self._max_running = max_running
        self._max_per_person = max_per_person or math.inf
        self._max_waiting = max_waiting
        self._lanes: dict[values.SessionKey, collections.deque[_Ticket]] = {}
        self._running: dict[values.SessionKey, _Ticket] = {}
        self._running_counts: collections.Counter[str] = collections.Counter()
        self._arrival_count = 0
        self._expected_request_ids: dict[values.SessionKey, str] = {}
        self.is_closed = False
        """Whether new requests are refused."""
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def is_busy(self, key: values.SessionKey) -> bool:
        """Whether a turn runs or waits in that session."""
        return key in self._running or key in self._lanes

    def is_busy_for(self, key: values.SessionKey, person: str) -> bool:
        """Whether a turn of that person runs or waits in that session."""
        running_tickets = (self._running[key],) if key in self._running else ()
        return any(
            ticket.person == person for ticket in (*running_tickets, *self._lanes.get(key, ()))
        )

    @contextlib.asynccontextmanager
    async def turn(
        self,
        key: values.SessionKey,
        *,
        person: str,
        request_id: str = "",
        request: requests.Request | None = None,
        on_position: Callable[[int], None],
        skips_queue: bool = False,
    ) -> AsyncIterator[None]:
        """Wait for the lane, and hold it until the context ends.

        Args:
            person: the person for whom the turn is counted.
            request_id: for `withdraw`.
            request: for `find_steering`.
            on_position: called with the number of requests before this one, whenever that changes.
            skips_queue: serve this before the requests that wait in the lane; for changes of the
                session itself, such as undo.

        Raises:
            LaneError: too many requests wait, this one was withdrawn, or the bot is closing.
        """
        lane = self._lanes.get(key, collections.deque())
        if self.is_closed:
            raise LaneError(session_words.BOT_CLOSING)
        skips_queue = skips_queue or self.is_expected(key, request_id)
        if len(lane) >= self._max_waiting and not skips_queue:
            raise LaneError(session_words.queue_full(len(lane)))
        self._arrival_count += 1
        ticket = _Ticket(
            key=key,
            person=person,
            request_id=request_id,
            request=request,
            on_position=on_position,
            admission=asyncio.get_running_loop().create_future(),
            arrival_number=self._arrival_count,
            skips_queue=skips_queue,
        )
        if skips_queue:
            lane.appendleft(ticket)
        else:
            lane.append(ticket)
        self._lanes[key] = lane
        self._serve()
        try:
            await ticket.admission
            yield
        finally:
            self._leave(ticket)

    @contextlib.asynccontextmanager
    async def hold(self, key: values.SessionKey) -> AsyncIterator[None]:
        """Hold a session's lane; wait only for a turn that is being recorded.

        Raises:
            BotError: a turn runs, or the bot is closing.
        """
        async with contextlib.AsyncExitStack() as stack:
            turn = self.turn(key, person="", on_position=lambda _: None, skips_queue=True)
            try:
                async with asyncio.timeout(_MAX_RECORDING_SECONDS):
                    await stack.enter_async_context(turn)
            except TimeoutError:
                raise errors.BotError(session_words.SESSION_BUSY) from None
            yield

    def expect(self, key: values.SessionKey, request_id: str) -> None:
        """Serve no other request of a session until this one has arrived and was served."""
        self._expected_request_ids[key] = request_id

    def is_expected(self, key: values.SessionKey, request_id: str) -> bool:
        """Whether a session waits for this request."""
        return self._expected_request_ids.get(key) == request_id

    def stop_expecting(self, key: values.SessionKey) -> None:
        """Serve other requests again, as the expected one was served, or will not arrive."""
        self._expected_request_ids.pop(key, None)
        self._serve()

    def withdraw(self, key: values.SessionKey, request_id: str) -> bool:
        """Withdraw a waiting request; return whether it was waiting."""
        for ticket in self._lanes.get(key, ()):
            if ticket.request_id == request_id and not ticket.admission.done():
                ticket.admission.set_exception(WithdrawnError(session_words.REQUEST_WITHDRAWN))
                return True
        return False

    def find_steering(self, key: values.SessionKey, person: str) -> list[Steering]:
        """Return the waiting requests of a person that the running turn may answer, too."""
        tickets = [
            ticket
            for ticket in self._lanes.get(key, ())
            if ticket.person == person and not ticket.admission.done()
        ]
        return [
            (ticket.request, functools.partial(_take_up, ticket))
            for ticket in tickets
            if ticket.request and ticket.request.may_steer and not ticket.request.is_edit
        ]

    def refuse_waiting(self, key: values.SessionKey) -> None:
        """Refuse the waiting requests of a session that is being deleted."""
        for ticket in self._lanes.get(key, ()):
            if not ticket.admission.done():
                ticket.admission.set_exception(LaneError(session_words.DELETED_FIRST))

    def close(self) -> None:
        """Refuse new and waiting requests; running turns go on."""
        self.is_closed = True
        for ticket in [ticket for lane in self._lanes.values() for ticket in lane]:
            if not ticket.admission.done():
                ticket.admission.set_exception(LaneError(session_words.BOT_CLOSING))

    async def wait_idle(self) -> None:
        """Wait until no turn runs."""
        await self._is_idle.wait()

    def _leave(self, ticket: _Ticket) -> None:
        if self._running.get(ticket.key) is ticket:
            del self._running[ticket.key]
            self._running_counts[ticket.person] -= 1
            self._running_counts += collections.Counter()  # drops persons without running turns
        else:
            lane = self._lanes[ticket.key]
            lane.remove(ticket)
            if not lane:
                del self._lanes[ticket.key]
        if not self._running:
            self._is_idle.set()
        self._serve()

    def _serve(self) -> None:
        """Start the turns that can run, and report the new positions of waiting requests."""
        while len(self._running) < self._max_running and (ready := self._ready()):
            ticket = ready[0]
            lane = self._lanes[ticket.key]
            lane.popleft()
            if not lane:
                del self._lanes[ticket.key]
            self._running[ticket.key] = ticket
            self._running_counts[ticket.person] += 1
            self._is_idle.clear()
            ticket.admission.set_result(None)
        positions = {ticket: position for position, ticket in enumerate(self._ready(), start=1)}
        for key, lane in self._lanes.items():
            # The first request of a lane waits for the turn in it, or for room in the bot.
            ahead = 1 if key in self._running else positions.get(lane[0], 1)
            for position, ticket in enumerate(lane):
                if ticket.reported_position != ahead + position and not ticket.admission.done():
                    ticket.reported_position = ahead + position
                    _report_position(ticket)

    def _ready(self) -> list[_Ticket]:
        """Return the first requests of idle lanes, in the order in which they are to be served."""
        heads = [lane[0] for key, lane in self._lanes.items() if key not in self._running]
        ready_tickets = [
            ticket
            for ticket in heads
            if not ticket.admission.done()
            and (ticket.skips_queue or ticket.key not in self._expected_request_ids)
            and (ticket.skips_queue or self._running_counts[ticket.person] < self._max_per_person)
        ]
        return sorted(
            ready_tickets,
            key=lambda ticket: (self._running_counts[ticket.person], ticket.arrival_number),
        )


def _take_up(ticket: _Ticket) -> bool:
    if ticket.admission.done():
        return False
    ticket.admission.set_exception(TakenUpError(session_words.MESSAGE_TAKEN_UP))
    return True


def _report_position(ticket: _Ticket) -> None:
    """Report a request's position in the queue; if its callback fails, the request fails."""
    try:
        ticket.on_position(ticket.reported_position)
    except Exception as error:
        # Not raised: this runs inside another request's turn.
        ticket.admission.set_exception(error)
