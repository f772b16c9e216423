"""Taking requests to their end: as tasks with an owner, each with its reply."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Coroutine
from typing import Any

from interpreter_bot import settings
from interpreter_bot.platforms.discord import (
    desks,
    places,
    preferences,
    questions,
    replying,
)
from interpreter_bot.sessions import conversations, requests

_log = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class Run:
    """One request on its way.

    Attributes:
        reply: what shows it, once it does.
        is_over: set when it has ended and all of it stands.
    """

    request: requests.Request
    place: places.Place
    desk: desks.Desk
    reply: replying.DiscordReply | None = None
    is_over: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class Requester:
    """Carries requests out.

    Attributes:
        questions: what running code asks people.
    """

    def __init__(
        self,
        talks: conversations.Conversations,
        allowed: settings.Discord,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._talks = talks
        self._options = allowed
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()
        self._runs: dict[int, Run] = {}
        self.questions = questions.Questions()

    async def chosen_by(
        self, place: places.Place, person: requests.Person
    ) -> preferences.Preferences:
        """Return what holds for somebody in a place."""
        chosen = await self._talks.choices(place.scope(person.id))
        holds = preferences.effective(chosen, self._options)
        known = self._talks.models
        if holds.model in known and await self._talks.model(place.key) == known[0]:
            return holds
        # What the conversation itself has chosen comes first.
        return dataclasses.replace(holds, model="")

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[None]:
        """Let something run; whatever goes wrong ends with it."""
        task = self._tasks.create_task(_net(work, name), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def drained(self) -> None:
        """Wait until nothing runs."""
        while self._running:
            await asyncio.wait(self._running)

    def cancel(self) -> None:
        """End what still runs."""
        for task in self._running:
            task.cancel()

    async def stop(self, run: Run) -> bool:
        """Stop a request, or withdraw it while it waits; says whether it was still on.

        It is never another one of the same conversation that is stopped.
        """
        key = run.place.key
        if await self._talks.withdraw(key, run.request.id):
            return True
        return run.reply is not None and run.reply.is_running and await self._talks.stop(key)

    def is_running(self, number: int) -> bool:
        """Say whether a request is on its way here, by its number."""
        return number in self._runs

    async def stop_numbered(self, number: int) -> bool:
        """Stop a request by its number; see `stop`."""
        run = self._runs.get(number)
        return run is not None and await self.stop(run)

    async def carry_out(
        self,
        run: Run,
        chosen: preferences.Preferences,
        *,
        shows_code: bool = False,
        instead_of: Run | None = None,
    ) -> None:
        """Take a request to its end, and show it."""
        request, place = run.request, run.place
        manner = replying.Manner(
            number=int(request.id),
            owner=int(request.person.id),
            channel_id=place.channel_id,
            is_code=request.is_code,
            shows_code=shows_code or (chosen.show_code and not request.is_code),
            pace_seconds=self._options.edit_seconds,
            file_bytes=place.file_bytes,
            file_parts=self._options.file_parts,
        )
        try:
            async with replying.DiscordReply.open(
                manner,
                run.desk,
                self.questions,
                on_lost=lambda: self.stop(run),
                instead_of=instead_of.reply if instead_of is not None else None,
            ) as reply:
                run.reply = reply
                self._runs[manner.number] = run
                await self._talks.handle(request, reply)
        finally:
            if self._runs.get(manner.number) is run:
                del self._runs[manner.number]
            run.is_over.set()


def request_in(
    place: places.Place,
    person: requests.Person,
    text: str,
    chosen: preferences.Preferences,
    **others: Any,
) -> requests.Request:
    """Make a request of what somebody wants in a place."""
    return requests.Request(
        key=place.key,
        person=person,
        text=text,
        model=chosen.model,
        **others,
    )


async def _net(work: Coroutine[Any, Any, object], name: str) -> None:
    try:
        await work
    except Exception:
        # The last net: one request that goes wrong takes no other with it.
        _log.exception("%s ended in an error", name)
