"""Modals that are opened, and questions answered by modal or button.

A modal is opened before anything else is done: Slack gives three seconds for it.
"""

from __future__ import annotations

import json

from interpreter_bot import errors
from interpreter_bot.platforms.slack import installations, services, views
from interpreter_bot.sessions import questions


class Modals:
    """Opens modals and takes answers."""

    def __init__(self, shared: services.SlackServices) -> None:
        self._api = shared.api
        self._permissions = shared.permissions
        self._questions = shared.questions

    async def open_run(
        self, workspace: installations.InstalledWorkspace, channel: str, trigger: str
    ) -> None:
        """Open the editor of `/py`."""
        facts = json.dumps({"channel": channel})
        view = views.form(views.RUN_FORM, "Run Python", "Your code", submit="Run", facts=facts)
        await self._open(workspace, trigger, view)

    async def open_ask(
        self, workspace: installations.InstalledWorkspace, channel: str, ts: str, trigger: str
    ) -> None:
        """Open the question about a message."""
        facts = json.dumps({"channel": channel, "ts": ts})
        view = views.form(
            views.ASK_FORM, "Ask about this", "Your question", submit="Ask", facts=facts
        )
        await self._open(workspace, trigger, view)

    async def open_edit(
        self,
        workspace: installations.InstalledWorkspace,
        channel: str,
        question: questions.Question,
        trigger: str,
    ) -> None:
        """Open code that waits for approval."""
        facts = json.dumps({"channel": channel, "question": question.id})
        view = views.form(
            views.EDIT_FORM,
            "Edit before running",
            "The code",
            submit="Run",
            facts=facts,
            initial=question.code,
        )
        await self._open(workspace, trigger, view)

    async def open_answer(
        self,
        workspace: installations.InstalledWorkspace,
        channel: str,
        question: questions.Question,
        trigger: str,
    ) -> None:
        """Open the answer to an `input()`."""
        facts = json.dumps({"channel": channel, "question": question.id})
        view = views.form(
            views.ANSWER_FORM,
            "Python asks",
            question.prompt or "Your answer",
            submit="Answer",
            facts=facts,
            is_optional=True,
        )
        await self._open(workspace, trigger, view)

    async def _open(
        self, workspace: installations.InstalledWorkspace, trigger: str, view: views.View
    ) -> None:
        await self._api.call(
            workspace, "views.open", most_seconds=1.0, trigger_id=trigger, view=view
        )

    async def decide(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        question_id: str,
        answer: str | None,
    ) -> None:
        """Take a person's answer to a question.

        Raises:
            BotError: it is not theirs to answer, or too late.
        """
        question = await self.question(workspace, user, channel, question_id)
        question.resolve(answer)

    async def question(
        self, workspace: installations.InstalledWorkspace, user: str, channel: str, question_id: str
    ) -> questions.Question:
        """Return a question that the person may answer: who started it, or for approval also an
        admin.

        Raises:
            BotError: it is not theirs to answer, or too late.
        """
        question = self._questions.require(question_id)
        if user != question.person:
            profile = await self._permissions.require(workspace, user, channel)
            if not (question.code and profile.is_admin):
                raise errors.BotError("Only the person who asked may answer that.")
        return question

    def code_of(self, question_id: str) -> str | None:
        """Return the code that waits for approval."""
        question = self._questions.find(question_id)
        return question.code if question else None
