"""What people see."""

import sys

import pytest

from interpreter_bot import events, values
from interpreter_bot.platforms.console import saved_files, terminal_input, terminal_replies


@pytest.fixture
def shown(capsys):
    """Show outputs to a fresh printer; returns what it wrote to both streams."""

    def show(*outputs, keeper=None, finished=None):
        printer = terminal_replies.ExecutionPrinter(
            keeper,
            terminal_input.StdinAnswers(is_script=True),
            None,
            out=sys.stdout,
            err=sys.stderr,
        )
        for output in outputs:
            printer.emit(events.OutputShown(0, output))
        printer.emit(events.CodeFinished(0, finished or values.Finished(values.Ending.OK, 0.1)))
        return tuple(capsys.readouterr())

    return show


def test_printed_text_arrives_as_it_was_printed_on_its_stream(shown):
    assert shown(values.Text("stdout", "a\nb"), values.Text("stderr", "c")) == ("a\nb", "c")


def test_progress_is_collapsed(shown):
    out, _ = shown(values.Text("stdout", "1%\r"), values.Text("stdout", "2%\rdone\n"))
    assert out == "done\n"


def test_a_value_begins_a_line(shown):
    out, _ = shown(values.Text("stdout", "a"), values.Result(plain="42"))
    assert out == "a\n42\n"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (values.Json(plain="<JSON object>", json='{"a": 1}'), '{"a": 1}\n'),
        (values.Latex(plain="x**2", latex="$x^2$"), "x**2\n"),
        (values.Latex(latex="$x^2$"), "$x^2$\n"),
        (values.Error("E", "m", "Cell 1, line 1\nE: m"), "Cell 1, line 1\nE: m\n"),
        (values.Clear(wait=False), ""),
    ],
)
def test_each_output_has_its_form(shown, output, text):
    assert shown(output) == (text, "")


def test_tables_are_aligned(shown):
    table = values.Table(columns=("", "a"), rows=(("0", "1"),), row_count=1, column_count=1)
    assert shown(table)[0].splitlines()[:3] == ["   a", "-  -", "0  1"]


def test_displays_are_saved_or_said_to_be_savable(shown, tmp_path):
    image = values.Image(mime="image/png", data=b"1", plain="<Figure>")
    told = "To save pictures and files, start with `exec --keep DIR`."
    assert shown(image) == ("", f"[<Figure>]\n{told}\n")
    _, said = shown(image, values.Html(html=b"x"), keeper=saved_files.SavedFiles(tmp_path))
    assert said == (
        f"[<Figure>: saved as {tmp_path}/cell-0-1.png]\n"
        f"[a page: saved as {tmp_path}/cell-0-2.html]\n"
    )


def test_a_display_that_cannot_be_saved_is_no_reason_to_stop(shown, tmp_path):
    (tmp_path / "cell-0-1.html").mkdir()
    out, said = shown(
        values.Html(html=b"x"), values.Result(plain="1"), keeper=saved_files.SavedFiles(tmp_path)
    )
    assert "could not be saved" in said
    assert out == "1\n"


def test_an_end_that_needs_words_has_them(shown):
    finished = values.Finished(values.Ending.TIMED_OUT, 1, "Too slow.")
    assert shown(finished=finished) == ("", "[timed out] Too slow.\n")


def test_artifacts_and_announcements_are_told_beside_the_output(capsys, tmp_path):
    printer = terminal_replies.ExecutionPrinter(
        saved_files.SavedFiles(tmp_path),
        terminal_input.StdinAnswers(is_script=True),
        None,
        out=sys.stdout,
        err=sys.stderr,
    )
    printer.emit(events.NoticeShown("A new Python was started.", 0))
    copy = tmp_path / "copy"
    copy.touch()
    printer.emit(events.FileMade(0, values.Artifact("a.csv", 1234, "00"), copy))
    assert capsys.readouterr() == (
        "",
        f"A new Python was started.\n[file a.csv, 1.21 KiB, saved as {tmp_path}/files/a.csv]\n",
    )
