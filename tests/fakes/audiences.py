"""A reply to runs of code that remembers, and insists on the order of events."""

import asyncio
import io

from interpreter_bot import events
from interpreter_bot.sessions import ports, questions
from tests.fakes import replies


class _Saving(io.BytesIO):
    def __init__(self, audience, name):
        super().__init__()
        self._audience = audience
        self._name = name

    def complete(self):
        assert not self.closed
        self._audience.files[self._name] = self.getvalue()

    def close(self):
        self._audience.open_files.discard(self)
        super().close()


class Audience(ports.Reply):
    """Answers from a list; raises `faults` by short name of event."""

    def __init__(self, *, answers=(), faults=None, is_keeping=True):
        self._answers = list(answers)
        self._is_keeping = is_keeping
        self.faults = dict(faults or {})
        self.heard = []
        self.files = {}
        self.open_files = set()
        self._ended = -1
        self.questions = questions.Questions()
        self._tasks = []

    def _hear(self, cell, method, what):
        assert cell == self._ended + 1, "cells end in order, and are silent after"
        if method in self.faults:
            raise self.faults[method]
        self.heard.append((cell, method, what))

    def _show(self, event):
        match event:
            case events.QuestionAsked(question=question):
                self._take_question(question)
                return
            case events.QuestionClosed():
                return
        name, content = replies.described(event)
        if name == "artifact":
            assert not self.open_files
        elif name == "announcement":
            assert content
        self._hear(event.cell, name, content)
        if name == "finished":
            self._ended = event.cell

    def _take_question(self, question):
        self._hear(question.cell, "ask", question)
        answer = events.Unanswered("Nobody answers.")
        if self._answers:
            answer = events.TextAnswer(self._answers.pop(0))
        answering = self.questions.answer(question.id, answer, person=question.person)
        self._tasks.append(asyncio.create_task(answering))

    def save(self, name):
        self._hear(self._ended + 1, "save", name)
        if not self._is_keeping:
            return None
        saving = _Saving(self, name)
        self.open_files.add(saving)
        return saving

    def of(self, method):
        """What was heard by one method, as (cell, what)."""
        return [(cell, what) for cell, heard, what in self.heard if heard == method]

    @property
    def endings(self):
        return [finished.ending.value for _, finished in self.of("finished")]
