"""Run the tool calls of one reply, and detect a model that repeats itself.

Three kinds of repetition count: the same code with no other code in between, different code with
the same error, and calls that cannot be read.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, TypeAlias

from interpreter_bot import errors, events, values
from interpreter_bot.agent import chat_messages, observations, picture_selection, ports, tools
from interpreter_bot.text import output_screens

_log = logging.getLogger(__name__)

MAX_OUTPUT_CHARACTERS: Final = 8000
"""Limit of one execution's output for the model, which gets its start and its end."""
REFUSAL_PREFIX: Final = "[Not run again: "
"""The beginning of each refusal by `RepetitionDetector.refuse_repeat`."""
_REPEATED_CODE: Final = (
    REFUSAL_PREFIX
    + "this is exactly the code that ran just before, and its output is above. {advice}]"
)
_ADVICE_AFTER_SUCCESS: Final = "It worked. Answer the person now, or run different code."
_ADVICE_AFTER_FAILURE: Final = "It failed. Take another way, with other functions."

NOT_RUN: Final = chat_messages.Note("[This was not run: the turn was over before.]")

_CODE_EDITED: Final = (
    "[The person changed the code before it ran. What ran is:]\n"
    "```python\n{code}\n```\n[It showed:]"
)

_NOTHING_TO_REPORT: Final = "[Nobody is told anything.]"
_PICTURE_SHOWN: Final = "[You are shown the picture {name!r}.]"
_NO_PICTURE: Final = (
    "[{name!r} is no picture that can be shown to you: that takes a PNG, JPEG, GIF or WebP of a "
    "sensible size. Convert it with run_code.]"
)

_MAX_QUESTIONS: Final = 3
_PERSON_ANSWERED: Final = "[The person answered:] {answer}"
_ASKED_BEFORE: Final = "[You asked this before.] {result}"
_TOO_MANY_QUESTIONS: Final = (
    "[Not asked: the person has answered enough questions for one turn. Decide yourself, and say "
    "what you assumed.]"
)
_NO_ANSWER: Final = (
    "[There is no answer: {error} Decide yourself, and say in your answer what you assumed.]"
)

_Pictures: TypeAlias = tuple[chat_messages.Picture, ...]


class RepetitionDetector:
    """Detects repeated code and errors in one turn.

    Attributes:
        refusals: refused repeats of the same code, in a row.
        failures: executions that failed with the same error, in a row.
        unreadable_calls: calls that could not be read, in a row.
        setbacks: steps in a row without progress, of any kind.
        has_succeeded: some code has run without an error.
    """

    def __init__(self) -> None:
        self.refusals = 0
        self.failures = 0
        self.unreadable_calls = 0
        self.setbacks = 0
        self.has_succeeded = False
        self._last_code = ""
        self._has_last_failed = False
        self._last_error: tuple[str, str] | None = None

    def refuse_repeat(self, code: str) -> str | None:
        """Return a message for the model if this code is a repeat, which is not run; else None."""
        self.unreadable_calls = 0
        if _normalize(code) != self._last_code:
            self.refusals = 0
            return None
        self.refusals += 1
        self.setbacks += 1
        advice = _ADVICE_AFTER_FAILURE if self._has_last_failed else _ADVICE_AFTER_SUCCESS
        return _REPEATED_CODE.format(advice=advice)

    def record_unreadable_call(self) -> None:
        """Count a call that could not be read."""
        self.unreadable_calls += 1
        self.setbacks += 1

    def record_setback(self) -> None:
        """Count a call that could be read, but not carried out."""
        self.setbacks += 1

    def record_run(self, code: str, finished: values.Finished, error: values.Error | None) -> None:
        """Record how code ended."""
        # The same code may run again if it did not run, or if its kernel is lost.
        may_run_again = finished.kernel_lost or finished.ending is values.Ending.REFUSED
        self._last_code = "" if may_run_again else _normalize(code)
        self._has_last_failed = finished.ending not in (values.Ending.OK, values.Ending.BACKGROUND)
        if not self._has_last_failed:
            self.has_succeeded = True
            self.failures, self.setbacks, self._last_error = 0, 0, None
            return
        failure = (error.name, error.message) if error else (finished.ending.value, "")
        self.failures = self.failures + 1 if failure == self._last_error else 1
        self._last_error = failure
        self.setbacks += 1

    def record_declined(self) -> None:
        """Record that code was not allowed to run, which does not count as a failure."""
        self._last_code = ""

    @property
    def last_failure(self) -> str:
        """Return the last error in a few words."""
        name, message = self._last_error or ("", "")
        return f"{name}: {message[:200]}" if message else name


def _question_key(request: tools.AskPerson) -> str:
    """Normalise a question, so that trivial changes do not make it a new question."""
    return " ".join(request.question.casefold().split()).rstrip("?. ")


