"""A reply that records events, and checks their order."""

import asyncio
import pathlib
import shutil
import tempfile
import weakref

from interpreter_bot import events
from interpreter_bot.sessions import ports

SHORT_NAMES = {
    events.Queued: ("waiting", "ahead"),
    events.Started: ("begun", ""),
    events.StepStarted: ("step", "number"),
    events.ProgressChanged: ("progress", ""),
    events.TextAdded: ("text", "text"),
    events.CodeDrafted: ("writing", "text"),
    events.CodeStarted: ("code", "code"),
    events.OutputShown: ("output", "output"),
    events.CodeFinished: ("finished", "finished"),
    events.FileMade: ("artifact", "artifact"),
    events.NoticeShown: ("announcement", "text"),
    events.PrivateNotice: ("private", "text"),
    events.UsageChanged: ("usage", "usage"),
    events.TurnEnded: ("over", ""),
}


def describe_event(event):
    """Return the short name of an event, and its content."""
    name, field = SHORT_NAMES[type(event)]
    match event:
        case events.Started():
            return name, None
        case events.ProgressChanged():
            return name, (event.text, event.share)
        case events.TurnEnded():
            return name, event
    return name, getattr(event, field)


def new_spool(reply):
    """Make a directory for copies of files, deleted with the reply."""
    directory = tempfile.mkdtemp()
    weakref.finalize(reply, shutil.rmtree, directory, ignore_errors=True)
    return pathlib.Path(directory)


class Reply(ports.Reply):
    """Answers questions from lists; raises the error of `faults` for an event's short name.

    In `approvals`, True approves the code as it is.

    Attributes:
        answer: takes answers, as `SessionService.answer` does.
    """

    answer = None

    def __init__(
        self, *, answers=(), approvals=(), faults=None, is_keeping=True, is_answering=True
    ):
        self.is_answering = is_answering
        self._tasks = []
        self.answers = list(answers)
        self._approvals = list(approvals)
        self._faults = dict(faults or {})
        self._is_keeping = is_keeping
        self._directory = new_spool(self)
        self._running = None
        self._cells = 0
        self._arrival = asyncio.Event()
        self.received = []
        self.files = {}
        self.closed = []
        self.end = None

    def _record(self, name, content):
        assert self.end is None, f"{name} after the end"
        if name in self._faults:
            raise self._faults.pop(name)
        self.received.append((name, content))
        self._arrival.set()

    def emit(self, event):
        # The port ignores events after the end; this reply refuses them.
        self._show(event)

    def _show(self, event):
        match event:
            case events.QuestionAsked(question=question):
                self._take_question(question)
                return
            case events.QuestionClosed():
                self.closed.append(event)
                return
        self.check_order(event)
        self._record(*describe_event(event))
        if isinstance(event, events.TurnEnded):
            self.end = event

    def check_order(self, event):
        match event:
            case events.Queued(ahead=ahead):
                assert ahead > 0
                assert not self.contents("begun")
            case events.Started():
                assert not self.contents("begun")
            case events.StepStarted(number=number):
                # A reply that continues a cut text is a call of the model, but no step.
                last_number = max(self.contents("step"), default=0)
                assert number in (last_number + 1, last_number + 2)
                assert self._running is None
            case events.ProgressChanged(share=share):
                assert share is None or 0 <= share <= 1
            case events.TextAdded(text=text) | events.NoticeShown(text=text):
                assert text
            case events.CodeStarted(cell=cell):
                assert self._running is None
                assert cell == self._cells
                self._cells += 1
                self._running = cell
            case events.OutputShown(cell=cell):
                assert cell == self._running, "outputs belong to the code that runs"
            case events.CodeFinished(cell=cell):
                assert cell == self._running
                self._running = None
            case events.FileMade(cell=cell, artifact=artifact, copy=copy):
                assert self._running is None
                assert cell == self._cells - 1
                if copy is not None:
                    self.files[artifact.name] = copy.read_bytes()
                    copy.unlink()

    def _take_question(self, question):
        if isinstance(question, events.InputQuestion):
            if question.is_of_model:
                assert self._running is None
            else:
                assert question.cell == self._running
            self._record("ask", question)
            answer = events.Unanswered("Nobody answers.")
            if self.answers:
                answer = events.TextAnswer(self.answers.pop(0))
        else:
            assert question.cell == (
                self._cells
                if question.subject in ("code", "plan", "note", "schedule")
                else self._running
            )
            self._record("approve", question.code)
            self.was_personal = question.is_personal
            text = self._approvals.pop(0)
            answer = events.Approved() if text is True else events.make_answer(question, text)
        if self.is_answering:
            answering = self.answer(question.id, answer, person=question.person)
            self._tasks.append(asyncio.create_task(answering))

    @property
    def spool(self):
        return self._directory if self._is_keeping else None

    def contents(self, name):
        """Return the contents of all events with a short name."""
        return [content for received, content in self.received if received == name]

    @property
    def all_text(self):
        return "".join(self.contents("text"))

    async def until(self, name, count=1):
        """Wait until `count` events with a short name have come."""
        async with asyncio.timeout(60):
            while len(self.contents(name)) < count:
                self._arrival.clear()
                await self._arrival.wait()
