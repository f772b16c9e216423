"""Conversations without models and kernels: what each text leads to is a function in a script.

    async def hello(stage):
        stage.reply.step(1)
        stage.reply.text("Hello")
        return "Hello"

    bot = conversations.Conversations(tmp_path, {"hi": hello})

As strict as the real one where a platform could go wrong: one turn at a time, in order; every turn
is recorded as it was told; the reply is told what `ports.Reply` promises and nothing after `ended`.
A text that no script knows is a fault. `put` and `reading` stream, to and from real files.
"""

import asyncio
import collections
import contextlib
import dataclasses
import datetime
import decimal
import hashlib
import re
import time

from interpreter_bot import errors, settings, values
from interpreter_bot.sessions import approval_policy, histories, ports


@dataclasses.dataclass
class Stage:
    """What a script plays on."""

    request: object
    reply: object
    stopped: asyncio.Event
    bot: object

    async def run(self, cell, code, *outputs, ending=values.Ending.OK, reason=""):
        """Tell of a cell from its code to its end."""
        self.reply.code(cell, code)
        for output in outputs:
            self.reply.output(cell, output)
            await asyncio.sleep(0)
        self.reply.finished(cell, values.Finished(ending, 0.25, reason))


class _Recording:
    """Passes everything on, and writes it down as the store would."""

    def __init__(self, reply, kept):
        self._reply = reply
        self._kept = kept
        self._is_new = True
        self._is_over = False
        self.parts = []
        self.artifacts = []

    def __getattr__(self, name):
        assert not self._is_over, f"{name} after the end"
        return getattr(self._reply, name)

    def step(self, number):
        self._is_new = True
        self._reply.step(number)

    def text(self, delta):
        if self._is_new or not isinstance(self.parts[-1], histories.PastText):
            self.parts.append(histories.PastText(""))
        self._is_new = False
        self.parts[-1] = histories.PastText(self.parts[-1].text + delta)
        self._reply.text(delta)

    def announcement(self, cell, text):
        self.parts.append(histories.PastNotice(text))
        self._reply.announcement(cell, text)

    def code(self, cell, code):
        self.parts.append(histories.PastCode(cell, code))
        self._reply.code(cell, code)

    def output(self, cell, output):
        self.parts.append(histories.PastOutput(cell, self._stored(output)))
        self._reply.output(cell, output)

    def finished(self, cell, finished):
        self.parts.append(histories.PastFinished(cell, finished))
        self._reply.finished(cell, finished)

    def artifact(self, cell, artifact):
        self.artifacts.append(artifact)
        self._reply.artifact(cell, artifact)

    def ended(self, end):
        self._reply.ended(end)
        self._is_over = True

    def _stored(self, output):
        if not isinstance(output, values.Image | values.Html):
            return output
        is_html = isinstance(output, values.Html)
        data = output.html.encode() if is_html else output.data
        sha256 = hashlib.sha256(data).hexdigest()
        self._kept[sha256] = data
        return values.StoredDisplay(
            plain=output.plain,
            display_id=output.display_id,
            is_update=output.is_update,
            mime="text/html" if is_html else output.mime,
            sha256=sha256,
            size_bytes=len(data),
        )


