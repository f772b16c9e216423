"""Calls to other replicas of the bot, where people's clicks and words may reach any of them.

What runs is in the memory of one process: a turn that can be stopped, a question that waits. An
event about it that reaches another one is carried to it through the database, done there once at
most, and the person hears what came of it from who got the event.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from interpreter_bot import cancellation, encryption, errors
from interpreter_bot.store import records, replica_call_table
from interpreter_bot.wording import session_words

_log = logging.getLogger(__name__)

# Longer than others take to look, where they missed that they were asked.
_NOBODY_SECONDS: Final = 3.0
_ANSWER_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.2
_RETRY_SECONDS: Final = 1.0
_PRUNE_SECONDS: Final = 25.0
_MOST_SEEN: Final = 1000
_SEALED: Final = "sealed"
_FAILED: Final = "failed with"

Content: TypeAlias = Mapping[str, Any]
"""JSON of a call, or of its answer."""
Work: TypeAlias = Callable[[], Awaitable[Content]]
"""Does what is asked, and returns what came of it."""
Served: TypeAlias = Callable[[Content], Work | None]
"""Returns what does what is asked; None where this process does not have what it is about."""


class ReplicaCalls:
    """What this process asks the others, and does for them. Use `open`.

    Args:
        calls: their table.
        keys: encrypt what calls say, which may be a password; None where replicas share none.
    """

    def __init__(
        self, calls: replica_call_table.ReplicaCallTable, keys: encryption.KeyRing | None = None
    ) -> None:
        self._calls = calls
        self._keys = keys
        self._served: dict[str, Served] = {}
        self._asked: dict[int, _Asked] = {}
        self._seen = collections.deque[int](maxlen=_MOST_SEEN)
        self._tasks: set[asyncio.Task[None]] = set()
        self._pruned = -_PRUNE_SECONDS

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Do what others ask for, as long as the context is open."""
        async with self._calls.served():
            listening = asyncio.create_task(self._listen(), name="calls of other replicas")
            try:
                yield
            finally:
                listening.cancel()
                await asyncio.wait([listening, *self._tasks])

    def serve(self, name: str, served: Served) -> None:
        """Do what others ask for by a name."""
        self._served[name] = served

    async def ask(self, name: str, content: Content) -> Content | None:
        """Ask the other replicas; None is the answer where each says that it has no such thing.

        What a person may do is checked before: who is asked believes whoever can write to the
        database, as with everything that is read there.

        Raises:
            BotError: who has it failed, and the sentence is its own; one that may have it does not
                answer; or the database cannot be used.
        """
        others = await self._calls.count_others()
        if not others:
            return None
        call_id = await self._calls.begin(name, await self._sealed(content))
        asked = self._asked[call_id] = _Asked(others)
        try:
            is_over = await self._waited(asked, _NOBODY_SECONDS)
            if not is_over and (
                await self._calls.withdraw(call_id)
                or not await self._waited(asked, _ANSWER_SECONDS)
            ):
                raise errors.BotError(session_words.PART_SILENT)
            if asked.answer is not None and _FAILED in asked.answer:
                raise errors.BotError(str(asked.answer[_FAILED]))
            return asked.answer
        finally:
            del self._asked[call_id]
            with contextlib.suppress(errors.StoreError):
                # What is left is deleted by the clock.
                await cancellation.shielded(self._calls.end(call_id))

    async def _waited(self, asked: _Asked, seconds: float) -> bool:
        """Wait for a call; return whether it is over. What was not heard is looked for."""
        give_up = time.monotonic() + seconds
        while not await asked.waited(_LOOK_SECONDS):
            if time.monotonic() > give_up:
                return False
            await self._note()
        return True

    async def _note(self) -> None:
        """Look at what became of the calls of this process."""
        calls = await self._calls.own() if self._asked else ()
        # One that began since may have refused, when one that was there has not looked yet.
        others = await self._calls.count_others() if calls else 0
        for call in calls:
            if call.id in self._asked:
                self._asked[call.id].note(call, others)

    async def _listen(self) -> None:
        while True:
            try:
                await self._calls.wait()
                await self._prune()
                await self._note()
                for call in await self._calls.waiting():
                    if call.id not in self._seen:
                        self._seen.append(call.id)
                        self._begin(call)
            except errors.StoreError:
                # It is logged there; the next look may succeed.
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception:
                # The last net: else this process would hear of nothing until it ends.
                _log.exception("calls of other replicas cannot be heard")
                await asyncio.sleep(_RETRY_SECONDS)

    async def _prune(self) -> None:
        """Delete now and then what dead instances left; it may hold what a person typed."""
        if time.monotonic() - self._pruned > _PRUNE_SECONDS:
            self._pruned = time.monotonic()
            await self._calls.prune()

    def _begin(self, call: records.InstanceCall) -> None:
        task = asyncio.create_task(self._do(call), name=f"call {call.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, call: records.InstanceCall) -> None:
        """Do what a call asks for, or say that this process does not have what it is about."""
        try:
            served = self._served.get(call.name)
            work = served(await self._opened(call.content)) if served is not None else None
            if work is None:
                await self._calls.refuse(call.id)
            elif await self._calls.take(call.id):
                await self._calls.answer(call.id, await self._done(call.name, work))
        except errors.StoreError:
            # It is logged there. Where it was not taken, the next look finds it again.
            with contextlib.suppress(ValueError):
                self._seen.remove(call.id)
        except Exception:
            # The last net of one call; who asked is told that nobody answers.
            _log.exception("what another replica asked for cannot be answered: %s", call.name)

    async def _done(self, name: str, work: Work) -> Content:
        try:
            return await work()
        except errors.BotError as error:
            return {_FAILED: str(error)}
        except Exception:
            # So that who asked is told at once.
            _log.exception("what another replica asked for failed: %s", name)
            return {_FAILED: str(errors.BotError())}

    async def _sealed(self, content: Content) -> Content:
        if self._keys is None:
            return content
        return {_SEALED: await asyncio.to_thread(self._keys.encrypt, json.dumps(content))}

    async def _opened(self, content: Content) -> Content:
        if self._keys is None:
            return content
        opened: Content = json.loads(await asyncio.to_thread(self._keys.decrypt, content[_SEALED]))
        return opened


class _Asked:
    """A call of this process, until it is answered or all others have refused."""

    def __init__(self, others: int) -> None:
        self.answer: Content | None = None
        self._others = others
        self._is_over = asyncio.Event()

    def note(self, call: records.InstanceCall, others: int) -> None:
        self._others = max(self._others, others)
        if call.answer is not None or call.refusals >= self._others:
            self.answer = call.answer
            self._is_over.set()

    async def waited(self, seconds: float) -> bool:
        """Wait; return whether it is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_over.wait()
        return self._is_over.is_set()
