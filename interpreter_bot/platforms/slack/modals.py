"""Modals that are opened, and questions answered by modal or button.

A modal is opened before anything else is done: Slack gives three seconds for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from interpreter_bot import errors
from interpreter_bot.platforms.slack import (
    handler_dependencies,
    home_and_modal_views,
    installations,
)
from interpreter_bot.sessions import pending_questions
from interpreter_bot.wording import command_words, question_words


class Modals:
    """Opens modals and takes answers."""

    def __init__(self, shared: handler_dependencies.HandlerDependencies) -> None:
        self._api = shared.api
        self._permissions = shared.permissions
        self._questions = shared.questions

    async def open_run(
        self, workspace: installations.InstalledWorkspace, channel: str, trigger: str
    ) -> None:
        """Open the editor of `/py`."""
        form = (
            home_and_modal_views.RUN_FORM,
            command_words.RUN_TITLE,
            command_words.YOUR_CODE,
            "Run",
        )
        await self._open(workspace, trigger, form, {"channel": channel})

    async def open_ask(
        self, workspace: installations.InstalledWorkspace, channel: str, ts: str, trigger: str
    ) -> None:
        """Open the question about a message."""
        form = (
            home_and_modal_views.ASK_FORM,
            command_words.ASK_TITLE,
            command_words.YOUR_QUESTION,
            "Ask",
        )
        await self._open(workspace, trigger, form, {"channel": channel, "ts": ts})

    async def open_edit(
        self,
        workspace: installations.InstalledWorkspace,
        channel: str,
        question: pending_questions.Question,
        trigger: str,
    ) -> None:
        """Open code that waits for approval."""
        form = (
            home_and_modal_views.EDIT_FORM,
            question_words.EDIT_TITLE,
            question_words.CODE,
            "Run",
        )
        facts = {"channel": channel, "question": question.id}
        await self._open(workspace, trigger, form, facts, initial=question.code)

    async def open_answer(
        self,
        workspace: installations.InstalledWorkspace,
        channel: str,
        question: pending_questions.Question,
        trigger: str,
    ) -> None:
        """Open the answer to an `input()`."""
        label = question.prompt or question_words.ANSWER
        form = (home_and_modal_views.ANSWER_FORM, question_words.INPUT_TITLE, label, "Answer")
        facts = {"channel": channel, "question": question.id}
        await self._open(workspace, trigger, form, facts, is_optional=True)

    async def _open(
        self,
        workspace: installations.InstalledWorkspace,
        trigger: str,
        form: tuple[str, str, str, str],
        facts: Mapping[str, str],
        **options: Any,
    ) -> None:
        view = home_and_modal_views.form(*form, facts=json.dumps(facts), **options)
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
        *,
        edits: bool = False,
    ) -> None:
        """Take a person's answer to a question; with `edits` it is one that they wrote.

        Raises:
            BotError: it is not theirs to answer, or too late.
        """
        question = await self.question(workspace, user, channel, question_id, edits=edits)
        await self.resolve(question, answer)

    async def resolve(self, question: pending_questions.Question, answer: str | None) -> None:
        """Answer a question.

        Raises:
            BotError: it is too late.
        """
        if not question.resolve(answer):
            raise errors.BotError(question_words.EXPIRED)

    async def question(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        question_id: str,
        *,
        edits: bool = False,
    ) -> pending_questions.Question:
        """Return a question that the person may answer: who started it, or for approval also an
        admin.

        Raises:
            BotError: it is not theirs to answer, or too late.
        """
        question = self._questions.require(question_id)
        if user != question.person:
            profile = await self._permissions.require(workspace, user, channel)
            if not question.may_answer(user, is_admin=profile.is_admin, edits=edits):
                raise errors.BotError(question_words.NOT_YOURS)
        return question