class Conversations:
    """The fake. What it remembers lasts as long as it; hand `past` on to play a restart."""

    def __init__(self, directory, script=None, *, models=("Scripted",), limits=None, notice=""):
        self.queries = self  # It answers what is asked about conversations, too.
        self._directory = directory
        self._script = script or {}
        self._lanes = collections.defaultdict(asyncio.Lock)
        self._waiting = collections.defaultdict(list)
        self._stops = {}
        self._kept = {}
        self._claimed = set()
        self._models = {}
        self._notify = {}
        self._choices = {}
        self.limits = limits or settings.Limits()
        self.is_sandboxed = True
        self.models = tuple(models)
        self.model_notice = notice
        self.past = collections.defaultdict(list)
        self.titles = {}
        self.used = {}
        self.handled = []

    async def handle(self, request, reply):
        self.handled.append(request)
        withdrawn = asyncio.Event()
        queue = self._waiting[request.key]
        queue.append((request.id, withdrawn))
        if (ahead := len(queue) - 1) > 0:
            reply.queued(ahead)
        taking = asyncio.create_task(self._lanes[request.key].acquire())
        leaving = asyncio.create_task(withdrawn.wait())
        try:
            await asyncio.wait({taking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if withdrawn.is_set():
                end = ports.End(status=values.TurnStatus.FAILED, sentence="It was withdrawn.")
            else:
                end = await self._take(request, reply)
        finally:
            queue.remove((request.id, withdrawn))
            leaving.cancel()
            if taking.done():
                self._lanes[request.key].release()
            else:
                taking.cancel()
        reply.ended(end)
        return end

    async def _take(self, request, reply):
        self.used[request.key] = datetime.datetime.now(datetime.UTC)
        recording = _Recording(reply, self._kept)
        stop = self._stops[request.key] = asyncio.Event()
        started = datetime.datetime.now(datetime.UTC)
        number = sum(map(len, self.past.values())) + 1
        past = histories.PastTurn(
            id=number,
            person=request.person.id,
            request=request.text,
            request_id=request.id,
            attachments=request.files,
            status="running",
            answer="",
            started=started,
            ended=None,
            parts=(),
            artifacts=(),
        )
        self.past[request.key].append(past)
        recording.started()
        play = self._script[request.text.partition(" ")[0]]
        try:
            said = await play(Stage(request, recording, stop, self))
            status = values.TurnStatus.STOPPED if stop.is_set() else values.TurnStatus.DONE
            sentence = "Stopped." if stop.is_set() else ""
        except errors.BotError as error:
            said, status, sentence = "", values.TurnStatus.FAILED, str(error)
        finally:
            del self._stops[request.key]
        ended = datetime.datetime.now(datetime.UTC)
        self.past[request.key][-1] = dataclasses.replace(
            past,
            status=status.value,
            answer=(said or "") if status == "done" else (said or sentence),
            ended=ended,
            parts=tuple(recording.parts),
            artifacts=tuple(recording.artifacts),
        )
        seconds = (ended - started).total_seconds()
        return ports.End(
            status=status, text=said or "", sentence=sentence, seconds=seconds, turn_id=number
        )

    def is_busy(self, key):
        return bool(self._waiting[key])

    async def stop(self, key):
        if key not in self._stops:
            return False
        self._stops[key].set()
        return True

    async def cancel(self, key, request_id):
        if await self.withdraw(key, request_id):
            return True
        running = [one for one, _ in self._waiting[key][:1]]
        return running == [request_id] and await self.stop(key)

    async def withdraw(self, key, request_id):
        for one, event in self._waiting[key][1:]:
            if one == request_id:
                event.set()
                return True
        return False

    async def reset(self, key, *, files=False):
        await self.stop(key)
        async with self._lanes[key]:
            now = datetime.datetime.now(datetime.UTC)
            turn = histories.PastTurn(
                id=sum(map(len, self.past.values())) + 1,
                person="",
                request="",
                attachments=(),
                status="done",
                answer="",
                started=now,
                ended=now,
                parts=(histories.PastNotice("Started anew."),),
                artifacts=(),
            )
            self.past[key].append(turn)
            if files:
                self._forget_files(key)

    async def save_table(self, key, handle):
        assert re.fullmatch("t[0-9]+", handle)
        if self.is_busy(key):
            raise errors.BotError("A turn runs just now.")
        name = f"table-{handle}.csv"
        (self.directory(key) / name).write_text("all,of\nit,1\n")
        return name

    async def delete(self, key):
        await self.stop(key)
        async with self._lanes[key]:
            for kept in (self.past, self.titles, self.used):
                kept.pop(key, None)
            self._forget_files(key)

    async def rename(self, key, title):
        self.titles[key] = title
        self.used.setdefault(key, datetime.datetime.now(datetime.UTC))

    async def recent(self, platform, workspace="", *, channel=None, person="", most=50):
        assert platform == "web"
        found = sorted(self.used, key=lambda key: self.used[key], reverse=True)[:most]
        return tuple(
            histories.SessionOverview(
                key=key,
                title=self.titles.get(key, ""),
                model="",
                used=self.used[key],
                is_busy=self.is_busy(key),
                has_kernel=True,
            )
            for key in found
        )

    async def history(self, key, *, most=50):
        return tuple(self.past[key][-most:])

    async def kept(self, sha256):
        assert re.fullmatch("[0-9a-f]{64}", sha256)
        return self._kept.get(sha256)

    async def notebook(self, key):
        return b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'

    async def files(self, key):
        found = sorted(self.directory(key).iterdir())
        stats = [(one.name, one.stat()) for one in found]
        return tuple(values.FileInfo(name, s.st_size, s.st_mtime_ns) for name, s in stats)

    @contextlib.asynccontextmanager
    async def reading(self, key, name):
        path = self.directory(key) / name
        if path not in self.directory(key).iterdir():
            raise errors.FileMissingError
        info = values.FileInfo(name, path.stat().st_size, 0)
        with path.open("rb") as stream:
            yield info, self._pieces(stream)

    async def _pieces(self, stream):
        while piece := await asyncio.to_thread(stream.read, 1 << 20):
            yield piece

    async def put(self, key, attachment):
        name = re.sub(r"[/\\\x00]", "_", attachment.name).strip(". ")[:60] or "file"
        path = self.directory(key) / name
        while path.exists():
            path = path.with_name(f"{time.monotonic_ns()}-{name}")
        part = path.with_name(f".{path.name}")
        try:
            with part.open("wb") as stream:
                async for piece in attachment.open():
                    await asyncio.to_thread(stream.write, piece)
            part.rename(path)
        finally:
            part.unlink(missing_ok=True)
        return path.name

    async def model(self, key):
        return self._models.get(key, next(iter(self.models), ""))

    async def choose_model(self, key, title):
        if title is not None and title not in self.models:
            raise errors.BotError(f"There is no model {title}.")
        self._models[key] = title or self.models[0]

    async def choices(self, scope):
        return dict(self._choices)

    async def choose(self, scope, name, value):
        assert (scope.platform, scope.person) == ("web", "web")
        self._choices.pop(name, None)
        if value is not None:
            self._choices[name] = value

    async def approval(self, scope, at_least="never"):
        return approval_policy.strictest(self._choices.get("approval"), at_least)

    async def usage(self, key, person):
        assert person.id
        spent = values.Usage(1200, 345, money=decimal.Decimal("0.021"), cpu_seconds=1.5)
        return histories.UsageSummary(
            session=spent, today=spent, allowed_money=None, allowed_tokens=100_000
        )

    async def claim(self, platform, event_id):
        assert platform == "web"
        is_new = event_id not in self._claimed
        self._claimed.add(event_id)
        return is_new

    def notify_through(self, platform, notify):
        self._notify[platform] = notify

    async def tell(self, key, sentence):
        """Play a sentence of the session's own."""
        await self._notify["web"](key, sentence)

    def cut_off(self, key):
        """Play that the bot was killed in the middle of a turn, and was started again."""
        self.past[key][-1] = dataclasses.replace(
            self.past[key][-1], status="interrupted", answer=""
        )
        self._lanes.clear()
        self._waiting.clear()

    def directory(self, key):
        """The workspace, for tests to look into."""
        path = self._directory / key.thread
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _forget_files(self, key):
        for path in self.directory(key).iterdir():
            path.unlink()
