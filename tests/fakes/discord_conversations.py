"""Conversations that do what a test tells them, as strictly as the real ones.

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Hello")
        return turn.done("Hello")

    talks = Conversations(script)

One turn at a time in each conversation; a reply hears `ended` exactly once; every call of the reply
goes through the order that `ports.Reply` promises.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import itertools

from interpreter_bot import errors, settings, values
from interpreter_bot.sessions import approval_policy, histories, ports, requests
from tests.fakes import replies


class _Both(replies.Reply):
    """Hears everything, strictly, and passes it on."""

    def __init__(self, real):
        super().__init__()
        self._real = real

    def _hear(self, method, what):
        assert self.end is None, f"{method} after the end"
        self.heard.append((method, what))

    def __getattribute__(self, name):
        own = super().__getattribute__(name)
        if name in _PASSED:
            real = getattr(super().__getattribute__("_real"), name)

            def both(*arguments):
                own(*arguments)
                return real(*arguments)

            return both
        if name in ("ask", "approve", "save"):
            return getattr(super().__getattribute__("_real"), name)
        return own


_PASSED = frozenset(
    {
        *("queued", "started", "announcement", "step", "text", "writing", "code", "output"),
        *("finished", "artifact", "usage", "progress", "ended"),
    }
)


@dataclasses.dataclass(eq=False)
class Turn:
    """One turn, for its script."""

    request: requests.Request
    reply: ports.Reply
    files: dict[str, bytes]
    id: int

    def done(self, text="", **others):
        """End well."""
        return ports.End(status=values.TurnStatus.DONE, text=text, turn_id=self.id, **others)

    def run(self, cell, code, *outputs, ending=values.Ending.OK, seconds=0.1, **others):
        """Run code that shows outputs; strings are printed."""
        self.reply.code(cell, code)
        for output in outputs:
            shown = values.Text("stdout", output) if isinstance(output, str) else output
            self.reply.output(cell, shown)
        self.reply.finished(cell, values.Finished(ending, seconds, **others))

    def make(self, cell, name, data, sha256=""):
        """Give a file back."""
        saving = self.reply.save(cell, name)
        if saving is not None:
            with contextlib.closing(saving):
                saving.write(data)
                saving.complete()
        self.reply.artifact(cell, values.Artifact(name, len(data), sha256 or f"sha of {name}"))


class Conversations:
    """Conversations by script.

    Attributes:
        handled: every request that was taken, in order.
        past: turns by conversation.
        workspaces: files by conversation.
        tables: the whole of tables as CSV, by conversation and handle.
        claim_seconds: how long the database takes.
    """

    def __init__(self, script, *, models=("small", "large"), is_sandboxed=True):
        self.queries = self  # It answers what is asked about conversations, too.
        self._script = script
        self.models = models
        self.model_notice = "" if models else "Set a model to get answers in words."
        self.is_sandboxed = is_sandboxed
        self.limits = settings.Limits()
        self.handled = []
        self.past = {}
        self.workspaces = {}
        self.tables = {}
        self.claim_seconds = 0.0
        self.resets = []
        self.scopes = {}
        self.chosen_models = {}
        self.faults = []
        self.notify = {}
        self._claims = set()
        self._locks = {}
        self._waiting = {}
        self._running = {}
        self._ids = itertools.count(1)

    async def handle(self, request, reply):
        assert isinstance(request, requests.Request)
        assert request.key.platform
        assert request.key.channel
        assert request.person.id
        reply = _Both(reply)
        lock = self._locks.setdefault(request.key, asyncio.Lock())
        queue = self._waiting.setdefault(request.key, [])
        task = asyncio.current_task()
        entry = [request.id, task, False]
        queue.append(entry)
        try:
            if len(queue) > 1:
                reply.queued(len(queue) - 1)
            async with lock:
                entry[2] = True
                reply.started()
                end = await self._turn(request, reply)
        except asyncio.CancelledError:
            if task.cancelling() and not entry[1]:
                task.uncancel()
                end = ports.End(status=values.TurnStatus.FAILED, sentence="Withdrawn.")
            else:
                reply.ended(ports.End(status=values.TurnStatus.STOPPED, sentence="Stopped."))
                raise
        finally:
            queue.remove(entry)
        reply.ended(end)
        return end

    async def _turn(self, request, reply):
        self.handled.append(request)
        files = self.workspaces.setdefault(request.key, {})
        turn = Turn(request, reply, files, next(self._ids))
        started = datetime.datetime.now(datetime.UTC)
        try:
            for attachment in request.attachments:
                size = attachment.size_bytes
                if size is not None and size > self.limits.upload_bytes:
                    raise errors.FileTooLargeError
                await self.put(request.key, attachment)
            running = asyncio.create_task(self._script(turn), name=request.id)
            self._running[request.key] = running
            try:
                end = await asyncio.shield(running)
            except asyncio.CancelledError:
                if not running.cancelled():
                    running.cancel()
                    raise
                end = ports.End(
                    status=values.TurnStatus.STOPPED, sentence="Stopped.", turn_id=turn.id
                )
            finally:
                del self._running[request.key]
        except errors.BotError as error:
            end = ports.End(status=values.TurnStatus.FAILED, sentence=str(error), turn_id=turn.id)
        self._remember(request, reply, end, turn, started)
        return end

    def _remember(self, request, reply, end, turn, started):
        codes = [what for method, what in reply.heard if method == "code"]
        self.past.setdefault(request.key, []).append(
            histories.PastTurn(
                id=turn.id,
                person=request.person.id,
                request=request.text,
                attachments=tuple(one.name for one in request.attachments),
                status=str(end.status),
                answer=end.text or end.sentence,
                started=started,
                ended=started,
                parts=tuple(histories.PastCode(n, code) for n, code in enumerate(codes)),
                artifacts=(),
            )
        )

    def is_busy(self, key):
        return bool(self._waiting.get(key))

    async def stop(self, key):
        running = self._running.get(key)
        if running is None:
            return False
        running.cancel()
        return True

    async def cancel(self, key, request_id):
        if await self.withdraw(key, request_id):
            return True
        running = self._running.get(key)
        return bool(running) and running.get_name() == request_id and await self.stop(key)

    async def withdraw(self, key, request_id):
        for entry in self._waiting.get(key, []):
            if entry[0] == request_id and not entry[2]:
                task, entry[1] = entry[1], None
                task.cancel()
                return True
        return False

    async def reset(self, key, *, files=False):
        self.resets.append((key, files))
        if files:
            self.workspaces.pop(key, None)

    async def history(self, key, *, most=50):
        return tuple(self.past.get(key, [])[-most:])

    async def notebook(self, key):
        return b'{"cells": [], "nbformat": 4}'

    async def save_table(self, key, handle):
        if self.is_busy(key):
            raise errors.BotError("Something runs in this conversation.")
        if (key, handle) not in self.tables:
            raise errors.BotError("That table is no longer there.")
        name = f"table-{handle}.csv"
        self.workspaces.setdefault(key, {})[name] = self.tables[key, handle]
        return name

    async def recent(self, platform, workspace="", *, channel=None, person="", most=50):
        found = [
            key
            for key in reversed(self.past)
            if (key.platform, key.workspace) == (platform, workspace)
            and channel in (None, key.channel)
        ]
        now = datetime.datetime.now(datetime.UTC)
        return tuple(
            histories.SessionOverview(
                key=key, title="", model="", used=now, is_busy=False, has_kernel=False
            )
            for key in found[:most]
        )

    async def files(self, key):
        return tuple(
            values.FileInfo(name, len(data), 10**18)
            for name, data in sorted(self.workspaces.get(key, {}).items())
        )

    @contextlib.asynccontextmanager
    async def reading(self, key, name):
        data = self.workspaces.get(key, {}).get(name)
        if data is None:
            raise errors.FileMissingError

        async def chunks():
            yield data

        yield values.FileInfo(name, len(data), 10**18), chunks()

    async def put(self, key, attachment):
        chunks = [chunk async for chunk in attachment.open()]
        self.workspaces.setdefault(key, {})[attachment.name] = b"".join(chunks)
        return attachment.name

    async def choose_model(self, key, title):
        if title is not None and title not in self.models:
            raise errors.BotError("There is no such model.")
        self.chosen_models[key] = title

    async def model(self, key):
        return self.chosen_models.get(key) or next(iter(self.models), "")

    async def usage(self, key, person):
        spent = values.Usage(steps=1, input_tokens=100, output_tokens=20, cpu_seconds=1.5)
        return histories.UsageSummary(
            session=spent, today=spent, allowed_money=None, allowed_tokens=1000
        )

    async def choices(self, scope):
        found = {}
        for narrow in (
            values.Scope(),
            values.Scope(scope.platform),
            values.Scope(scope.platform, scope.workspace),
            values.Scope(scope.platform, scope.workspace, scope.channel),
            values.Scope(scope.platform, person=scope.person),
            scope,
        ):
            found |= self.scopes.get(narrow, {})
        return found

    async def approval(self, scope, at_least="never"):
        around = (
            values.Scope(),
            values.Scope(scope.platform),
            values.Scope(scope.platform, scope.workspace),
            values.Scope(scope.platform, scope.workspace, scope.channel),
            values.Scope(scope.platform, person=scope.person),
            scope,
        )
        chosen = [self.scopes.get(one, {}).get(approval_policy.NAME) for one in around]
        return approval_policy.strictest(at_least, *chosen)

    async def choose(self, scope, name, value):
        chosen = self.scopes.setdefault(scope, {})
        if value is None:
            chosen.pop(name, None)
        else:
            chosen[name] = value

    async def claim(self, platform, event_id):
        await asyncio.sleep(self.claim_seconds)
        if (platform, event_id) in self._claims:
            return False
        self._claims.add((platform, event_id))
        return True

    def notify_through(self, platform, notify):
        self.notify[platform] = notify
