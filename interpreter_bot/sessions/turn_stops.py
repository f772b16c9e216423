"""Signals that stop turns early: who stopped them, and the one sentence that says so."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Collection, Iterator
from typing import Final

from interpreter_bot import events, values
from interpreter_bot.sessions import lanes, replica_calls
from interpreter_bot.wording import session_words

_STOPPED: Final = "Stopped."


class StopSignal(asyncio.Event):
    """An event that stops a turn when it is set.

    Attributes:
        is_restart: set by the bot's own shutdown, not by a person.
        goes_on: set with it, where the next bot goes on with the turn.
    """

    is_restart = False
    goes_on = False

    @property
    def is_suspended(self) -> bool:
        """Whether the turn ends here only, and goes on in the next bot."""
        return self.is_set() and self.is_restart and self.goes_on

    def suspend(self) -> None:
        """A turn that is cancelled while the bot ends goes on in the next one, if it can."""
        if self.is_restart and self.goes_on:
            self.set()

    def end(self, text: str = "", *, last: values.Finished | None = None) -> events.TurnEnded:
        """Return the end of a turn that was stopped.

        Args:
            text: the model's words until then.
            last: how the last code ended. What it lost is in its own sentence; that it was stopped
                is said here, and nowhere else.
        """
        if self.is_restart:
            status = values.TurnStatus.INTERRUPTED
            sentence = (
                session_words.ANSWER_CONTINUES if self.goes_on else session_words.ANSWER_INTERRUPTED
            )
            return events.TurnEnded(
                status=status, text=text, sentence=sentence, goes_on=self.goes_on
            )
        was_running = last is not None and last.ending is values.Ending.STOPPED
        sentence = (
            session_words.STOPPED if was_running and last and not last.kernel_lost else _STOPPED
        )
        return events.TurnEnded(status=values.TurnStatus.STOPPED, text=text, sentence=sentence)


class TurnStops:
    """The turns that run or wait in this process, and how people end them, in whichever it is.

    Args:
        waiting: the lanes of all sessions.
        calls: to the other replicas of the bot.
    """

    def __init__(self, waiting: lanes.Lanes, calls: replica_calls.ReplicaCalls) -> None:
        self._lanes = waiting
        self._calls = calls
        self._running: dict[values.SessionKey, StopSignal] = {}
        self._asked: dict[tuple[values.SessionKey, str], StopSignal] = {}
        for name in ("stop", "cancel", "withdraw"):
            calls.serve(name, functools.partial(self._serve, name))

    @contextlib.contextmanager
    def asked(self, key: values.SessionKey, request_id: str) -> Iterator[StopSignal]:
        """Hold the signal of a request, which waits or runs."""
        stop = self._asked[key, request_id] = StopSignal()
        try:
            yield stop
        finally:
            # Requests without an id of their own share one.
            if self._asked.get((key, request_id)) is stop:
                del self._asked[key, request_id]

    @contextlib.contextmanager
    def running(self, key: values.SessionKey, stop: StopSignal) -> Iterator[None]:
        """Let a signal be that of the turn that runs in a session."""
        self._running[key] = stop
        try:
            yield
        finally:
            del self._running[key]

    def all_running(self) -> Collection[StopSignal]:
        """Return the signals of all turns that run in this process."""
        return self._running.values()

    async def stop(self, key: values.SessionKey) -> bool:
        """Stop the turn that runs in a session; return whether there was one."""
        return await self._end("stop", key)

    async def cancel(self, key: values.SessionKey, request_id: str) -> bool:
        """Withdraw a request that waits, or stop its turn; says whether it was there to end.

        It is never another one of the same session that is stopped.
        """
        return await self._end("cancel", key, request_id)

    async def withdraw(self, key: values.SessionKey, request_id: str) -> bool:
        """Withdraw a request that still waits; return whether it did."""
        return await self._end("withdraw", key, request_id)

    async def _end(self, how: str, key: values.SessionKey, request_id: str = "") -> bool:
        if self._end_here(how, key, request_id):
            return True
        content = {"session": values.text(key), "request": request_id}
        answer = await self._calls.ask(how, content)
        return answer is not None and bool(answer["is_ended"])

    def _end_here(self, how: str, key: values.SessionKey, request_id: str) -> bool:
        """End what waits or runs in this process; says whether it was there."""
        if how == "stop":
            return _stopped(self._running.get(key))
        if self._lanes.withdraw(key, request_id):
            return True
        return how == "cancel" and _stopped(self._asked.get((key, request_id)))

    def _serve(self, how: str, content: replica_calls.Content) -> replica_calls.Work | None:
        key, request_id = values.key(content["session"]), content["request"]
        has_it = key in self._running if how == "stop" else (key, request_id) in self._asked
        if not has_it:
            return None

        async def end() -> replica_calls.Content:
            return {"is_ended": self._end_here(how, key, request_id)}

        return end


def _stopped(stop: StopSignal | None) -> bool:
    """Let a person end a turn; says whether it was still on."""
    if stop is None or stop.is_set():
        return False
    stop.is_restart = False
    stop.set()
    return True
