"""Run the tool calls of one reply, and detect a model that repeats itself.

Three kinds of repetition count: the same code with nothing else run in between, different code with
the same error, and calls that cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from interpreter_bot import errors, events, values
from interpreter_bot.agent import chat_messages, observations, picture_selection, ports, tools
from interpreter_bot.text import output_screens

OUTPUT_CHARACTERS: Final = 8000
"""Of one execution's printed output, as much is shown to the model: from the start and the end."""
# As much of a file does the model read at a time.
_FILE_BYTES: Final = 32_768
REFUSAL: Final = "[Not run again: "
"""The beginning of a refusal of `refusal_of`."""
_REPEATED: Final = (
    REFUSAL + "this is exactly the code that ran just before, and its output is above. {advice}]"
)
_AFTER_SUCCESS: Final = "It worked. Answer the person now, or run different code."
_AFTER_FAILURE: Final = "It failed. Take another way, with other functions."

NOT_RUN: Final = chat_messages.Note("[This was not run: the turn was over before.]")

_EDITED: Final = (
    "[The person changed the code before it ran. What ran is:]\n"
    "```python\n{code}\n```\n[It showed:]"
)

_NOTHING_TO_REPORT: Final = "[Nobody is told anything.]"
_VIEWED: Final = "[You are shown the picture {name!r}.]"
_NO_PICTURE: Final = (
    "[{name!r} is no picture that can be shown to you: that takes a PNG, JPEG, GIF or WebP of a "
    "sensible size. Convert it with run_code.]"
)

_MAX_QUESTIONS: Final = 3
_ANSWERED: Final = "[The person answered:] {answer}"
_ASKED_BEFORE: Final = "[You asked this before.] {result}"
_ENOUGH_ASKED: Final = (
    "[Not asked: the person has answered enough questions for one turn. Decide yourself, and say "
    "what you assumed.]"
)
_UNANSWERED: Final = (
    "[There is no answer: {error} Decide yourself, and say in your answer what you assumed.]"
)

_Pictures: TypeAlias = tuple[chat_messages.Picture, ...]


class RepetitionDetector:
    """Detects repeated code and errors in one turn.

    Attributes:
        refusals: identical repeats refused, in a row.
        failures: executions that failed in the same way, in a row.
        misreadings: calls that could not be read, in a row.
        setbacks: steps in a row without progress, of any kind.
        has_succeeded: some code has run without an error.
    """

    def __init__(self) -> None:
        self.refusals = 0
        self.failures = 0
        self.misreadings = 0
        self.setbacks = 0
        self.has_succeeded = False
        self._last_code = ""
        self._last_failed = False
        self._last_error: tuple[str, str] | None = None

    def refusal_of(self, code: str) -> str | None:
        """Return the message to the model why this code is not run; None if it is."""
        self.misreadings = 0
        if _normalize(code) != self._last_code:
            self.refusals = 0
            return None
        self.refusals += 1
        self.setbacks += 1
        advice = _AFTER_FAILURE if self._last_failed else _AFTER_SUCCESS
        return _REPEATED.format(advice=advice)

    def note_misread(self) -> None:
        """Count a call that could not be read."""
        self.misreadings += 1
        self.setbacks += 1

    def note_run(self, code: str, finished: values.Finished, error: values.Error | None) -> None:
        """Record how code ended."""
        # Code that did not run, or ran in a kernel that is gone, may well be run again.
        is_gone = finished.kernel_lost or finished.ending is values.Ending.REFUSED
        self._last_code = "" if is_gone else _normalize(code)
        self._last_failed = finished.ending not in (values.Ending.OK, values.Ending.BACKGROUND)
        if not self._last_failed:
            self.has_succeeded = True
            self.failures, self.setbacks, self._last_error = 0, 0, None
            return
        failure = (error.name, error.message) if error else (finished.ending.value, "")
        self.failures = self.failures + 1 if failure == self._last_error else 1
        self._last_error = failure
        self.setbacks += 1

    def note_declined(self) -> None:
        """Record that code was not allowed to run, which is no failure of it."""
        self._last_code = ""

    @property
    def last_failure(self) -> str:
        """Return the last error in a few words."""
        name, message = self._last_error or ("", "")
        return f"{name}: {message[:200]}" if message else name


def answers_of_person(entries: Sequence[chat_messages.Message]) -> dict[str, str]:
    """Return what a turn that goes on asked its person, and what the model was told then."""
    asked: dict[str, str] = {}
    answers: dict[str, str] = {}
    for entry in entries:
        match entry:
            case chat_messages.UserMessage(is_from_bot=False):
                answers.clear()
            case chat_messages.AssistantMessage(calls=calls):
                requests = {call.id: tools.read(call) for call in calls}
                asked = {
                    call_id: _question_key(request)
                    for call_id, request in requests.items()
                    if isinstance(request, tools.AskPerson)
                }
            case chat_messages.ToolResult(call_id, text) if call_id in asked:
                answers.setdefault(asked[call_id], text)
    return answers


def _question_key(request: tools.AskPerson) -> str:
    """Return what two questions have in common that are the same for a person."""
    return " ".join(request.question.casefold().split()).rstrip("?. ")


