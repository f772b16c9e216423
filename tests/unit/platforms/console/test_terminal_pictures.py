"""Which terminals are sent pictures, and what they are sent."""

import base64
import fcntl
import io
import os
import pathlib
import re
import struct
import subprocess
import sys
import termios
import time

import pytest
from PIL import Image

from interpreter_bot import values
from interpreter_bot.platforms.console import (
    terminal_input,
    terminal_pictures,
    terminal_replies,
    threaded_stdout,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8) + (640).to_bytes(4, "big") + bytes(6000)


CODE = """
import os, sys
from interpreter_bot.platforms.console import terminal_pictures
found = terminal_pictures.found(sys.argv[1], os.environ, sys.stdout)
print(f"<{found.by if found else None}>")
"""


@pytest.fixture
def terminal():
    """A terminal of 80 by 24 letters, which are 10 by 20 pixels large."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 800, 480))
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def pictures(by, terminal):
    return terminal_pictures.Pictures(by, terminal[1], is_true_colour=True)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM_PROGRAM": "ghostty", "TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM_PROGRAM": "iTerm.app", "TERM": "xterm-256color"}, "iterm2"),
        ({"LC_TERMINAL": "iTerm2", "TERM": "xterm-256color"}, "iterm2"),
        ({"TERM_PROGRAM": "iTerm.app", "TERM": "tmux-256color"}, ""),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, ""),
        ({"TERM": "xterm-256color"}, ""),
        ({}, ""),
    ],
)
def test_a_terminal_says_how_it_shows_pictures(environment, expected):
    assert terminal_pictures.protocol(environment) == expected


def test_a_picture_is_sent_whole_and_no_wider_than_the_terminal(terminal):
    picture = values.Image(data=PNG, mime="image/png")
    assert ",c=" not in pictures("kitty", terminal).drawn(picture)
    fcntl.ioctl(terminal[1], termios.TIOCSWINSZ, struct.pack("HHHH", 24, 79, 0, 0))
    sent = pictures("kitty", terminal).drawn(picture)
    parts = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", sent)
    assert [head for head, _ in parts] == ["a=T,f=100,q=2,c=79,m=1", "m=0"]
    assert base64.b64decode("".join(part for _, part in parts)) == PNG
    sent = pictures("iterm2", terminal).drawn(picture)
    head, content = re.fullmatch(r"\x1b\]1337;File=([^:]*):([^\x07]*)\x07\n", sent).groups()
    assert head == f"inline=1;size={len(PNG)};width=79"
    assert base64.b64decode(content) == PNG


def test_what_a_terminal_does_not_know_is_not_sent(terminal):
    svg = values.Image(data=b"<svg/>", mime="image/svg+xml")
    large = values.Image(data=bytes(9 << 20), mime="image/png")
    page = values.Html(html=b"<p>x</p>")
    for by in ("kitty", "iterm2", "sixel", "blocks"):
        assert [pictures(by, terminal).drawn(one) for one in (svg, large, page)] == [""] * 3
    jpeg = values.Image(data=b"\xff\xd8\xff", mime="image/jpeg")
    assert [pictures(by, terminal).drawn(jpeg) for by in ("kitty", "sixel", "blocks")] == [""] * 3


def test_pixels_are_no_more_than_the_screen_has_room_for(terminal):
    file = io.BytesIO()
    Image.new("RGB", (2000, 1000), "navy").save(file, "PNG")
    page = values.Html(html=b"<p>x</p>", preview=file.getvalue())
    assert pictures("sixel", terminal).drawn(page).startswith('\x1bPq"1;1;800;400#0;2;0;0;50')
    lines = pictures("blocks", terminal).drawn(page).splitlines()
    assert [line.count("\u2580") for line in lines] == [80] * 20


def asked(choice, answer, **environment):
    """What a process at a terminal of its own finds, and how that took; it is typed `answer`."""
    ours, theirs = os.openpty()
    places = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(pathlib.Path(terminal_pictures.__file__).parents[3]),
        "PYTHONUTF8": "1",
    }
    # The terminal is its own, as that of a shell is.
    process = subprocess.Popen(
        ["setsid", "-c", sys.executable, "-c", CODE, choice],
        **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
        env=places | {"TERM": "xterm-256color"} | environment,
    )
    os.close(theirs)
    shown, begun = b"", time.monotonic()
    while not re.search(rb"<\w+>", shown):
        shown += os.read(ours, 4096)
        if shown.endswith(b"\x1b[c"):
            os.write(ours, answer)
    assert process.wait(30) == 0
    os.close(ours)
    by = re.search(rb"<(\w+)>", shown)[1].decode()
    return by, b"\x1b[c" in shown, time.monotonic() - begun


@pytest.mark.parametrize(
    ("choice", "answer", "environment", "expected", "is_asked"),
    [
        ("auto", b"\x1b[?62;4;22c", {}, "sixel", True),
        ("auto", b"\x1b[?62;22c", {}, "blocks", True),
        ("auto", b"\x1b[?14;44c", {"TERM": "xterm", "COLORTERM": "truecolor"}, "blocks", True),
        ("auto", b"\x1b[?6c", {"TERM": "linux"}, "None", True),
        ("auto", b"\x1b[?6c", {"NO_COLOR": "1"}, "None", True),
        ("auto", b"", {}, "blocks", True),
        ("auto", b"typed\n" * 99, {}, "blocks", True),
        ("auto", b"", {"TERM": "dumb"}, "None", False),
        ("auto", b"", {"TERM": "xterm-kitty"}, "kitty", False),
        ("sixel", b"", {"TERM": "xterm-kitty"}, "sixel", False),
        ("none", b"", {"TERM": "xterm-kitty"}, "None", False),
    ],
)
def test_a_terminal_is_asked_unless_it_or_a_person_said_so_already(
    choice, answer, environment, expected, is_asked
):
    by, was_asked, seconds = asked(choice, answer, **environment)
    assert (by, was_asked) == (expected, is_asked)
    assert seconds < 20


def test_files_are_shown_nothing(tmp_path):
    with open(tmp_path / "out", "w") as out:
        assert terminal_pictures.found("sixel", {"TERM": "xterm-kitty"}, out) is None


async def test_a_picture_is_drawn_in_its_place_among_the_words(terminal):
    writer = threaded_stdout.StdoutWriter()
    answers = terminal_input.StdinAnswers(is_script=True)
    file = io.BytesIO()
    Image.new("RGB", (4, 2), "white").save(file, "PNG")
    with os.fdopen(terminal[1], "w", closefd=False) as standard:
        printer = terminal_replies.ExecutionPrinter(
            *(None, answers),
            out=writer.file(standard),
            err=writer.file(standard),
            pictures=pictures("sixel", terminal),
        )
        printer.output(0, values.Text(text="before", stream="stdout"))
        printer.output(0, values.Image(data=file.getvalue(), mime="image/png", plain="a figure"))
        await writer.drain()
    shown = ""
    while "a figure" not in shown or not shown.endswith("\n"):
        shown += os.read(terminal[0], 4096).decode()
    assert re.fullmatch(
        r"before\r\n\x1bPq[^\x1b]*\x1b\\\r\n.*\[a figure\].*\r\n.*--keep DIR.*\r\n", shown
    )
