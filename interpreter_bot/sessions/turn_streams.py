"""The events of one turn on their way to its recorder and to its reply."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Final

from interpreter_bot import errors, events, values
from interpreter_bot.sessions import ports, questions, requests, turn_recording, turn_stops
from interpreter_bot.store import records
from interpreter_bot.wording import question_words, session_words


class TurnStream:
    """Records events, then shows them.

    Attributes:
        cell: number of the latest execution, from 0; -1 before the first.
        last_finished: end of the latest execution; None while it runs, and before the first.
        has_words: whether the model has written to the person.
        is_code_shown: whether the reply already shows the code of the next `follow_code`.
        reply: shows the events.
    """

    def __init__(
        self,
        request: requests.Request,
        reply: ports.Reply,
        recorder: turn_recording.Recorder,
        *,
        all_questions: questions.Questions,
        stop: turn_stops.StopSignal,
    ) -> None:
        self.cell = -1
        self.last_finished: values.Finished | None = None
        self.has_words = False
        self.is_code_shown = False
        self._pictures: set[str] = set()
        self.reply: Final = reply
        self._request = request
        self._recorder = recorder
        self._questions = all_questions
        self._stop = stop

    def emit(self, event: events.TurnEvent) -> None:
        """Record an event and show it; an output that is recorded already is not shown again."""
        match event:
            case events.TextAdded(text=text):
                self.has_words = self.has_words or bool(text.strip())
            case events.OutputShown(output=values.Image(data=data)):
                self._pictures.add(hashlib.sha256(data).hexdigest())
            case events.CodeFinished(finished=finished):
                self.last_finished = finished
            case events.NoticeShown(cell=None):
                event = dataclasses.replace(event, cell=max(self.cell, 0))
            case events.FileMade(artifact=artifact) if artifact.sha256 in self._pictures:
                artifact = dataclasses.replace(artifact, is_shown=True)
                event = dataclasses.replace(event, artifact=artifact)
        is_new = self._recorder.record(event)
        if isinstance(event, events.CodeFinished):
            self._questions.withdraw(self._recorder.turn_id)
        if is_new:
            self.reply.emit(event)

    async def start_code(self, code: str, hosted_id: str = "") -> None:
        """Record that code runs now, and show it.

        Args:
            hosted_id: of the execution on its host.

        Raises:
            StoreError: the start cannot be recorded, so the code must not run.
        """
        await self._recorder.record_start(code, hosted_id)
        self._show_code(code)

    def follow_code(self, execution: records.Execution) -> None:
        """Show code that another bot began."""
        self._recorder.follow_execution(execution)
        self._show_code(execution.code)

    def _show_code(self, code: str) -> None:
        self.cell += 1
        self.last_finished = None
        if not self.is_code_shown:
            self.reply.emit(events.CodeStarted(self.cell, code))
        self.is_code_shown = False

    async def ask(self, request: values.InputRequested) -> str:
        """Pass a question of running code to the person.

        Raises:
            BotError: there is no answer.
        """
        prompt = request.prompt
        question = events.InputQuestion(
            id=self._question_id(self.cell, f"question {request.number}", prompt),
            session=self._request.key,
            person=self._request.person.id,
            cell=self.cell,
            prompt=prompt,
            is_password=request.is_password,
        )
        unattended_answer = events.Unanswered(session_words.nobody_for_input(prompt))
        answer = await self._answer(question, unattended_answer)
        if isinstance(answer, events.Unanswered):
            raise errors.BotError(answer.reason)
        return answer.text if isinstance(answer, events.TextAnswer) else ""

    async def ask_for_model(self, prompt: str, choices: tuple[str, ...]) -> str:
        """Pass a question of the model to the person.

        Raises:
            BotError: there is no answer.
        """
        question = events.InputQuestion(
            id=self._question_id(self.cell, "model", "\0".join((prompt, *choices))),
            session=self._request.key,
            person=self._request.person.id,
            cell=max(self.cell, 0),
            prompt=prompt,
            is_of_model=True,
            choices=choices,
        )
        answer = await self._answer(question, events.Unanswered(question_words.NOBODY_ANSWERS))
        if isinstance(answer, events.TextAnswer):
            return answer.text
        raise errors.BotError(questions.outcome_sentence(answer))

    async def ask_approval(
        self,
        subject: events.Subject,
        text: str,
        *,
        number: int,
        choices: tuple[str, ...] = (),
        is_personal: bool = False,
        facts: str = "",
    ) -> events.Approved | events.Declined:
        """Ask a person whether something may run.

        Args:
            number: of the running code's request; 0 for code that is to run next.
            choices: see `events.ApprovalQuestion`.

        Raises:
            BotError: nobody could be asked.
        """
        cell = self.cell if number else self.cell + 1
        # The same code may be proposed again after it was declined.
        origin = f"{number}" if number else f"step {self._recorder.step_number}"
        question = events.ApprovalQuestion(
            id=self._question_id(cell, origin, text),
            session=self._request.key,
            person=self._request.person.id,
            cell=cell,
            subject=subject,
            code=text,
            facts=facts,
            choices=choices,
            is_personal=is_personal,
        )
        # If nobody can be asked, new code is declined, and running code gets the reason.
        unattended_answer = (
            events.Unanswered(question_words.NOBODY_TO_APPROVE) if number else events.Declined()
        )
        answer = await self._answer(question, unattended_answer)
        if isinstance(answer, events.Unanswered):
            raise errors.BotError(answer.reason)
        return answer if isinstance(answer, events.Approved) else events.Declined()

    def _question_id(self, cell: int, origin: str, text: str) -> str:
        return questions.question_id(self._recorder.turn_id, cell, origin, text)

    async def _answer(
        self, question: events.Question, unattended_answer: events.Answer
    ) -> events.Answer:
        if not self._request.is_attended:
            return unattended_answer
        return await self._questions.ask(
            question,
            emit=self.emit,
            turn_id=self._recorder.turn_id,
            is_suspended=lambda: self._stop.is_suspended,
        )

    async def keep_progress(self) -> None:
        """Record the progress from which another bot can resume the turn."""
        self._recorder.note_progress()
        await self._recorder.flush()

    def note_cpu(self, cpu_seconds: float) -> None:
        """Record the processor time of the turn's code until now."""
        self._recorder.note_cpu(cpu_seconds)