def _normalize(code: str) -> str:
    """Normalise code: drop blank lines and comments on lines of their own."""
    lines = (line.rstrip() for line in code.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


class ToolRunner:
    """Runs tool calls, one after the other.

    Args:
        can_see_images: whether the model is shown pictures.
        offered: the tools that there are.
        approve: see `loops.TurnSpec`.
        tool_index: see there.
        answers: of the person, by question; a question is asked once.
        propose_note: see there.
    """

    def __init__(
        self,
        environment: ports.Environment,
        emit: events.Emit,
        *,
        repetition_detector: RepetitionDetector,
        can_see_images: bool,
        offered: Sequence[chat_messages.Tool],
        approve: ports.Approve | None = None,
        tool_index: ports.ToolIndex | None = None,
        answers: dict[str, str] | None = None,
        propose_note: ports.ProposeNote | None = None,
    ) -> None:
        self._environment = environment
        self._emit = emit
        self._guard = repetition_detector
        self._can_see_images = can_see_images
        self._offered = offered
        self._approve = approve
        self._index = tool_index
        self._answers = answers or {}
        self._propose_note = propose_note
        self._screen: output_screens.Screen | None = None
        self.has_nothing_to_report = False
        """The model ends a scheduled run without a word."""

    async def answer(self, call: chat_messages.Call) -> tuple[str, _Pictures]:
        """Run a call; return its result for the model, and pictures."""
        request = tools.read(call, self._offered)
        try:
            match request:
                case tools.RunCode(code, seconds):
                    return await self._run(code, seconds)
                case tools.ListFiles():
                    return observations.list_files(await self._environment.list_files()), ()
                case tools.ReadFile(name, start):
                    return await self._read(name, start), ()
                case tools.ViewImage(name):
                    return await self._view(name)
                case tools.FindTools(words) if self._index is not None:
                    return self._index.find(words), ()
                case tools.DescribeTool(name) if self._index is not None:
                    return self._index.describe(name), ()
                case tools.AskPerson():
                    return await self._ask(request), ()
                case tools.ProposeNote(text) if self._propose_note is not None:
                    return await self._propose_note(text), ()
                case tools.ProposeSchedule(text):
                    return f"[{await self._environment.propose_schedule(text)}]", ()
                case tools.NothingToReport():
                    self.has_nothing_to_report = True
                    return _NOTHING_TO_REPORT, ()
                case tools.Misread(sentence):
                    self._guard.note_misread()
                    return sentence, ()
        except errors.StoreError:
            raise
        except errors.BotError as error:
            self._guard.note_misread()
            return f"[This could not be done: {error}]", ()
        raise AssertionError("unreachable")

    def unfinished(self) -> chat_messages.Note:
        """Return the output of code that was stopped while it ran."""
        if self._screen is None:
            return NOT_RUN
        stopped = values.Finished(values.Ending.STOPPED, 0.0, "It was stopped before its end.")
        return chat_messages.Note(
            observations.describe_execution(self._screen.outputs, stopped, OUTPUT_CHARACTERS)
        )

    async def _run(self, code: str, seconds: float | None) -> tuple[str, _Pictures]:
        if refusal := self._guard.refusal_of(code):
            return refusal, ()
        screen = self._screen = output_screens.Screen()
        approved_code = code
        remark: chat_messages.Note | None = None
        try:
            if self._approve is not None:
                approved_code = await self._approve(code)
            finished = await self._environment.run(approved_code, show=screen.show, seconds=seconds)
        except errors.StoreError:
            raise
        except ports.NotApprovedError as error:
            finished = self._refused(error)
            remark = error.model_note
        except errors.BotError as error:
            finished = self._refused(error)
        self._screen = None
        if remark is not None:
            self._guard.note_declined()
            return remark.text, ()
        outputs = screen.outputs
        self._guard.note_run(code, finished, observations.find_error(outputs))
        pictures = await self._pictures_for_model(outputs, finished)
        text = observations.describe_execution(outputs, finished, OUTPUT_CHARACTERS)
        return (
            text if approved_code == code else f"{_EDITED.format(code=approved_code)}\n{text}",
            pictures,
        )

    async def _ask(self, request: tools.AskPerson) -> str:
        """Ask the person; what was asked before has the answer that it had then."""
        key = _question_key(request)
        if key in self._answers:
            return _ASKED_BEFORE.format(result=self._answers[key])
        if len(self._answers) >= _MAX_QUESTIONS:
            return _ENOUGH_ASKED
        try:
            answer = await self._environment.ask_person(request.question, request.choices)
            result = _ANSWERED.format(answer=answer.strip() or "(nothing)")
        except errors.StoreError:
            raise
        except errors.BotError as error:
            result = _UNANSWERED.format(error=error)
        self._answers[key] = result
        return result

    def _refused(self, error: errors.BotError) -> values.Finished:
        """Return the end of code that did not run; the person is told why."""
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
        pictures = [picture_selection.accept_unscaled(content) for content in contents]
        large = [
            content for content, small in zip(contents, pictures, strict=True) if small is None
        ]
        if large and not finished.kernel_lost:
            scaled = iter(await self._environment.scale_pictures(large))
            pictures = [small or next(scaled, None) for small in pictures]
        return tuple(filter(None, pictures))

    async def _view(self, name: str) -> tuple[str, _Pictures]:
        picture = await self._environment.view(name)
        if picture is None:
            return _NO_PICTURE.format(name=name), ()
        return _VIEWED.format(name=name), (picture,)

    async def _read(self, name: str, start: int) -> str:
        data = await self._environment.read_file(name, start=start, max_bytes=_FILE_BYTES)
        return observations.describe_content(data[:_FILE_BYTES], start=start, max_bytes=_FILE_BYTES)
