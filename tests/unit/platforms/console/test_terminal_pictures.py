"""Which terminals are sent pictures, and what they are sent."""

import base64
import os
import re

import pytest

from interpreter_bot import events, values
from interpreter_bot.platforms.console import (
    terminal_input,
    terminal_pictures,
    terminal_replies,
    threaded_output,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8) + (640).to_bytes(4, "big") + bytes(6000)


@pytest.fixture
def terminal():
    """Both ends of a terminal: a descriptor, and the text file of a program."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as file:
        yield ours, file
    os.close(ours)


@pytest.mark.parametrize(
    ("choice", "environment", "expected"),
    [
        ("auto", {"TERM": "xterm-kitty"}, "kitty"),
        ("auto", {"TERM_PROGRAM": "ghostty", "TERM": "xterm-ghostty"}, "kitty"),
        ("auto", {"TERM_PROGRAM": "iTerm.app", "TERM": "xterm-256color"}, "iterm2"),
        ("auto", {"LC_TERMINAL": "iTerm2", "TERM": "xterm-256color"}, "iterm2"),
        ("auto", {"TERM_PROGRAM": "iTerm.app", "TERM": "tmux-256color"}, ""),
        ("auto", {"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, ""),
        ("auto", {"TERM": "xterm-256color"}, ""),
        ("auto", {}, ""),
        ("none", {"TERM": "xterm-kitty"}, ""),
        ("iterm2", {"TERM": "tmux-256color"}, "iterm2"),
    ],
)
def test_a_terminal_or_a_person_says_how_pictures_are_shown(
    terminal, choice, environment, expected
):
    assert terminal_pictures.choose_protocol(choice, environment, terminal[1]) == expected


def test_files_are_shown_nothing(tmp_path):
    with open(tmp_path / "out", "w") as out:
        assert terminal_pictures.choose_protocol("kitty", {"TERM": "xterm-kitty"}, out) == ""


def test_a_picture_is_sent_whole_and_no_wider_than_the_terminal():
    picture = values.Image(data=PNG, mime="image/png")
    assert ",c=" not in terminal_pictures.draw_picture(picture, "kitty", columns=80)
    sent = terminal_pictures.draw_picture(picture, "kitty", columns=79)
    parts = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", sent)
    assert [head for head, _ in parts] == ["a=T,f=100,q=2,c=79,m=1", "m=0"]
    assert base64.b64decode("".join(part for _, part in parts)) == PNG
    sent = terminal_pictures.draw_picture(picture, "iterm2", columns=79)
    head, content = re.fullmatch(r"\x1b\]1337;File=([^:]*):([^\x07]*)\x07\n", sent).groups()
    assert head == f"inline=1;size={len(PNG)};width=79"
    assert base64.b64decode(content) == PNG


@pytest.mark.parametrize("by", ["kitty", "iterm2"])
def test_what_a_terminal_does_not_know_is_not_sent(by):
    outputs = [
        values.Image(data=b"<svg/>", mime="image/svg+xml"),
        values.Image(data=bytes(9 << 20), mime="image/png"),
        values.Html(html=b"<p>x</p>"),
    ]
    outputs += [values.Image(data=b"\xff\xd8\xff", mime="image/jpeg")] if by == "kitty" else []
    assert not any(terminal_pictures.draw_picture(output, by, columns=80) for output in outputs)


async def test_a_picture_is_drawn_in_its_place_among_the_words(terminal):
    ours, standard = terminal
    writer = threaded_output.OutputWriter()
    printer = terminal_replies.ExecutionPrinter(
        *(None, terminal_input.StdinAnswers(is_script=True), None),
        out=writer.file(standard),
        err=writer.file(standard),
        pictures="kitty",
    )
    printer.emit(events.OutputShown(0, values.Text(text="before", stream="stdout")))
    picture = values.Image(data=PNG[:100], mime="image/png", plain="a figure")
    printer.emit(events.OutputShown(0, picture))
    await writer.drain()
    shown = ""
    while "--keep DIR" not in shown or not shown.endswith("\n"):
        shown += os.read(ours, 4096).decode()
    assert re.fullmatch(
        r"before\r\n\x1b_G[^\x1b]*\x1b\\\r\n.*\[a figure\].*\r\n.*--keep DIR.*\r\n", shown
    )
