"""A reply to runs of code that records events, and checks their order."""

import asyncio

from interpreter_bot import events
from interpreter_bot.sessions import ports, questions
from tests.fakes import replies


class CodeReply(ports.Reply):
    """Answers questions from a list; raises the error of `faults` for an event's short name."""

    def __init__(self, *, answers=(), faults=None, is_keeping=True):
        self.answers = list(answers)
        self._is_keeping = is_keeping
        self.faults = dict(faults or {})
        self.received = []
        self.files = {}
        self._directory = replies.new_spool(self)
        self._ended = -1
        self.questions = questions.Questions()
        self._tasks = []

    def _record(self, cell, name, content):
        assert cell == self._ended + 1, "cells end in order, and are silent after"
        if name in self.faults:
            raise self.faults[name]
        self.received.append((cell, name, content))

    def _show(self, event):
        match event:
            case events.QuestionAsked(question=question):
                self._take_question(question)
                return
            case events.QuestionClosed():
                return
        name, content = replies.describe_event(event)
        if name == "announcement":
            assert content
        if name == "artifact" and event.copy is not None:
            self.files[content.name] = event.copy.read_bytes()
            event.copy.unlink()
        self._record(event.cell, name, content)
        if name == "finished":
            self._ended = event.cell

    def _take_question(self, question):
        self._record(question.cell, "ask", question)
        answer = events.Unanswered("Nobody answers.")
        if self.answers:
            answer = events.TextAnswer(self.answers.pop(0))
        answering = self.questions.answer(question.id, answer, person=question.person)
        self._tasks.append(asyncio.create_task(answering))

    @property
    def spool(self):
        return self._directory if self._is_keeping else None

    def contents(self, name):
        """Return the contents of all events with a short name, as (cell, content)."""
        return [(cell, content) for cell, received, content in self.received if received == name]

    @property
    def endings(self):
        return [finished.ending.value for _, finished in self.contents("finished")]
