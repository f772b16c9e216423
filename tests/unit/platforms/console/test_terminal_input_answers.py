"""Answers to questions of running code."""

import asyncio
import os
import sys
import termios

import pytest

from interpreter_bot import errors
from interpreter_bot.platforms.console import terminal_input


@pytest.fixture
def pipe():
    """The descriptor to read from, and the file to write to."""
    read, write = os.pipe()
    with open(write, "wb", buffering=0) as file:
        yield read, file
    os.close(read)


async def test_lines_are_answers_one_for_each_question(pipe):
    answers = terminal_input.StdinAnswers(is_script=False, descriptor=pipe[0])
    pipe[1].write("Ada\r\n\nLovelace é\nopen".encode())
    pipe[1].close()
    assert [await answers.read_answer() for _ in range(4)] == ["Ada", "", "Lovelace é", "open"]
    for _ in range(2):
        with pytest.raises(errors.BotError, match="asked for input"):
            await answers.read_answer()


async def test_a_wait_that_was_cancelled_takes_nothing_from_the_next(pipe):
    answers = terminal_input.StdinAnswers(is_script=False, descriptor=pipe[0])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answers.read_answer(), 0.05)
    pipe[1].write(b"a\n")
    assert await answers.read_answer() == "a"


async def test_a_line_may_come_in_pieces(pipe):
    answers = terminal_input.StdinAnswers(is_script=False, descriptor=pipe[0])
    waiting = asyncio.create_task(answers.read_answer())
    for piece in (b"\xc3", b"\xa9", b"\n"):
        pipe[1].write(piece)
        await asyncio.sleep(0.01)
    assert await waiting == "é"


async def test_files_answer_too(tmp_path):
    (tmp_path / "answers").write_text("a\nb")
    with (tmp_path / "answers").open() as file:
        answers = terminal_input.StdinAnswers(is_script=False, descriptor=file.fileno())
        assert [await answers.read_answer(), await answers.read_answer()] == ["a", "b"]


async def test_input_that_was_the_script_answers_nothing(pipe):
    pipe[1].write(b"rest\n")
    with pytest.raises(errors.BotError, match="asked for input"):
        await terminal_input.StdinAnswers(is_script=True, descriptor=pipe[0]).read_answer()


async def test_a_command_without_standard_input_answers_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(errors.BotError, match="asked for input"):
        await terminal_input.StdinAnswers(is_script=False).read_answer()


async def test_a_terminal_does_not_show_a_password():
    ours, theirs = os.openpty()
    try:
        answers = terminal_input.StdinAnswers(is_script=False, descriptor=theirs)
        waiting = asyncio.create_task(answers.read_answer(is_password=True))
        await asyncio.sleep(0.05)
        os.write(ours, b"secret\n")
        assert await waiting == "secret"
        assert os.read(ours, 100) == b"\r\n"
        assert termios.tcgetattr(theirs)[3] & termios.ECHO
    finally:
        os.close(ours)
        os.close(theirs)
