"""`interpreter-bot ask`, as people run it, with a scripted model behind the real wire format."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import sqlite3
import sys

import pytest

from tests.fakes import openai_server

pytestmark = pytest.mark.kernel

PLOT = (
    "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n"
    "open('out.txt', 'w').write('made')\nx = 41\nprint('drawn')"
)


class Ran:
    def __init__(self, status, out, err):
        self.status = status
        self.out = out
        self.err = err

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]

    def contents(self, kind):
        return [line for line in self.lines if line["type"] == kind]


# What a terminal is told when a line is to be edited in it.
PROMPT = b"\x1b[?2004h"
WHERE_IS_THE_CURSOR, IT_IS_AT_THE_BEGINNING = b"\x1b[6n", b"\x1b[1;1R"


async def _at_a_terminal(command, environment, typed):
    """Type each text once what is awaited before it was shown; returns all that was shown."""
    terminal, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment | {"TERM": "xterm", "NO_COLOR": "1"},
        **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
        start_new_session=True,
    )
    os.close(theirs)
    loop = asyncio.get_running_loop()
    more, shown = asyncio.Event(), b""

    def read():
        nonlocal shown
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            # The other side is closed.
            loop.remove_reader(terminal)
            return
        if WHERE_IS_THE_CURSOR in chunk:
            os.write(terminal, IT_IS_AT_THE_BEGINNING)
        shown += chunk
        more.set()

    loop.add_reader(terminal, read)
    seen = 0
    try:
        for awaited, text in typed:
            async with asyncio.timeout(60):
                while (found := shown.find(awaited, seen)) < 0:
                    more.clear()
                    await more.wait()
            seen = found + len(awaited)
            os.write(terminal, text)
        status = await process.wait()
    except TimeoutError:
        process.kill()
        pytest.fail(f"{awaited!r} is not shown after {shown[seen:]!r}")
    finally:
        loop.remove_reader(terminal)
        os.close(terminal)
    return shown.decode(), status


@pytest.fixture
def ask(tmp_path, short_path):
    """Run the command to its end, or until `stop` was printed: then it gets a SIGINT."""

    async def run(script, *arguments, stop=None, stdin=None, typed=(), connections=()):
        async with openai_server.Server(script) as server:
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "OPENAI_BASE_URL": server.base_url,
                "OPENAI_API_KEY": server.api_key,
                "OPENAI_MODEL": "scripted",
                "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
                "INTERPRETER_BOT_PATHS__RUNTIME": str(short_path),
                # Nearly all of these need nothing of the stack, and start sooner without it.
                "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
                "INTERPRETER_BOT_CONNECTIONS": json.dumps(connections),
            }
            command = (sys.executable, "-m", "interpreter_bot", "ask", *map(str, arguments))
            if typed:
                shown, status = await _at_a_terminal(command, environment, typed)
                run.requests = server.requests
                return Ran(status, shown, "")
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            begun = b""
            while stop is not None and stop not in begun:
                begun += await process.stdout.read(100)
            if stop is not None:
                process.send_signal(signal.SIGINT)
            out, err = await process.communicate(stdin)
            run.requests = server.requests
            return Ran(process.returncode, (begun + out).decode(), err.decode())

    return run


@pytest.mark.gate
async def test_a_question_about_a_file_is_answered_and_what_was_made_is_saved(ask, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n")
    script = [openai_server.code(PLOT, "Let me draw."), openai_server.text("It is **done**.")]
    ran = await ask(script, "--file", table, "--keep", tmp_path / "kept", "draw it")
    assert ran.status == 0
    assert ran.out == "Let me draw.\ndrawn\nIt is **done**.\n"
    assert f"── Python\n{PLOT}\n──\n" in ran.err
    assert "[2 steps, 240 tokens" in ran.err
    # The terminal remembers nothing.
    assert "propose_note" not in str(ask.requests[0].body)
    kept = {path.name for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    assert "out.txt" in kept
    assert any(name.endswith(".png") for name in kept)


@pytest.mark.namespaces
async def test_queries_are_printed_below_an_answer_where_they_are_asked_for(ask, tmp_path):
    place = tmp_path / "sales.db"
    with contextlib.closing(sqlite3.connect(place)) as database, database:
        database.execute("create table orders (id integer)")
    code = "connections['sales'].query('select id from orders')"
    listed = [{"name": "sales", "kind": "sqlite", "address": str(place)}]
    for arguments, is_shown in ((["--queries"], True), ([], False)):
        script = [openai_server.code(code), openai_server.text("None.")]
        ran = await ask(script, *arguments, "how many?", connections=listed)
        assert ran.status == 0
        assert ("-- sales: 0 rows in" in ran.err) == is_shown
        assert ("\nselect id from orders\n" in ran.err) == is_shown


async def test_several_prompts_are_turns_of_one_session(ask):
    script = [
        openai_server.code(PLOT),
        openai_server.text("One."),
        openai_server.code("print(x + 1)"),
        openai_server.text("Two."),
    ]
    ran = await ask(script, "--json", "first", "second")
    assert ran.status == 0
    assert [line["text"] for line in ran.contents("stdout")] == ["drawn\n", "42\n"]
    assert [(line["turn"], line["status"], line["text"]) for line in ran.contents("over")] == [
        (0, "done", "One."),
        (1, "done", "Two."),
    ]
    assert [line["number"] for line in ran.contents("step")] == [1, 2, 1, 2]
    assert [line["text"] for line in ran.contents("code")] == [PLOT, "print(x + 1)"]
    assert "".join(line["text"] for line in ran.contents("text") if line["turn"] == 0) == "One."
    assert ran.contents("usage")[-1]["steps"] == 2
    assert {line["cell"] for line in ran.contents("finished")} == {0}
    assert ran.contents("artifact")[0]["name"] == "out.txt"


@pytest.mark.gate
async def test_a_turn_that_fails_is_said_and_shows_in_the_status(ask):
    refused = openai_server.failure(401, "bad key")
    ran = await ask([refused], "hello")
    assert ran.status == 1
    assert "refused the API key" in ran.err


async def test_an_unknown_model_is_refused_before_anything_is_asked(ask):
    ran = await ask([], "--model", "other", "hello")
    assert ran.status == 2
    assert "There are: scripted" in ran.err


@pytest.mark.gate
async def test_a_file_that_is_not_there_is_refused(ask, tmp_path):
    ran = await ask([], "--file", tmp_path / "none.csv", "hello")
    assert ran.status == 2
    assert "none.csv is not a file" in ran.err


@pytest.mark.gate
async def test_an_interrupt_stops_the_turn_and_the_next_goes_on(ask):
    endless = openai_server.code("y = 7\nprint('running', flush=True)\nwhile True: pass")
    script = [endless, openai_server.code("print(y)"), openai_server.text("Seven.")]
    ran = await ask(script, "first", "second", stop=b"running")
    assert ran.status == 1
    assert ran.out.startswith("running\n")
    assert "KeyboardInterrupt" not in ran.out + ran.err
    assert ran.out.endswith("\n7\nSeven.\n")
    assert ran.err.count("Stopped.") == 1


async def test_escapes_in_a_models_words_do_not_reach_the_terminal(ask):
    ran = await ask([openai_server.text("red \x1b[31m and \x1b]0;title\x07 end")], "hello")
    assert "\x1b" not in ran.out
    assert ran.out.startswith("red ")
    assert ran.out.endswith("end\n")


async def test_a_question_may_come_through_a_pipe(ask):
    ran = await ask([openai_server.text("Four.")], stdin=b"How much is\n2 + 2?\n")
    assert (ran.status, ran.out) == (0, "Four.\n")
    assert ask.requests[0].messages[-1]["content"].endswith("How much is\n2 + 2?")


async def test_a_dash_is_the_question_that_comes_through_a_pipe(ask):
    script = [openai_server.text("One."), openai_server.text("Two.")]
    ran = await ask(script, "first", "-", stdin=b"second")
    assert (ran.status, ran.out) == (0, "One.\nTwo.\n")


async def test_data_that_comes_through_a_pipe_is_a_file(ask):
    data = b"a,b\n" + b"1,2\n" * 500_000
    code = "print(len(open('stdin.csv', 'rb').read()))"
    ran = await ask(
        [openai_server.code(code), openai_server.text("Read.")], "how long?", stdin=data
    )
    assert (ran.status, ran.out) == (0, f"{len(data)}\nRead.\n")


@pytest.mark.gate
async def test_no_question_is_said_before_anything_starts(ask):
    ran = await ask([], stdin=b" \n")
    assert (ran.status, ran.out) == (2, "")
    assert "There is no question" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.gate
async def test_without_a_prompt_a_terminal_is_a_chat(ask):
    script = [
        openai_server.code("x = 40\nprint('set')"),
        openai_server.text("It is set."),
        openai_server.failure(401, "bad key"),
        openai_server.text("Still here."),
    ]
    typed = [
        (PROMPT, b"set x\r"),
        (b"It is set.", b""),
        (PROMPT, b"/py number = x + 2\r"),
        (PROMPT, b"/py print(numb\t"),
        (b"er", b")\r"),
        (b"42\r\n", b""),
        (PROMPT, b"/variables\r"),
        (b"In Python now  number, x\r\nSaved          nothing\r\n", b""),
        (PROMPT, b"/fiels\r"),
        (b"There is no command /fiels. Did you mean /files?", b""),
        (PROMPT, b"/help\r"),
        (b"/exit", b""),
        (PROMPT, b"/stop\r"),
        (b"Nothing is running.", b""),
        (PROMPT, b"/undo\r"),
        (b"/undo works on the page, not here.", b""),
        (PROMPT, b"/reset\r"),
        (b"Reset.", b""),
        (PROMPT, b"\x03"),
        (PROMPT, b"fail\r"),
        (b"refused the API key", b""),
        (PROMPT, b"hello\r"),
        (b"Still here.", b""),
        (PROMPT, b"\x04"),
    ]
    ran = await ask(script, typed=typed)
    assert ran.status == 0
    assert ran.out.startswith("Starting…\r\n")


@pytest.mark.gate
async def test_a_person_at_the_terminal_says_whether_code_runs(ask):
    hidden = "print('a\u202eb')"
    script = [
        openai_server.code(hidden),
        openai_server.code("print('second')"),
        openai_server.text("Done."),
    ]
    typed = [
        ("⟨U+202E⟩".encode(), b""),
        (b"nobody can see", b""),
        (b"Run this code? [y/N] ", b"\n"),
        (b"print('second')", b""),
        (b"Run this code? [y/N] ", b"y\n"),
        (b"second\r\n", b""),
        (b"Done.", b""),
    ]
    ran = await ask(script, "--approval", "every", "go", typed=typed)
    assert ran.status == 0
    assert ran.out.count("print('second')") == 1


async def test_a_program_approves_code_and_answers_it_over_a_pipe(ask):
    script = [
        openai_server.code("print('hello', input('who? '))"),
        openai_server.code("print('second')"),
        openai_server.text("Done."),
    ]
    answers = [{"id": 1, "answer": "yes"}, {"id": 2, "answer": "Ada"}, {"id": 3, "answer": "no"}]
    stdin = "".join(f"{json.dumps(answer)}\n" for answer in answers).encode()
    ran = await ask(script, "--approval", "every", "--json", "go", stdin=stdin)
    asked = [
        (line["type"], line["id"]) for line in ran.lines if line["type"] in ("approve", "input")
    ]
    assert asked == [("approve", 1), ("input", 2), ("approve", 3)]
    assert [line["text"] for line in ran.contents("stdout")] == ["hello Ada\n"]
    assert ran.contents("over")[0]["status"] == "done"


async def test_a_mistyped_command_of_a_chat_is_never_a_question_that_is_paid(ask):
    typed = [(PROMPT, b"/fiels\r"), (b"Did you mean /files?", b""), (PROMPT, b"/exit\r")]
    ran = await ask([], typed=typed)
    assert (ran.status, ask.requests) == (0, [])


async def test_an_argument_is_a_command_only_if_it_is_no_more_than_its_name(ask):
    questions = ["/data is full, why?", "/py print(6 * 7)", "/fiels", "files", "/limits of what?"]
    script = [openai_server.text(f"Answer {number}.") for number in range(6)]
    ran = await ask(script, *questions, "-", "/limits", stdin=b"/py print(6 * 7)")
    assert "Time for one piece of code" in ran.out
    assert "42" not in ran.out
    asked = [request.messages[-1]["content"] for request in ask.requests]
    expected = [*questions, "/py print(6 * 7)"]
    assert [text.endswith(end) for text, end in zip(asked, expected, strict=True)] == [True] * 6
    assert ran.status == 0
    ran = await ask([], "--json", "/limits", "/stop", "/help", "/exit", "not reached")
    assert [line["type"] for line in ran.lines] == ["answer", "refused", "answer"]


async def test_a_piped_text_is_no_command(ask):
    ran = await ask([openai_server.text("A limit.")], stdin=b"/limits")
    assert (ran.status, len(ask.requests)) == (0, 1)


async def test_what_is_typed_while_it_starts_is_in_the_first_prompt(ask):
    typed = [
        (b"Starting", b"/limits\r"),
        (b"Time for one piece of code", b""),
        (PROMPT, b"\x04"),
    ]
    assert (await ask([], typed=typed)).status == 0


@pytest.mark.gate
async def test_code_that_nobody_can_approve_does_not_run(ask):
    script = [openai_server.code("print('ran')"), openai_server.text("Not run.")]
    ran = await ask(script, "--approval", "every", "--json", "go")
    assert [line["text"] for line in ran.contents("approve")] == ["print('ran')"]
    told = [line["text"] for line in ran.contents("announcement")]
    assert any(text.startswith("Declined: standard input has ended") for text in told)
    assert ran.contents("stdout") == []
