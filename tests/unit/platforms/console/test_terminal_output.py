"""What stays of printed text where there is no terminal, and where our own lines begin."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot.platforms.console import terminal_output


class Terminal(io.StringIO):
    def isatty(self):
        return True


def collapsed(*pieces):
    collapser = terminal_output.LineCollapser()
    return "".join(map(collapser.feed, pieces)) + collapser.take_incomplete_line()


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["a\nb\n"], "a\nb\n"),
        (["10%\r20%\r30%\n"], "30%\n"),
        (["\r10%", "\r20%", "\n"], "20%\n"),
        (["10%", "\r", "20", "%"], "20%"),
        (["last\r"], "last"),
        (["windows\r\n", "lines\r", "\nend"], "windows\nlines\nend"),
        (["a\r\r\rb\n\n"], "b\n\n"),
        ([], ""),
    ],
)
def test_a_line_shows_as_it_ended_up(pieces, shown):
    assert collapsed(*pieces) == shown


@given(st.text(alphabet="ab\r\n"), st.data())
def test_where_text_is_cut_makes_no_difference(text, data):
    cut = data.draw(st.integers(0, len(text)))
    assert collapsed(text[:cut], text[cut:]) == collapsed(text)


@given(st.text(alphabet="ab\n"))
def test_text_without_carriage_returns_stays_as_it_is(text):
    assert collapsed(text) == text


def test_a_terminal_sees_progress_and_a_file_its_end():
    terminal, file = Terminal(), io.StringIO()
    for target in (terminal, file):
        stream = terminal_output.Stream(target)
        stream.write_text("1\r2\r")
        stream.flush()
    assert terminal.getvalue() == "1\r2\r"
    assert file.getvalue() == "2"


def test_a_bar_is_drawn_anew_on_a_terminal_and_not_at_all_in_a_file():
    terminal, file = Terminal(), io.StringIO()
    for target in (terminal, file):
        stream = terminal_output.Stream(target)
        for share in (0.0, 0.5, 1.0):
            stream.show_status(terminal_output.draw_bar(share))
        stream.write_line("after")
    start, none, half, whole, after = terminal.getvalue().split("\r\x1b[2K")
    assert (start, none) == ("", f"[{'.' * 30}] 0%")
    assert half == f"[{'#' * 15}{'.' * 15}] 50%"
    assert whole == f"[{'#' * 30}] 100%"
    assert after == file.getvalue() == "after\n"


def test_a_status_never_stands_in_a_line_that_code_left_open():
    terminal = Terminal()
    stream = terminal_output.Stream(terminal)
    stream.write_text("half")
    stream.show_status("Running… 3 s")
    stream.write_text(" a line\n")
    assert terminal.getvalue() == "half a line\n"


def test_our_lines_begin_at_the_left():
    file = io.StringIO()
    stream = terminal_output.Stream(file)
    stream.write_text("open")
    stream.write_line("ours")
    stream.write_line("again")
    stream.write_text("rest")
    stream.flush()
    assert file.getvalue() == "open\nours\nagain\nrest"


def test_only_terminals_see_colours_and_not_those_that_want_none(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, plain, file = Terminal(), Terminal(), io.StringIO()
    terminal_output.Stream(terminal).write_line("x", style="31")
    terminal_output.Stream(file).write_line("x", style="31")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal_output.Stream(plain).write_line("x", style="31")
    assert terminal.getvalue() == "\x1b[31mx\x1b[0m\n"
    assert plain.getvalue() == file.getvalue() == "x\n"


def test_colours_of_a_cell_end_before_our_own_lines(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = []
    for file in (Terminal(), io.StringIO()):
        stream = terminal_output.Stream(file)
        stream.write_text("\x1b[31mred\n")
        stream.write_line("Ours.")
        shown.append(file.getvalue())
    assert shown == ["\x1b[31mred\n\x1b[0mOurs.\n", "red\nOurs.\n"]


def test_letters_that_the_locale_lacks_are_written_otherwise():
    data = io.BytesIO()
    file = io.TextIOWrapper(data, encoding="ascii")
    terminal_output.Stream(file).write_text("é\ud800\n")
    assert data.getvalue() == b"\\xe9\\ud800\n"
