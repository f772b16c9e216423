"""A reply to runs of code that remembers, and insists on the order of events."""

import asyncio

from interpreter_bot import events
from interpreter_bot.sessions import ports, questions
from tests.fakes import replies


class Audience(ports.Reply):
    """Answers from a list; raises `faults` by short name of event."""

    def __init__(self, *, answers=(), faults=None, is_keeping=True):
        self._answers = list(answers)
        self._is_keeping = is_keeping
        self.faults = dict(faults or {})
        self.heard = []
        self.files = {}
        self._directory = replies.new_spool(self)
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
        if name == "announcement":
            assert content
        if name == "artifact" and event.copy is not None:
            self.files[content.name] = event.copy.read_bytes()
            event.copy.unlink()
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

    @property
    def spool(self):
        return self._directory if self._is_keeping else None

    def of(self, method):
        """What was heard by one method, as (cell, what)."""
        return [(cell, what) for cell, heard, what in self.heard if heard == method]

    @property
    def endings(self):
        return [finished.ending.value for _, finished in self.of("finished")]
