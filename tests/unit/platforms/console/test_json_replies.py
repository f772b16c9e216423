"""The lines that programs read."""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import sys

import pytest

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.console import json_replies, saved_files, terminal_input
from interpreter_bot.sessions import questions
from interpreter_bot.store import databases
from tests.fakes import askers, full_databases


@pytest.fixture
def told(capsys):
    """Show something to a fresh audience; returns the objects it wrote."""

    def tell(show, keeper=None):
        show(
            json_replies.JsonLines(
                keeper,
                json_replies.JsonAnswers(terminal_input.StdinAnswers(is_script=True)),
                None,
                out=sys.stdout,
            )
        )
        lines = capsys.readouterr().out
        assert lines.isascii()
        assert not lines or lines.endswith("\n")
        return [json.loads(line) for line in lines.splitlines()]

    return tell


def content(data):
    return {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}


TABLE = values.Table(
    plain="  a", columns=("", "a"), rows=(("0", "1"),), row_count=9, column_count=1, index_count=1
)


@pytest.mark.parametrize(
    ("output", "fields"),
    [
        (values.Text("stdout", "é\r\n"), {"type": "stdout", "text": "é\r\n"}),
        (values.Text("stderr", "x"), {"type": "stderr", "text": "x"}),
        (
            values.Error("E", "m", "t"),
            {"type": "error", "name": "E", "message": "m", "traceback": "t"},
        ),
        (values.Text("stdout", "\x1b[31mred\x1b[0m"), {"type": "stdout", "text": "red"}),
        (values.Result(plain="42"), {"type": "result", "text": "42"}),
        (values.Result(plain="*x*", is_markdown=True), {"type": "markdown", "text": "*x*"}),
        (values.Latex(latex="$x$"), {"type": "latex", "latex": "$x$", "text": ""}),
        (values.Json(json="[]"), {"type": "json", "json": "[]", "text": ""}),
        (values.Notice("cut"), {"type": "notice", "text": "cut"}),
        (
            values.Image(mime="image/png", data=b"123", plain="p"),
            {"type": "image", "mime": "image/png", "text": "p"} | content(b"123"),
        ),
        (
            values.Html(html="<b>é".encode(), plain="b"),
            {"type": "html", "mime": "text/html", "text": "b", "html": "<b>é"}
            | content("<b>é".encode()),
        ),
        (
            TABLE,
            {
                "type": "table",
                "text": "  a",
                "columns": ["", "a"],
                "rows": [["0", "1"]],
                "row_count": 9,
                "column_count": 1,
                "index_count": 1,
            },
        ),
        (values.Clear(wait=True), {"type": "clear", "wait": True}),
        (
            values.Result(plain="1", display_id="d", is_update=True),
            {"type": "result", "text": "1", "display_id": "d", "update": True},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_output_has_its_object(told, output, fields):
    assert told(lambda audience: audience.emit(events.OutputShown(7, output))) == [
        {"cell": 7} | fields
    ]


def test_what_is_kept_has_its_path(told, tmp_path):
    keeper = saved_files.SavedFiles(tmp_path)

    def show(audience):
        audience.emit(events.OutputShown(0, values.Image(mime="image/svg+xml", data=b"<svg/>")))
        audience.emit(events.OutputShown(0, values.Html(html=b"h")))
        (tmp_path / "copy").write_bytes(b"123")
        audience.emit(events.FileMade(0, values.Artifact("a/b", 3, "00"), tmp_path / "copy"))

    image, html, artifact = told(show, keeper)
    assert (tmp_path / "cell-0-1.svg").read_bytes() == b"<svg/>"
    assert image["path"] == str(tmp_path / "cell-0-1.svg")
    assert html["path"] == str(tmp_path / "cell-0-2.html")
    assert artifact["path"] == str(tmp_path / "files/a/b")
    assert (tmp_path / "files/a/b").read_bytes() == b"123"


def test_what_cannot_be_kept_is_announced_and_shown_without_a_path(told, tmp_path):
    keeper = saved_files.SavedFiles(tmp_path)
    (tmp_path / "cell-0-1.html").mkdir()
    announcement, html = told(
        lambda a: a.emit(events.OutputShown(0, values.Html(html=b"h"))), keeper
    )
    assert (announcement["type"], html["type"]) == ("announcement", "html")
    assert "could not be saved" in announcement["text"]
    assert "path" not in html


def test_artifacts_without_a_place_have_no_path(told):
    lines = told(lambda audience: audience.emit(events.FileMade(1, values.Artifact("é", 3, "00"))))
    assert lines == [{"type": "artifact", "cell": 1, "name": "é", "size_bytes": 3, "sha256": "00"}]


def test_an_end_says_what_there_is_to_say(told):
    def show(audience):
        audience.emit(events.CodeFinished(0, values.Finished(values.Ending.OK, 0.1234567)))
        lost = values.Finished(values.Ending.OUT_OF_MEMORY, 1, "Too much.", kernel_lost=True)
        audience.emit(events.CodeFinished(1, lost))

    common = {"type": "finished"}
    assert told(show) == [
        common | {"cell": 0, "status": "ok", "seconds": 0.123457},
        common
        | {"cell": 1, "status": "out of memory", "seconds": 1, "reason": "Too much."}
        | {"kernel_lost": True},
    ]


def test_announcements_are_lines_too(told):
    lines = told(lambda audience: audience.emit(events.NoticeShown("Words.", 2)))
    assert lines == [{"type": "announcement", "cell": 2, "text": "Words."}]


@pytest.fixture
def driven(tmp_path):
    """Answer the questions of a turn as a program does; returns what is written, and who asks."""

    @contextlib.contextmanager
    def driven(*lines, table=None):
        reading, writing = os.pipe()
        for line in lines:
            os.write(writing, (line if isinstance(line, bytes) else json.dumps(line).encode()))
            os.write(writing, b"\n")
        os.close(writing)
        out = io.StringIO()
        answers = terminal_input.StdinAnswers(is_script=False, descriptor=reading)
        registry, json_answers = questions.Questions(table), json_replies.JsonAnswers(answers)
        reply = json_replies.JsonLines(None, json_answers, registry.answer, out=out)
        try:
            yield out, askers.Asker(reply, registry)
        finally:
            os.close(reading)

    return driven


def lines_of(out):
    return [json.loads(line) for line in out.getvalue().splitlines()]


ASKED = "who? "


async def test_a_program_answers_each_question_by_its_id(driven):
    given = ({"id": 1, "answer": "Ada\nL."}, {"id": 2, "answer": "yes"}, {"id": 3, "answer": "no"})
    with driven(*given, {"id": 4, "answer": "session"}) as (out, asker):
        assert await asker.input(ASKED) == "Ada\nL."
        assert await asker.approval("x = 1") == "x = 1"
        assert await asker.approval("x = 1") is None
        assert await asker.approval("x", choices=("session",)) == "session"
    lines = lines_of(out)
    told = [(line["type"], line["id"], line["text"]) for line in lines if line["type"] != "settled"]
    settled = [(line["id"], line["answer"]) for line in lines if line["type"] == "settled"]
    assert settled == [(1, "Ada\nL."), (2, "once"), (3, None), (4, "session")]
    assert told == [
        ("input", 1, "who? "),
        *(("approve", n, c) for n, c in ((2, "x = 1"), (3, "x = 1"), (4, "x"))),
    ]


async def test_what_is_no_answer_is_said_and_the_question_stays_open(driven):
    junk = (
        b"y",
        b"[1]",
        b"[" * 10_000,
        b"\xff",
        {"id": 9, "answer": "x"},
        {"id": 1},
        {"id": 1, "answer": 3},
    )
    with driven(*junk, {"id": 1, "answer": ""}) as (out, asker):
        assert await asker.input(ASKED) == ""
    ignored = [line["text"] for line in lines_of(out) if line["type"] == "ignored"]
    assert len(ignored) == len(junk)
    assert all(text.startswith("An answer is a line such as") for text in ignored)


async def test_the_end_of_standard_input_and_null_decline(driven):
    with driven({"id": 1, "answer": None}) as (out, asker):
        with pytest.raises(errors.BotError, match="declined"):
            await asker.input(ASKED)
        assert await asker.approval("x = 1") is None
        assert await asker.input(ASKED) == values.END_OF_INPUT
    assert [line["text"] for line in lines_of(out) if line["type"] == "announcement"] == [
        "Declined: standard input has ended, so nobody can answer."
    ]


async def test_an_answer_that_cannot_be_stored_ends_the_wait(driven, tmp_path):
    url = f"sqlite:///{tmp_path}/bot.db"
    async with databases.Database.open(url, blobs_directory=tmp_path / "files") as database:
        session = await database.sessions.open(askers.TEST)
        turn = (await database.turns.start(session.id, person="anna", text="x")).id
        async with full_databases.refuse_answers(tmp_path), asyncio.timeout(20):
            with (
                driven({"id": 1, "answer": "Ada"}, table=database.questions) as (_, asker),
                pytest.raises(errors.BotError, match="database"),
            ):
                await asker.input(ASKED, turn_id=turn)
