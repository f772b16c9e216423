"""Signals that stop turns early, by a person or by the bot's shutdown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from typing import Final

from interpreter_bot import events, values
from interpreter_bot.sessions import jobs, lanes
from interpreter_bot.wording import session_words

_STOPPED_SENTENCE: Final = "Stopped."


class StopSignal(asyncio.Event):
    """An event that stops a turn when it is set.

    Attributes:
        is_restart: the bot's own shutdown sets the signal, not a person.
        goes_on: after that shutdown, the next bot resumes the turn.
    """

    is_restart = False
    goes_on = False

    @property
    def is_suspended(self) -> bool:
        """Whether the turn ends only in this bot, and the next one resumes it."""
        return self.is_set() and self.is_restart and self.goes_on

    def suspend(self) -> None:
        """Set the signal of a cancelled turn if the next bot can resume it."""
        if self.is_restart and self.goes_on:
            self.set()

    def end(
        self, text: str = "", *, last_finished: values.Finished | None = None
    ) -> events.TurnEnded:
        """Return the end of a turn that was stopped.

        Args:
            text: the model's text until then.
            last_finished: end of the last code; None if no code ended.
        """
        if self.is_restart:
            status = values.TurnStatus.INTERRUPTED
            sentence = (
                session_words.ANSWER_CONTINUES if self.goes_on else session_words.ANSWER_INTERRUPTED
            )
            return events.TurnEnded(
                status=status, text=text, sentence=sentence, goes_on=self.goes_on
            )
        was_running = last_finished is not None and last_finished.ending is values.Ending.STOPPED
        sentence = (
            session_words.TURN_STOPPED
            if was_running and last_finished and not last_finished.kernel_lost
            else _STOPPED_SENTENCE
        )
        return events.TurnEnded(status=values.TurnStatus.STOPPED, text=text, sentence=sentence)


class TurnStops:
    """The stop signals of running and waiting turns, for people and for the shutdown."""

    def __init__(self, all_lanes: lanes.Lanes, all_jobs: jobs.Jobs) -> None:
        self._lanes = all_lanes
        self._jobs = all_jobs
        self._turn_signals: dict[values.SessionKey, StopSignal] = {}
        self._job_signals: dict[values.SessionKey, StopSignal] = {}
        self._expected: dict[tuple[values.SessionKey, str], StopSignal] = {}

    @contextlib.contextmanager
    def hold_signal(self, key: values.SessionKey, request_id: str) -> Iterator[StopSignal]:
        """Create the signal of a request that waits or runs."""
        stop = self._expected[key, request_id] = StopSignal()
        try:
            yield stop
        finally:
            # Requests without an id of their own share one.
            if self._expected.get((key, request_id)) is stop:
                del self._expected[key, request_id]

    @contextlib.contextmanager
    def running(
        self, key: values.SessionKey, stop: StopSignal, *, is_job: bool = False
    ) -> Iterator[None]:
        """Register the signal of a session's running turn, or of its job's turn."""
        signals = self._job_signals if is_job else self._turn_signals
        signals[key] = stop
        try:
            yield
        finally:
            del signals[key]

    def all_running(self) -> Collection[StopSignal]:
        """Return the signals of all running turns."""
        return [*self._turn_signals.values(), *self._job_signals.values()]

    def stop(self, key: values.SessionKey) -> bool:
        """Stop a session's running turn, or else its job; return whether there was one."""
        return _stop_turn(self._turn_signals.get(key)) or self.stop_job(key)

    def stop_job(self, key: values.SessionKey) -> bool:
        """Stop the job of a session; return whether there was one."""
        if (stop := self._job_signals.get(key)) is not None:
            return _stop_turn(stop)
        job = self._jobs.find(key)
        if job is None or job.is_stopped:
            return False
        job.is_stopped = True
        return True

    def cancel(self, key: values.SessionKey, request_id: str) -> bool:
        """Withdraw a request, or stop its turn; return whether it was waiting or running."""
        return self._lanes.withdraw(key, request_id) or _stop_turn(
            self._expected.get((key, request_id))
        )


def _stop_turn(stop: StopSignal | None) -> bool:
    """Stop a turn for a person; return whether it was running."""
    if stop is None or stop.is_set():
        return False
    stop.is_restart = False
    stop.set()
    return True