def _normalize(code: str) -> str:
    """Normalise code: drop blank lines and comments on lines of their own."""
    lines = (line.rstrip() for line in code.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


class ToolRunner:
    """Runs tool calls, one after the other.

    Args:
        can_see_images: whether the model is shown pictures.
        offered_tools: the tools that the model may call.
        approve: see `loops.TurnSpec`.
        propose_note: see `loops.TurnSpec`.
    """

    def __init__(
        self,
        environment: ports.Environment,
        emit: events.Emit,
        *,
        repetition_detector: RepetitionDetector,
        can_see_images: bool,
        offered_tools: Sequence[chat_messages.Tool],
        approve: ports.RequestApproval | None = None,
        propose_note: ports.ProposeNote | None = None,
    ) -> None:
        self._environment = environment
        self._emit = emit
        self._repetition_detector = repetition_detector
        self._can_see_images = can_see_images
        self._offered_tools = offered_tools
        self._approve = approve
        self._answers: dict[str, str] = {}
        """Results of questions, each of which is asked once."""
        self._propose_note = propose_note
        self._screen: output_screens.Screen | None = None
        self.has_nothing_to_report = False
        """The model ended a scheduled run without a message to people."""

    async def run_call(self, call: chat_messages.Call) -> tuple[str, _Pictures]:
        """Run a call; return its result as text and pictures for the model."""
        request = tools.parse_call(call, self._offered_tools)
        try:
            match request:
                case tools.RunCode(code, seconds):
                    return await self._run_code(code, seconds)
                case tools.ViewImage(name):
                    return await self._view_image(name)
                case tools.AskPerson():
                    return await self._ask_person(request), ()
                case tools.ProposeNote(text) if self._propose_note is not None:
                    return await self._propose_note(text), ()
                case tools.ProposeSchedule(text):
                    return f"[{await self._environment.propose_schedule(text)}]", ()
                case tools.NothingToReport():
                    self.has_nothing_to_report = True
                    return _NOTHING_TO_REPORT, ()
                case tools.UnreadableCall(sentence):
                    self._repetition_detector.record_unreadable_call()
                    return sentence, ()
        except errors.StoreError:
            raise
        except errors.BotError as error:
            self._repetition_detector.record_setback()
            return f"[This could not be done: {error}]", ()
        raise AssertionError("unreachable")

    def describe_unfinished(self) -> chat_messages.Note:
        """Return the result of a call that was stopped, with the output of its code so far."""
        if self._screen is None:
            return NOT_RUN
        stopped = values.Finished(values.Ending.STOPPED, 0.0, "It was stopped before its end.")
        return chat_messages.Note(
            observations.describe_execution(self._screen.outputs, stopped, MAX_OUTPUT_CHARACTERS)
        )

    async def _run_code(self, code: str, seconds: float | None) -> tuple[str, _Pictures]:
        if refusal := self._repetition_detector.refuse_repeat(code):
            return refusal, ()
        screen = output_screens.Screen()
        approved_code = code
        decline_note: chat_messages.Note | None = None
        try:
            if self._approve is not None:
                approved_code = await self._approve(code)
            self._screen = screen
            finished = await self._environment.run(approved_code, show=screen.show, seconds=seconds)
        except errors.StoreError:
            raise
        except ports.NotApprovedError as error:
            finished = self._refuse_code(error)
            decline_note = error.model_note
        except errors.BotError as error:
            finished = self._refuse_code(error)
        if decline_note is not None:
            self._repetition_detector.record_declined()
            return decline_note.text, ()
        outputs = screen.outputs
        self._repetition_detector.record_run(code, finished, observations.find_error(outputs))
        pictures = await self._pictures_for_model(outputs, finished)
        self._screen = None
        text = observations.describe_execution(outputs, finished, MAX_OUTPUT_CHARACTERS)
        return (
            text if approved_code == code else f"{_CODE_EDITED.format(code=approved_code)}\n{text}",
            pictures,
        )

    async def _ask_person(self, request: tools.AskPerson) -> str:
        """Ask the person; a repeated question gets its earlier answer."""
        key = _question_key(request)
        if key in self._answers:
            return _ASKED_BEFORE.format(result=self._answers[key])
        if len(self._answers) >= _MAX_QUESTIONS:
            return _TOO_MANY_QUESTIONS
        try:
            answer = await self._environment.ask_person(request.question, request.choices)
            result = _PERSON_ANSWERED.format(answer=answer.strip() or "(nothing)")
        except errors.StoreError:
            raise
        except errors.BotError as error:
            result = _NO_ANSWER.format(error=error)
        self._answers[key] = result
        return result

    def _refuse_code(self, error: errors.BotError) -> values.Finished:
        """Show the person why code does not run, and return that as its ending."""
        self._emit(events.NoticeShown(str(error)))
        return values.Finished(values.Ending.REFUSED, 0.0, str(error))

    async def _pictures_for_model(
        self, outputs: tuple[output_screens.VisibleOutput, ...], finished: values.Finished
    ) -> _Pictures:
        """Return the pictures of an execution that the model may see."""
        contents = (
            picture_selection.find_pictures(outputs, picture_selection.MAX_PICTURES_PER_EXECUTION)
            if self._can_see_images
            else ()
        )
        pictures = [picture_selection.accept_unscaled_picture(content) for content in contents]
        large_contents = [
            content for content, small in zip(contents, pictures, strict=True) if small is None
        ]
        if large_contents and not finished.kernel_lost:
            try:
                scaled_pictures = iter(await self._environment.scale_pictures(large_contents))
            except errors.StoreError:
                raise
            except errors.BotError as error:
                # The kernel may be lost since. The model must get the output all the same.
                _log.info("pictures could not be scaled", exc_info=error)
                return tuple(filter(None, pictures))
            pictures = [small or next(scaled_pictures, None) for small in pictures]
        return tuple(filter(None, pictures))

    async def _view_image(self, name: str) -> tuple[str, _Pictures]:
        picture = await self._environment.view(name)
        if picture is None:
            return _NO_PICTURE.format(name=name), ()
        return _PICTURE_SHOWN.format(name=name), (picture,)
