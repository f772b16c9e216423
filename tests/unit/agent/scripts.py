"""Turns with a scripted environment, a scripted model server and an observer of events."""

import asyncio
import contextlib
import dataclasses

import pydantic

from interpreter_bot import errors, events, settings, values
from interpreter_bot.agent import budgets, chat_messages, loops, transcripts
from interpreter_bot.agent.llms import catalogues, retries
from tests.fakes import anthropic_server, openai_server, replies

OK = values.Finished(values.Ending.OK, 0.1)
FAILED = values.Finished(values.Ending.ERROR, 0.1)
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (640).to_bytes(4) + (480).to_bytes(4) + b"rest"

JPEG = b"\xff\xd8\xff\xe0rest"


def print_step(text):
    return [values.Text("stdout", text)], OK


def error_step(name="NameError", message="name 'x' is not defined"):
    error = values.Error(name, message, f"Traceback\n{name}: {message}")
    return [error], FAILED


class Workbench:
    """An environment that plays back steps of (outputs, finished); it raises if none is left."""

    def __init__(self, *script, files=None):
        self.script = list(script)
        self.executed_codes = []
        self.interruption_count = 0
        self.scaled_pictures = []
        self.files = files or {}
        self.emit = events.discard

    async def run(self, code, *, show, seconds=None):
        self.executed_codes.append(code)
        if not self.script:
            raise AssertionError(f"the workbench's script has run out at {code!r}")
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        outputs, finished = step
        self.emit(events.CodeStarted(len(self.executed_codes) - 1, code))
        for output in outputs:
            self.emit(events.OutputShown(len(self.executed_codes) - 1, output))
            show(output)
        if finished is None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.interruption_count += 1
                raise
        self.emit(events.CodeFinished(len(self.executed_codes) - 1, finished))
        return finished

    async def list_files(self):
        return [values.FileInfo(name, len(data), 0) for name, data in self.files.items()]

    async def scale_pictures(self, contents):
        self.scaled_pictures += contents
        return [chat_messages.Picture("image/jpeg", JPEG) for _ in contents]

    async def view(self, name):
        if name not in self.files:
            raise errors.FileMissingError
        data = self.files[name]
        return chat_messages.Picture("image/png", data, name) if data.startswith(b"\x89") else None


class Observer:
    """Records all events, in order."""

    def __init__(self):
        self.events = []
        self.arrival = asyncio.Event()

    def emit(self, event):
        self.events.append(replies.describe_event(event))
        self.arrival.set()

    def contents(self, kind):
        return [content for event_kind, content in self.events if event_kind == kind]

    @property
    def all_text(self):
        return "".join(self.contents("text"))

    async def wait_for(self, kind):
        async with asyncio.timeout(30):
            while not self.contents(kind):
                self.arrival.clear()
                await self.arrival.wait()


@dataclasses.dataclass
class ScriptedTurn:
    """A turn and everything that it uses."""

    server: openai_server.Server
    catalogue: catalogues.Catalogue
    observer: Observer
    environment: Workbench
    transcript: transcripts.Transcript
    model: settings.Model
    limits: settings.TurnLimits
    waits: list
    cache_key: str = ""
    system: str = "You are a test."

    async def run(self, *, stop=None, allowance=None, approve=None):
        budget = budgets.Budget(self.limits, self.model, allowance=allowance)
        spec = loops.TurnSpec(
            llm=await self.catalogue.open_llm(),
            model=self.model,
            limits=self.limits,
            system=self.system,
            transcript=self.transcript,
            environment=self.environment,
            emit=self.observer.emit,
            budget=budget,
            cache_key=self.cache_key,
            approve=approve,
        )
        return await loops.run(spec, stop=stop)


@contextlib.asynccontextmanager
async def open_turn(
    script,
    *steps,
    question="How many?",
    files=None,
    turn=None,
    server_options=None,
    max_retries=retries.MAX_RETRIES,
    **model,
):
    """Set up a turn against a scripted server that speaks the real protocol.

    Args:
        steps: results of the executions, or exceptions.
        server_options: options of `openai_server.Server`.
    """
    waits = []

    async def sleep(seconds):
        waits.append(seconds)
        await asyncio.sleep(0)

    model = {"name": "scripted", **model}
    server_options = {"models": (model["name"],), **(server_options or {})}
    is_anthropic = model.get("protocol") == "anthropic"
    fake_server = anthropic_server if is_anthropic else openai_server
    async with fake_server.Server(script, **server_options) as server:
        model = settings.Model(**{"base_url": server.base_url, **model})
        patience = settings.Patience(silence_seconds=5)
        keys = {model.api_key_variable: pydantic.SecretStr(server.api_key)}
        catalogue = catalogues.Catalogue(
            [model], keys=keys, patience=patience, max_retries=max_retries, sleep=sleep
        )
        transcript = transcripts.Transcript()
        transcript.add_user_message(question)
        observer, environment = Observer(), Workbench(*steps, files=files)
        environment.emit = observer.emit
        try:
            yield ScriptedTurn(
                server,
                catalogue,
                observer,
                environment,
                transcript,
                model,
                settings.TurnLimits(**(turn or {})),
                waits,
            )
        finally:
            await catalogue.close()
