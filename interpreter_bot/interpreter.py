"""The bot as a library: one conversation, with a Python of its own, for programs and notebooks.

    from interpreter_bot import Interpreter

    async with Interpreter(model="gpt-5", files=["sales.csv"]) as session:
        answer = await session.ask("Plot units by region")

It does what the command `ask` does. The conversation ends with the `async with` block.
`SyncInterpreter` is the same without `await`. Importing this module is fast, as the rest of the bot
is imported on opening.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import pathlib
import threading
import uuid
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
)

from interpreter_bot import errors, events, values
from interpreter_bot.platforms import program_turns
from interpreter_bot.platforms.console import code_sources, question_tasks
from interpreter_bot.platforms.program_turns import Answer
from interpreter_bot.sessions import requests
from interpreter_bot.wording import library_words, terminal_words

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_service

_log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")
Path: TypeAlias = str | os.PathLike[str]

AskPerson: TypeAlias = Callable[[events.Question], str | Awaitable[str | None] | None]
"""Answers questions of a turn, such as `input()` in code; None declines a question."""

_PLATFORM: Final = "library"
_PERSON_ID: Final = "you"
_SERVER_VARIABLES: Final = ("API_KEY", "BASE_URL")


class AnswerError(errors.BotError):
    """The question was not answered.

    Attributes:
        answer: the incomplete answer.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.sentence)
        self.answer = answer


@dataclasses.dataclass(kw_only=True)
class _Options:
    """Options of a session.

    Attributes:
        model: its name; empty for the first one of the settings or the environment.
        api_key: of the model's server; empty takes `ANTHROPIC_API_KEY` from the environment for
            models named `claude…`, else `OPENAI_API_KEY`.
        base_url: address of that server; empty takes `OPENAI_BASE_URL` or `ANTHROPIC_BASE_URL`.
        files: to be put into /mnt/data at the beginning.
        settings_file: by default `interpreter-bot.toml` in the working directory.
        approval: whether a person is asked before the model's code runs.
        ask_person: answers questions of a turn. Without it, every question is declined.
        unsafe_no_sandbox: run the code with your own rights.
    """

    model: str = ""
    api_key: str = dataclasses.field(default="", repr=False)
    base_url: str = ""
    files: Sequence[Path] = ()
    settings_file: Path | None = None
    approval: Literal["never", "plan", "every"] = "never"
    ask_person: AskPerson | None = None
    unsafe_no_sandbox: bool = False


