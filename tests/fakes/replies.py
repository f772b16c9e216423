"""A reply that remembers, and insists on the order that `ports.Reply` promises."""

import asyncio
import io

from interpreter_bot import errors


class _Saving(io.BytesIO):
    def __init__(self, reply, name):
        super().__init__()
        self._reply = reply
        self._name = name

    def complete(self):
        self._reply.files[self._name] = self.getvalue()


class Reply:
    """Answers and approves from lists; `faults` are raised by name of method."""

    def __init__(self, *, answers=(), approvals=(), faults=None, is_keeping=True):
        self._answers = list(answers)
        self._approvals = list(approvals)
        self._faults = dict(faults or {})
        self._is_keeping = is_keeping
        self._running = None
        self._cells = 0
        self._arrival = asyncio.Event()
        self.heard = []
        self.files = {}
        self.end = None

    def _hear(self, method, what):
        assert self.end is None, f"{method} after the end"
        if method in self._faults:
            raise self._faults.pop(method)
        self.heard.append((method, what))
        self._arrival.set()

    def queued(self, ahead):
        assert ahead > 0
        assert not self.of("begun")
        self._hear("waiting", ahead)

    def started(self):
        assert not self.of("begun")
        self._hear("begun", None)

    def step(self, number):
        assert number == len(self.of("step")) + 1
        assert self._running is None
        self._hear("step", number)

    def progress(self, text, share):
        assert share is None or 0 <= share <= 1
        self._hear("progress", (text, share))

    def text(self, delta):
        assert delta
        self._hear("text", delta)

    def writing(self, delta):
        self._hear("writing", delta)

    def code(self, cell, code):
        assert self._running is None
        assert cell == self._cells
        self._cells += 1
        self._running = cell
        self._hear("code", code)

    def output(self, cell, output):
        assert cell == self._running, "outputs belong to the code that runs"
        self._hear("output", output)

    async def ask(self, cell, request):
        assert cell == self._running
        self._hear("ask", request)
        if not self._answers:
            raise errors.BotError("Nobody answers.")
        return self._answers.pop(0)

    async def approve(self, cell, code, *, choices=(), is_personal=False):
        assert cell == self._cells
        self._hear("approve", code)
        self.was_personal = is_personal
        return self._approvals.pop(0)

    async def tell_privately(self, text):
        self._hear("tell_privately", text)
        return True

    def finished(self, cell, finished):
        assert cell == self._running
        self._running = None
        self._hear("finished", finished)

    def announcement(self, cell, text):
        assert text
        self._hear("announcement", text)

    def save(self, cell, name):
        assert self._running is None
        self._hear("save", name)
        return _Saving(self, name) if self._is_keeping else None

    def artifact(self, cell, artifact):
        assert cell == self._cells - 1
        self._hear("artifact", artifact)

    def usage(self, spent):
        self._hear("usage", spent)

    def ended(self, end):
        self._hear("over", end)
        self.end = end

    def of(self, method):
        """What was heard by one method."""
        return [what for heard, what in self.heard if heard == method]

    @property
    def said(self):
        return "".join(self.of("text"))

    async def until(self, method, count=1):
        """Wait until a method was called so often."""
        async with asyncio.timeout(20):
            while len(self.of(method)) < count:
                self._arrival.clear()
                await self._arrival.wait()
