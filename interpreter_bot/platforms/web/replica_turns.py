"""Turns that other processes of the bot run, shown and answered in the tabs of this one.

What such a turn shows is read from its record, which grows as it goes on; what its code or a plan
asks is in the memory of the process that runs it, which is asked for it and told the answer.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.platforms.web import event_json, live_turns, tab_contents, tab_hub
from interpreter_bot.sessions import past_turns, replica_calls, session_service
from interpreter_bot.wording import question_words

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
# Of the looks that show nothing new, every so many asks the others, who all have to answer.
_QUIET_LOOKS: Final = 4
# It is the last of its session, but for what began in that second.
_MOST_LOOKED_AT: Final = 3
# What other processes of the bot are asked for.
_ASKED: Final = "page questions"
_ANSWER: Final = "page answer"


@dataclasses.dataclass(slots=True)
class _Followed:
    """A turn that is shown here: as its record was last, and what waits for an answer of people."""

    key: values.SessionKey
    past: past_turns.PastTurn
    live: live_turns.LiveTurn
    asking: dict[int, asyncio.Task[None]] = dataclasses.field(default_factory=dict)
    quiet_looks: int = 0


class TurnsElsewhere:
    """The turns of other processes that tabs of this one show."""

    def __init__(
        self,
        service: session_service.SessionService,
        hub: tab_hub.Hub,
        start: Callable[[Callable[[], Awaitable[None]], str], object],
    ) -> None:
        """Follow none yet; `start` does work beside all tabs."""
        self._service = service
        self._hub = hub
        self._start = start
        service.replicas.serve(_ASKED, self._asked)
        service.replicas.serve(_ANSWER, self._answered)

    def follow(self, key: values.SessionKey, past: past_turns.PastTurn) -> None:
        """Show a turn that runs elsewhere from now on, as long as a tab shows its session."""
        head = tab_contents.events_of(past)
        live = self._hub.begin(
            key.thread, past.request_id, head, events=head["events"], is_new=False
        )
        work = functools.partial(self._follow, _Followed(key, past, live))
        self._start(work, f"web: turn {past.request_id} elsewhere")

    async def _follow(self, followed: _Followed) -> None:
        thread, live = followed.key.thread, followed.live
        try:
            while live.end is None and self._hub.is_shown(thread):
                await asyncio.sleep(_LOOK_SECONDS)
                if self._hub.turn(thread, live.id) is not live:
                    # It goes on in this process.
                    return
                try:
                    if not await self._renew(followed):
                        return
                except errors.BotError:
                    _log.warning("a turn of another process is not followed", exc_info=True)
        finally:
            for task in followed.asking.values():
                task.cancel()
            if self._hub.turn(thread, live.id) is live:
                self._hub.end(thread, live)

    async def _renew(self, followed: _Followed) -> bool:
        """Show what is new of a turn; False where its record is gone."""
        live, before = followed.live, followed.past
        turns = await self._service.queries.history(followed.key, most=_MOST_LOOKED_AT)
        now = next((one for one in turns if one.id == before.id), None)
        if now is None:
            return False
        followed.past = now
        followed.quiet_looks = followed.quiet_looks + 1 if now == before else 0
        # What waits for an answer shows nothing new.
        if followed.quiet_looks % _QUIET_LOOKS == 1 or (followed.asking and now != before):
            try:
                await self._renew_questions(followed)
            except errors.BotError:
                # What it shows is known all the same.
                _log.warning("what a turn of another process asks is not known", exc_info=True)
        for event in tab_contents.news(before, now):
            live.say(event)
        return True

    async def _renew_questions(self, followed: _Followed) -> None:
        which = {"thread": followed.key.thread, "turn": followed.live.id}
        told = await self._service.replicas.ask(_ASKED, which)
        asked = {int(one["question"]): one for one in told["asked"]} if told else {}
        for number in followed.asking.keys() - asked.keys():
            # Somebody answered it elsewhere, or nobody can any more.
            asking = followed.asking.pop(number)
            asking.cancel()
            await asyncio.wait({asking})
        for number in asked.keys() - followed.asking.keys():
            ask = self._ask(followed, number, asked[number])
            followed.asking[number] = asyncio.create_task(ask, name="web: question elsewhere")

    async def _ask(self, followed: _Followed, number: int, asked: event_json.Event) -> None:
        """Ask in the tabs of this process what is asked elsewhere, and tell the answer there."""
        live, thread = followed.live, followed.key.thread
        text = await live.ask(lambda own: {**asked, "question": own})
        told = {"thread": thread, "turn": live.id, "question": number, "text": text}
        try:
            done = await self._service.replicas.ask(_ANSWER, told)
            sentence = "" if done and done["is_answered"] else question_words.EXPIRED
        except errors.BotError as error:
            sentence = str(error)
        if sentence:
            self._hub.notify(thread, sentence)

    def _here(self, which: replica_calls.Content) -> live_turns.LiveTurn | None:
        """Return a turn that this process runs itself."""
        turn = self._hub.turn(which["thread"], which["turn"])
        return None if turn is None or turn.is_elsewhere else turn

    def _asked(self, which: replica_calls.Content) -> replica_calls.Work | None:
        if (turn := self._here(which)) is None:
            return None

        async def tell() -> replica_calls.Content:
            return {"asked": list(turn.asked.values())}

        return tell

    def _answered(self, told: replica_calls.Content) -> replica_calls.Work | None:
        if (turn := self._here(told)) is None:
            return None

        async def answer() -> replica_calls.Content:
            try:
                turn.answer(told["question"], told["text"])
            except errors.BotError:
                return {"is_answered": False}
            return {"is_answered": True}

        return answer