class Interpreter(_Options):
    """One conversation. Failures are raised as an `InterpreterError` with a sentence."""

    _opened_service: session_service.SessionService | None = None
    _exit_stack: contextlib.AsyncExitStack
    _key = values.SessionKey(_PLATFORM)

    @property
    def _service(self) -> session_service.SessionService:
        if self._opened_service is None:
            raise errors.BotError(library_words.NOT_OPEN)
        return self._opened_service

    async def __aenter__(self) -> Self:
        """Open the conversation.

        Raises:
            InterpreterError: the conversation cannot be opened; the sentence says why.
        """
        self._key = values.SessionKey(_PLATFORM, thread=uuid.uuid4().hex)
        async with contextlib.AsyncExitStack() as stack:
            # In a thread, as it imports many modules.
            service_context = await asyncio.to_thread(self._prepare_service)
            stack.callback(setattr, self, "_opened_service", None)
            self._opened_service = await stack.enter_async_context(service_context)
            if self.model:
                self._service.queries.check_model(self.model)
            for path in self.files:
                await self.put(path)
            self._exit_stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop what runs, and delete variables and files."""
        try:
            await self.stop()
        finally:
            await self._exit_stack.aclose()

    async def ask(self, text: str, *, files: Sequence[Path] = ()) -> Answer:
        """Ask the model, which may run code; `files` are put into /mnt/data first.

        Raises:
            AnswerError: the model could not answer; the sentence says why.
        """
        if not self._service.queries.models:
            raise errors.SettingsError(await self._describe_missing_model())
        return await self._run_turn(self._make_request(text, files=files))

    async def run(self, code: str) -> Answer:
        """Run code, without a model. An exception of the code is in the answer's `error`.

        Raises:
            AnswerError: the code could not be run; the sentence says why.
        """
        return await self._run_turn(self._make_request(code, is_code=True))

    async def stream(
        self, text: str = "", *, code: str = "", files: Sequence[Path] = ()
    ) -> AsyncGenerator[events.TurnEvent, None]:
        """Ask the model, or run code, and yield the turn's events (`interpreter_bot.events`).

        The last event is a `TurnEnded`. If the iteration is stopped earlier, the turn is stopped.
        """
        request = self._make_request(code or text, is_code=bool(code), files=files)
        failures: list[Exception] = []
        handle_questions = self._make_question_handler(failures)
        turn = program_turns.stream_events(self._service, request)
        async with contextlib.aclosing(turn):
            async for event in turn:
                if event is not None:
                    handle_questions(event)
                    yield event
        if failures:
            raise failures[0]

    async def put(self, path: Path, data: bytes | None = None) -> str:
        """Put a file into /mnt/data, or `data` under the name `path`; return its name there.

        Raises:
            InterpreterError: the file cannot be read, or is refused.
        """
        attachment = code_sources.make_attachment(pathlib.Path(path))
        if data is not None:
            attachment = requests.attachment(os.fspath(path), data)
        return await self._service.put_file(self._key, attachment)

    async def list_files(self) -> tuple[values.FileInfo, ...]:
        """Return the files in /mnt/data."""
        return await self._service.queries.files(self._key)

    async def read(self, name: str) -> bytes:
        """Return the content of a file in /mnt/data.

        Raises:
            InterpreterError: there is no such file.
        """
        async with self._service.queries.open_file(self._key, name) as (_, pieces):
            return b"".join([piece async for piece in pieces])

    async def save(self, name: str, directory: Path = ".") -> pathlib.Path:
        """Copy a file of /mnt/data into a directory of yours, under the last part of its name.

        Raises:
            InterpreterError: there is no such file, or the copy cannot be written.
        """
        path = pathlib.Path(directory, pathlib.PurePosixPath(name).name)
        async with self._service.queries.open_file(self._key, name) as (_, pieces):
            try:
                with await asyncio.to_thread(path.open, "wb") as file:
                    async for piece in pieces:
                        await asyncio.to_thread(file.write, piece)
            except OSError as error:
                raise errors.BotError(terminal_words.not_saved(path, error.strerror)) from error
        return path

    async def stop(self) -> bool:
        """Stop what runs; variables are kept. Return whether something ran."""
        return await self._service.stop(self._key)

    async def reset(self, *, files: bool = False) -> None:
        """Delete variables and the model's memory; with `files`, delete the files too."""
        await self._service.reset(self._key, files=files)

    async def _describe_missing_model(self) -> str:
        """Say how to choose a model, and why the demo model does not take its place."""
        from interpreter_bot.agent.llms.embedded import on_demand_model

        config = self._service.services.config
        demo_model_context = on_demand_model.OnDemandModel.open(config.local, config.paths.data)
        async with demo_model_context as demo_model:
            return f"{library_words.NO_MODEL} {demo_model.unavailable_reason}".rstrip()

    def _make_request(
        self, text: str, *, is_code: bool = False, files: Sequence[Path] = ()
    ) -> requests.Request:
        return requests.Request(
            key=self._key,
            person=requests.Person(_PERSON_ID),
            text=text,
            is_code=is_code,
            attachments=tuple(code_sources.make_attachment(pathlib.Path(path)) for path in files),
            id=uuid.uuid4().hex,
            model=self.model,
            approval=self.approval,
            is_attended=self.ask_person is not None,
        )

    def _make_question_handler(self, failures: list[Exception]) -> events.Emit:
        """Return a handler of events that passes their questions to the person.

        An exception of `ask_person` is added to `failures`, and stops the turn.
        """
        tasks = question_tasks.QuestionTasks(self._service.questions.answer)

        def pass_question(event: events.TurnEvent) -> None:
            if isinstance(event, events.QuestionAsked):
                answer = functools.partial(self._answer_question, event.question, failures)
                tasks.begin(event.question, answer)
            elif isinstance(event, events.QuestionClosed):
                tasks.end()

        return pass_question

    async def _run_turn(self, request: requests.Request) -> Answer:
        failures: list[Exception] = []
        handle_questions = self._make_question_handler(failures)
        answer = await program_turns.run_turn(self._service, request, handle_questions)
        if failures:
            raise failures[0]
        if answer.status in (values.TurnStatus.FAILED, values.TurnStatus.INTERRUPTED):
            raise AnswerError(answer)
        return answer

    async def _answer_question(
        self, question: events.Question, failures: list[Exception]
    ) -> events.Answer:
        try:
            text = self.ask_person(question) if self.ask_person is not None else None
            if isinstance(text, Awaitable):
                text = await text
            if not isinstance(text, str | None):
                raise TypeError(library_words.NO_TEXT)
        except Exception as error:
            # Without an answer, the turn would wait for minutes. Its caller gets the error.
            failures.append(error)
            await self._service.stop(self._key)
            return events.Unanswered(library_words.ASK_PERSON_FAILED)
        return program_turns.parse_answer(question, text)

    def _prepare_service(self) -> AbstractAsyncContextManager[session_service.SessionService]:
        """Read the settings, and prepare to open the conversations.

        Raises:
            InterpreterError: the settings are invalid, or the kernels' environment is missing.
        """
        from interpreter_bot import stored_credentials
        from interpreter_bot.app import bot_startup, process_startup
        from interpreter_bot.kernels.libraries import kernel_environment
        from interpreter_bot.sessions import model_setup

        file = None if self.settings_file is None else pathlib.Path(self.settings_file)
        config = process_startup.load_settings(file, is_sandboxed=not self.unsafe_no_sandbox)
        kernel_environment.python(config)
        if problem := kernel_environment.problem(config):
            _log.warning(problem)
        process_startup.forbid_inspection()
        stored = stored_credentials.StoredCredentials(config).load()
        environment: Mapping[str, str] = model_setup.add_stored_models(os.environ, stored)
        provider = "ANTHROPIC" if self.model.startswith("claude") else "OPENAI"
        server_variables = {"API_KEY": self.api_key, "BASE_URL": self.base_url}
        if any(server_variables.values()):
            config = config.model_copy(update={"models": ()})
        if not config.models:
            server_variables["MODEL"] = self.model
            provider_variables = {
                f"{provider}_{name}": value for name, value in server_variables.items() if value
            }
            environment = {**environment, **provider_variables}
            if self.model and not any(
                environment.get(f"{provider}_{name}") for name in _SERVER_VARIABLES
            ):
                raise errors.SettingsError(library_words.no_key(self.model, provider))
        return bot_startup.open_service(config.for_one_session(), environment, is_ephemeral=True)


