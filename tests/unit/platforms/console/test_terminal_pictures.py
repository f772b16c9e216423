"""Which terminals are sent pictures, and what they are sent."""

import base64
import io
import re

import pytest

from interpreter_bot import values
from interpreter_bot.platforms.console import terminal_input, terminal_pictures, terminal_replies

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8) + (640).to_bytes(4, "big") + bytes(6000)


class Terminal(io.StringIO):
    def isatty(self):
        return True


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


def test_a_picture_is_sent_whole_and_no_wider_than_the_terminal():
    picture = values.Image(data=PNG, mime="image/png")
    sent = terminal_pictures.drawn(picture, "kitty", columns=79)
    parts = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", sent)
    assert [head for head, _ in parts] == ["a=T,f=100,q=2,c=79,m=1", "m=0"]
    assert base64.b64decode("".join(part for _, part in parts)) == PNG
    assert ",c=" not in terminal_pictures.drawn(picture, "kitty", columns=80)
    sent = terminal_pictures.drawn(picture, "iterm2", columns=79)
    head, content = re.fullmatch(r"\x1b\]1337;File=([^:]*):([^\x07]*)\x07\n", sent).groups()
    assert head == f"inline=1;size={len(PNG)};width=79"
    assert base64.b64decode(content) == PNG


def test_what_a_terminal_does_not_know_is_not_sent():
    svg = values.Image(data=b"<svg/>", mime="image/svg+xml")
    large = values.Image(data=bytes(9 << 20), mime="image/png")
    for by in ("kitty", "iterm2"):
        assert terminal_pictures.drawn(svg, by, columns=80) == ""
        assert terminal_pictures.drawn(large, by, columns=80) == ""


def test_a_picture_of_code_is_shown_at_a_terminal_and_nowhere_else(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-kitty")
    monkeypatch.delenv("TMUX", raising=False)
    answers = terminal_input.StdinAnswers(is_script=True)
    shown = []
    for out in (Terminal(), io.StringIO()):
        printer = terminal_replies.ExecutionPrinter(None, answers, out=out, err=io.StringIO())
        printer.output(0, values.Image(data=PNG, mime="image/png", plain="a figure"))
        shown.append("\x1b_G" in out.getvalue())
    assert shown == [True, False]
