"""The bot as a library, with real kernels and a scripted model."""

import asyncio
import contextlib
import gc
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from interpreter_bot import (
    AnswerError,
    Interpreter,
    InterpreterError,
    SyncInterpreter,
    events,
    values,
)
from tests.fakes import openai_server

pytestmark = pytest.mark.kernel

IMPORTED = """
import sys
import interpreter_bot
before = {name for name in sys.modules if name.startswith("interpreter_bot.")}
from interpreter_bot import Answer, AnswerError, Interpreter, InterpreterError, SyncInterpreter
heavy = {"aiohttp", "openai", "pydantic", "sqlalchemy"} & sys.modules.keys()
print(before, {*interpreter_bot.__all__} <= vars(interpreter_bot).keys() | {*dir()}, heavy)
"""


@pytest.fixture(autouse=True)
def _place(tmp_path, short_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("INTERPRETER_BOT_KERNELS__PRELOAD", "[]")
    monkeypatch.setenv("INTERPRETER_BOT_PATHS__DATA", str(tmp_path / "data"))
    monkeypatch.setenv("INTERPRETER_BOT_PATHS__RUNTIME", str(short_path))


def _scripted(server, **options):
    about = {"model": "scripted", "api_key": server.api_key, "base_url": server.base_url}
    return about | options


async def test_a_model_answers_with_code_and_files(tmp_path):
    (tmp_path / "sales.csv").write_text("a\n1\n")
    script = [
        openai_server.code("text = open('sales.csv').read(); open('new.txt', 'w').write(text)"),
        openai_server.text("I wrote `new.txt`."),
        openai_server.text("Yes."),
    ]
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(openai_server.Server(script))
        async with Interpreter(**_scripted(server, files=["sales.csv"])) as session:
            answer = await session.ask("Copy it")
            assert answer.text == "I wrote `new.txt`."
            assert "new.txt" in answer.code[0]
            assert [file.name for file in answer.files] == ["new.txt"]
            assert answer.usage.steps == 2
            assert await session.read("new.txt") == b"a\n1\n"
            (tmp_path / "out").mkdir()
            assert await session.save("new.txt", "out") == pathlib.Path("out/new.txt")
            assert (tmp_path / "out/new.txt").read_bytes() == b"a\n1\n"
            assert (await session.run("text")).text == "'a\\n1\\n'"
            assert (await session.ask("Sure?", files=["sales.csv"])).text == "Yes."
    assert not list((tmp_path / "data/spool").iterdir())


async def test_code_runs_and_says_how_it_ended():
    async with Interpreter() as session:
        shown = await session.run("x = 6\nprint('hi')\nx * 7")
        assert (shown.text, shown.ending) == ("hi\n42", values.Ending.OK)
        failed = await session.run("1 / 0")
        assert failed.error.name == "ZeroDivisionError"
        assert failed.ending is values.Ending.ERROR
        assert await session.put("note.txt", b"abc") == "note.txt"
        assert [info.name for info in await session.list_files()] == ["note.txt"]
        with pytest.raises(InterpreterError, match="There is no such"):
            await session.read("../../etc/passwd")
        with pytest.raises(InterpreterError, match="nothing"):
            await session.put("nothing.csv")
        await session.reset(files=True)
        assert (await session.run("'x' in globals()")).text == "False"
        assert await session.list_files() == ()


async def test_a_copy_that_cannot_be_written_is_a_sentence():
    async with Interpreter() as session:
        await session.put("a.txt", b"a")
        with pytest.raises(InterpreterError, match=r"nowhere/a\.txt could not be saved: No such"):
            await session.save("a.txt", "nowhere")


async def test_whoever_stops_reading_stops_the_turn():
    async with Interpreter() as session:
        code = "import time\nn = 0\nwhile True: n += 1; print(n, flush=True); time.sleep(0.01)"
        async for event in session.stream(code=code):
            if isinstance(event, events.OutputShown):
                break
        assert int((await session.run("n")).text) > 0
        running = asyncio.create_task(session.run(code))
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert int((await session.run("n")).text) > 0
        *_, last = [event async for event in session.stream(code="1")]
        assert isinstance(last, events.TurnEnded)


async def test_questions_are_answered_or_declined():
    asked = []

    async def answer(question):
        asked.append(question)
        return "yes" if isinstance(question, events.ApprovalQuestion) else "Anna"

    script = [openai_server.code("name = input('Who? ')"), openai_server.text("Done.")]
    async with openai_server.Server(script) as server:
        options = _scripted(server, approval="every", ask_person=answer)
        async with Interpreter(**options) as session:
            await session.ask("Ask me")
            assert (await session.run("name")).text == "'Anna'"
    assert [type(question) for question in asked] == [events.ApprovalQuestion, events.InputQuestion]
    async with Interpreter(ask_person=lambda _: None) as session:
        assert "declined" in (await session.run("input()")).sentence
    async with Interpreter() as session:
        assert (await session.run("input()")).sentence


async def test_a_program_that_fails_to_answer_gets_its_own_error():
    def fail(question):
        raise LookupError(question.prompt)

    for ask_person, error in ((fail, LookupError), (lambda _: 5, TypeError)):
        async with Interpreter(ask_person=ask_person) as session:
            with pytest.raises(error):
                await session.run("input('Who? ')")
            with pytest.raises(error):
                [event async for event in session.stream(code="input('Who? ')")]
            assert (await session.run("print(1)")).text == "1\n"


async def test_what_is_missing_is_said_in_a_sentence(monkeypatch, tmp_path):
    async with Interpreter() as session:
        with pytest.raises(InterpreterError, match=r"no model to ask.*local\.enabled"):
            await session.ask("x")
    monkeypatch.setenv("INTERPRETER_BOT_LOCAL__ENABLED", "true")
    monkeypatch.setenv("INTERPRETER_BOT_LOCAL__MODEL_PATH", str(tmp_path / "none.gguf"))
    async with Interpreter() as session:
        with pytest.raises(InterpreterError, match=r"no model to ask.*(\[local\]|none.gguf)"):
            await session.ask("x")
    monkeypatch.setenv("INTERPRETER_BOT_LOCAL__ENABLED", "false")
    for model, variable in (("gpt-5", "OPENAI_API_KEY"), ("claude-x", "ANTHROPIC_API_KEY")):
        with pytest.raises(InterpreterError, match=f"no key for {model}.*{variable}"):
            await Interpreter(model=model).__aenter__()
    with pytest.raises(InterpreterError, match="not open"):
        await Interpreter().run("1")
    with pytest.raises(InterpreterError, match="not open"):
        SyncInterpreter().run("1")
    script = [openai_server.failure(401, "no")]
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(openai_server.Server(script))
        async with Interpreter(**_scripted(server)) as session:
            with pytest.raises(AnswerError, match="key") as failure:
                await session.ask("x")
            assert failure.value.answer.status is values.TurnStatus.FAILED
    (tmp_path / "bad.toml").write_text("[limits]\nnothing = 1\n")
    with pytest.raises(InterpreterError, match="nothing"):
        await Interpreter(settings_file="bad.toml").__aenter__()
    monkeypatch.setenv("INTERPRETER_BOT_SANDBOX__ENABLED", "false")
    with pytest.raises(InterpreterError, match=r"no setting sandbox\.enabled"):
        await Interpreter().__aenter__()


async def test_a_session_leaves_the_process_as_it_was():
    was_frozen, directory, threads = gc.get_freeze_count(), tempfile.gettempdir(), set()
    async with Interpreter() as first, Interpreter() as second:
        await asyncio.gather(first.run("x = 1"), second.run("x = 2"))
        found = await asyncio.gather(first.run("x"), second.run("x"))
        assert [answer.text for answer in found] == ["1", "2"]
        assert tempfile.gettempdir() == directory
        threads = {*threading.enumerate()}
    assert gc.isenabled()
    assert gc.get_freeze_count() == was_frozen
    assert tempfile.gettempdir() == directory
    assert {*threading.enumerate()} <= threads


async def test_without_await_it_works_where_a_loop_runs():
    with SyncInterpreter() as session:
        assert session.run("6 * 7").text == "42"
        kinds = [type(event) for event in session.stream(code="print(1)")]
        assert kinds[-1] is events.TurnEnded
        for event in session.stream(code="import time\nprint(1, flush=True)\ntime.sleep(600)"):
            if isinstance(event, events.OutputShown):
                break
        assert session.put("a.txt", b"x") == "a.txt"
        assert session.read("a.txt") == b"x"
        assert [info.name for info in session.list_files()] == ["a.txt"]
        threading.Timer(1.0, session.stop).start()
        assert session.run("time.sleep(600)").ending is values.Ending.STOPPED
        session.reset()
    assert threading.current_thread() is threading.main_thread()
    assert "interpreter-bot" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.filterwarnings("error")
def test_closing_stops_what_runs_at_once():
    session, answers = SyncInterpreter().open(), []
    code = "import time\nprint('begun', flush=True)\ntime.sleep(60)"
    turn = session.stream(code=code)
    while not isinstance(next(turn), events.OutputShown):
        pass
    waiting = threading.Thread(target=lambda: answers.extend(turn))
    waiting.start()
    began = time.monotonic()
    session.close()
    waiting.join()
    assert time.monotonic() - began < 10
    assert answers[-1].status is values.TurnStatus.STOPPED
    with SyncInterpreter() as session:
        turn = session.stream(code="1 + 1")
        next(turn)
    turn.close()


def test_the_import_costs_nothing():
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "set() True set()\n", done.stderr