def _make_blocking(
    method: Callable[Concatenate[Interpreter, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[SyncInterpreter, _P], _T]:
    """Return a method that runs a method of `Interpreter` and waits for its result."""

    def wait(self: SyncInterpreter, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._wait(method(self._session, *args, **kwargs))

    functools.update_wrapper(wait, method)
    return wait


class SyncInterpreter(_Options):
    """`Interpreter` without `await`, on an event loop in a thread, so it works in notebooks too.

    Ctrl-C stops the running code, and keeps variables. Use `with`, or `open` and `close`. While a
    call waits, call `stop` from another thread.
    """

    _opened_session: Interpreter | None = None
    _thread: threading.Thread
    _loop: asyncio.AbstractEventLoop
    _end_event: asyncio.Event

    def open(self) -> Self:
        names = [field.name for field in dataclasses.fields(self)]
        session = Interpreter(**{name: getattr(self, name) for name in names})
        loop_started = threading.Event()
        run_loop = functools.partial(asyncio.run, self._run_loop(loop_started))
        self._thread = threading.Thread(target=run_loop, name="interpreter-bot", daemon=True)
        self._thread.start()
        loop_started.wait()
        try:
            self._wait(session.__aenter__())
        except BaseException:
            self._end_loop()
            raise
        self._opened_session = session
        return self

    def close(self) -> None:
        session, self._opened_session = self._session, None
        try:
            self._wait(session.__aexit__())
        finally:
            self._end_loop()

    @property
    def _session(self) -> Interpreter:
        if self._opened_session is None:
            raise errors.BotError(library_words.NOT_OPEN)
        return self._opened_session

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    ask = _make_blocking(Interpreter.ask)
    run = _make_blocking(Interpreter.run)
    put = _make_blocking(Interpreter.put)
    list_files = _make_blocking(Interpreter.list_files)
    read = _make_blocking(Interpreter.read)
    save = _make_blocking(Interpreter.save)
    stop = _make_blocking(Interpreter.stop)
    reset = _make_blocking(Interpreter.reset)

    def stream(
        self, text: str = "", *, code: str = "", files: Sequence[Path] = ()
    ) -> Iterator[events.TurnEvent]:
        session = self._session
        turn = session.stream(text, code=code, files=files)

        async def receive() -> events.TurnEvent | None:
            return await anext(turn, None)

        async def close() -> None:
            await turn.aclose()

        try:
            while (event := self._wait(receive())) is not None:
                yield event
        finally:
            if self._opened_session is session:
                self._wait(close())

    async def _run_loop(self, loop_started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._end_event = asyncio.Event()
        loop_started.set()
        await self._end_event.wait()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._end_event.set)
        self._thread.join()

    def _wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and wait for its result; an interruption cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
