"""Standard input as a question, and as a file."""

import contextlib
import os
import threading

import pytest

from interpreter_bot.platforms.console import terminal_input


@pytest.fixture
def piped(monkeypatch):
    """Give standard input some bytes, through a pipe or a file."""
    opened = []

    def give(data):
        theirs, ours = os.pipe()
        opened.append(os.fdopen(theirs))
        monkeypatch.setattr("sys.stdin", opened[-1])

        def write():
            # Whoever refuses what is too long does not read the rest.
            with open(ours, "wb", buffering=0) as file, contextlib.suppress(BrokenPipeError):
                file.write(data)

        writers.append(threading.Thread(target=write))
        writers[-1].start()

    writers = []
    yield give
    for file in opened:
        file.close()
    for writer in writers:
        writer.join()


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"a,b\n1,2\n", "stdin.csv"),
        ("\ufeffa;b\n1;2\n".encode(), "stdin.csv"),
        (b"a\tb\n1\t2\n", "stdin.tsv"),
        (b'{"a": 1}\n{"a": 2}\n', "stdin.jsonl"),
        (b'{\n"a": 1}', "stdin.json"),
        (b"[1, 2]", "stdin.json"),
        (b"PAR1....PAR1", "stdin.parquet"),
        (b"PK\x03\x04....", "stdin.zip"),
        (b"one, two", "stdin.txt"),
        (b"\xff\x00" * 3_000_000, "stdin.txt"),
    ],
)
async def test_data_is_a_file_that_is_called_what_it_looks_like(piped, data, name):
    piped(data)
    file = terminal_input.wait_for_piped_file()
    assert file.name == name
    assert b"".join([chunk async for chunk in file.read_chunks()]) == data


def test_nothing_is_no_file(piped, monkeypatch):
    piped(b"")
    assert terminal_input.wait_for_piped_file() is None
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert terminal_input.wait_for_piped_file() is None
    monkeypatch.setattr("sys.stdin", None)
    assert terminal_input.wait_for_piped_file() is None


def test_text_is_a_question(piped):
    piped("  Wie groß?\nUnd wie alt?\n".encode())
    assert terminal_input.read_question(max_characters=100) == "Wie groß?\nUnd wie alt?"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "There is no question"),
        (b" \n", "There is no question"),
        (b"\xff\xfe", "not text"),
        (b"x" * 500_000, "longer than the 100 characters"),
    ],
)
def test_what_is_no_question_is_refused_in_a_sentence(piped, data, sentence):
    piped(data)
    with pytest.raises(terminal_input.PipeError, match=sentence):
        terminal_input.read_question(max_characters=100)
