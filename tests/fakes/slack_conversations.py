"""Conversations that follow a script: what `sessions.conversations` promises, without kernels.

A script is a coroutine function `(request, reply, held) -> None | End` for each request. Lanes are
real: one turn at a time per conversation, the others wait and are told so.
"""

import asyncio
import collections
import contextlib
import dataclasses
import datetime
import hashlib

from interpreter_bot import errors, settings, values
from interpreter_bot.sessions import approval_policy, histories, ports


async def echo(request, reply, service):
    """Answer in words, as a model would."""
    reply.step(1)
    text = f"echo: {request.text}"
    for start in range(0, len(text), 5):
        reply.text(text[start : start + 5])
    return ports.End(status=values.TurnStatus.DONE, text=text, turn_id=service.next_turn())


@dataclasses.dataclass
class Past:
    """As much of a past turn as platforms look at."""

    id: int
    person: str
    request: str


class Conversations:
    """See the module."""

    def __init__(self, script=echo, *, models=("good", "cheap"), limits=None):
        self.queries = self  # It answers what is asked about conversations, too.
        self.script = script
        self.limits = limits or settings.Limits()
        self.is_sandboxed = True
        self.models = models
        self.model_notice = ""
        self.requests = []
        self.taken = {}
        self.ends = []
        self.claims = set()
        self.chosen = {}
        self.calls = []
        self.workspaces = collections.defaultdict(dict)
        self.notify = {}
        self.tables = {}
        self._lanes = collections.defaultdict(asyncio.Lock)
        self._waiting = collections.defaultdict(list)
        self._running = {}
        self._past = collections.defaultdict(list)
        self._titles = {}
        self._turn = 0
        self._models = {}

    def next_turn(self):
        self._turn += 1
        return self._turn

    async def handle(self, request, reply):
        assert request.key.platform == "slack"
        scope = values.Scope("slack", request.key.workspace, request.key.channel)
        asked = await self.approval(scope, request.approval)
        request = dataclasses.replace(request, approval=asked)
        self.requests.append(request)
        lane = self._lanes[request.key]
        entry = (request.id, asyncio.Event())
        self._waiting[request.key].append(entry)
        try:
            if lane.locked():
                reply.queued(len(self._waiting[request.key]))
            async with self._turn_of(lane, entry) as is_wanted:
                self._waiting[request.key].remove(entry)
                if is_wanted:
                    return await self._take(request, reply)
                end = ports.End(status=values.TurnStatus.FAILED, sentence="Withdrawn.")
                self.ends.append(end)
                reply.ended(end)
                return end
        except asyncio.CancelledError:
            reply.ended(ports.End(status=values.TurnStatus.STOPPED, sentence="Stopped."))
            raise
        finally:
            if entry in self._waiting[request.key]:
                self._waiting[request.key].remove(entry)

    @contextlib.asynccontextmanager
    async def _turn_of(self, lane, entry):
        """Have the lane, or hear that the request was withdrawn."""
        having = asyncio.create_task(lane.acquire())
        leaving = asyncio.create_task(entry[1].wait())
        try:
            await asyncio.wait([having, leaving], return_when=asyncio.FIRST_COMPLETED)
            yield not leaving.done()
        finally:
            leaving.cancel()
            if having.done() and not having.cancelled():
                lane.release()
            having.cancel()

    async def _take(self, request, reply):
        reply.started()
        work = asyncio.create_task(self._work(request, reply), name=request.id)
        self._running[request.key] = work
        past = Past(self._turn + 1, request.person.id, request.text)
        self._past[request.key].append(past)
        try:
            end = await work
        except asyncio.CancelledError:
            if not work.cancelled():
                work.cancel()
                raise
            end = ports.End(status=values.TurnStatus.STOPPED, turn_id=self.next_turn())
        except errors.BotError as error:
            end = ports.End(status=values.TurnStatus.FAILED, sentence=str(error))
        finally:
            del self._running[request.key]
        self.ends.append(end)
        reply.ended(end)
        return end

    async def _work(self, request, reply):
        for attachment in request.attachments:
            self.taken[attachment.name] = await self._put(request.key, attachment)
        end = await self.script(request, reply, self)
        return end or ports.End(status=values.TurnStatus.DONE, turn_id=self.next_turn())

    async def _put(self, key, attachment):
        if attachment.size_bytes and attachment.size_bytes > self.limits.upload_bytes:
            raise errors.FileTooLargeError(f"{attachment.name} is too large.")
        data = b"".join([chunk async for chunk in attachment.open()])
        self.workspaces[key][attachment.name] = data
        return data

    def is_busy(self, key):
        return key in self._running

    async def stop(self, key):
        self.calls.append(("stop", key))
        work = self._running.get(key)
        if work is not None:
            work.cancel()
        return work is not None

    async def cancel(self, key, request_id):
        if await self.withdraw(key, request_id):
            return True
        running = self._running.get(key)
        return bool(running) and running.get_name() == request_id and await self.stop(key)

    async def withdraw(self, key, request_id):
        for name, withdrawn in self._waiting[key]:
            if name == request_id and not withdrawn.is_set():
                withdrawn.set()
                return True
        return False

    async def reset(self, key, *, files=False):
        self.calls.append(("reset", key, files))
        await self.stop(key)
        if files:
            self.workspaces.pop(key, None)

    async def delete(self, key):
        self.calls.append(("delete", key))

    async def rename(self, key, title):
        assert title
        self._titles[key] = title

    async def recent(self, platform, workspace="", *, channel=None, person="", most=50):
        found = [
            histories.SessionOverview(
                key=key,
                title=self._titles.get(key, ""),
                model=self._models.get(key, ""),
                used=datetime.datetime(2030, 1, 2, 3, 4, tzinfo=datetime.UTC),
                is_busy=self.is_busy(key),
                has_kernel=True,
                memory_bytes=30 * 1024 * 1024,
                idle_seconds=1.0,
            )
            for key, past in self._past.items()
            if (not person or any(turn.person == person for turn in past))
            and (not workspace or key.workspace == workspace)
        ]
        return tuple(found[:most])

    async def history(self, key, *, most=50):
        return tuple(self._past.get(key, ())[-most:])

    async def notebook(self, key):
        return b'{"cells": []}'

    async def files(self, key):
        return tuple(
            values.FileInfo(name, len(data), 0) for name, data in self.workspaces[key].items()
        )

    @contextlib.asynccontextmanager
    async def reading(self, key, name):
        data = self.workspaces[key].get(name)
        if data is None:
            raise errors.FileMissingError

        async def chunks():
            yield data

        yield values.FileInfo(name, len(data), 0), chunks()

    async def put(self, key, attachment):
        await self._put(key, attachment)
        return attachment.name

    async def save_table(self, key, handle):
        if handle not in self.tables:
            raise errors.BotError("That table is no longer there.")
        name = f"table-{handle}.csv"
        self.workspaces[key][name] = self.tables[handle]
        return name

    async def choose_model(self, key, title):
        if title is not None and title not in self.models:
            raise errors.BotError(f"There is no model called {title}.")
        self._models[key] = title or ""

    async def model(self, key):
        return self._models.get(key) or (self.models[0] if self.models else "")

    async def usage(self, key, person):
        spent = values.Usage(steps=2, input_tokens=1000, output_tokens=234, cpu_seconds=1.5)
        return histories.UsageSummary(
            session=spent, today=spent, allowed_money=None, allowed_tokens=50_000
        )

    def _around(self, scope):
        around = [values.Scope(), values.Scope(scope.platform)]
        around += [values.Scope(scope.platform, scope.workspace), scope]
        return [pair for one in around for pair in self.chosen.get(one, {}).items()]

    async def choices(self, scope):
        return dict(self._around(scope))

    async def approval(self, scope, at_least="never"):
        chosen = [value for name, value in self._around(scope) if name == approval_policy.NAME]
        return approval_policy.strictest(at_least, *chosen)

    async def choose(self, scope, name, value):
        chosen = self.chosen.setdefault(scope, {})
        chosen.pop(name, None)
        if value is not None:
            chosen[name] = value

    async def claim(self, platform, event_id):
        assert len(event_id) <= 255
        # The database takes its time, and another event comes meanwhile.
        await asyncio.sleep(0)
        is_new = (platform, event_id) not in self.claims
        self.claims.add((platform, event_id))
        return is_new

    def notify_through(self, platform, notify):
        self.notify[platform] = notify


def saved(reply, cell, name, data):
    """Give a file back, as the collector does."""
    saving = reply.save(cell, name)
    for start in range(0, len(data), 65_536):
        saving.write(data[start : start + 65_536])
    saving.complete()
    saving.close()
    digest = hashlib.sha256(data).hexdigest()
    reply.artifact(cell, values.Artifact(name, len(data), digest))


def done(seconds=0.2, **more):
    """An execution that ended well."""
    return values.Finished(values.Ending.OK, seconds, **more)
