"""A model is told what the person saw, in words and within bounds."""

import datetime

import pytest

from interpreter_bot import code_activity, settings, values
from interpreter_bot.agent import observations, prompt_texts, tool_execution
from interpreter_bot.text import output_screens
from tests.unit.agent import scripts

OK = scripts.OK


def told(*outputs, finished=OK, limit=8000):
    screen = output_screens.Screen()
    for output in outputs:
        screen.show(output)
    return observations.describe_execution(screen.outputs, finished, limit)


SILENT = (
    "[The code ran to its end without an error and printed nothing. What it was to save or to "
    "compute is done; print what you need to know.]"
)


def out(text):
    return values.Text("stdout", text)


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ([], SILENT),
        ([out("a"), out("b\n"), out("c")], "ab\nc"),
        ([out("a\n"), values.Clear(wait=False), out("b")], "b"),
        ([out("a\n"), values.Clear(wait=True)], "a"),
        ([out("a\n"), values.Clear(wait=True), out("b")], "b"),
        ([out("10%\r50%\r100%\ndone")], "100%\ndone"),
        ([out("windows\r\nlines\r\n")], "windows\nlines"),
        (
            [
                values.Result(plain="1", display_id="x"),
                values.Result(plain="2", display_id="x", is_update=True),
            ],
            "2",
        ),
        ([values.Result(plain="<Axes: title=x>")], "[a figure object]"),
        (
            [values.Image(mime="image/svg+xml", data=b"")],
            "[A picture was shown to the person (svg).]\n"
            "[Nothing was printed: name no figures but those you have seen.]",
        ),
        (
            [out("drawn\n"), values.Image(mime="image/svg+xml", data=b"")],
            "drawn\n[A picture was shown to the person (svg).]",
        ),
    ],
)
def test_outputs_are_told(outputs, text):
    assert told(*outputs) == text


def test_bars_that_redraw_themselves_are_told_as_they_stand():
    shown = [values.Text("stderr", f"\r{n}%") for n in range(100)]
    assert told(*shown, out("done\n")) == "99%\ndone"


def test_table_is_told_with_its_counts():
    table = values.Table(
        columns=("", "a"), rows=(("0", "x"), ("1", "y")), row_count=150, column_count=1
    )
    assert told(table) == (
        " | a\n0 | x\n1 | y\n[A table of 150 rows x 1 columns was shown to the person; "
        "its first 2 rows are above.]"
    )


def test_long_output_keeps_its_head_its_tail_and_its_ending():
    text = told(out("head" + "x" * 90_000 + "tail"), finished=scripts.FAILED, limit=1000)
    assert text.startswith("head")
    assert " of 90,008 characters shown …\n" in text
    assert "tail\n[The code failed" in text
    assert len(text) < 1200


def test_a_flood_of_one_stream_leaves_the_other_whole():
    shown = told(
        out("first\n"),
        values.Text("stderr", "warning\n" * 9000),
        out("middle 41\n"),
        values.Text("stderr", "warning\n" * 9000),
        out("answer 42\n"),
        limit=1000,
    )
    assert shown.startswith("first\nwarning\n")
    assert "\nmiddle 41\n" in shown
    assert shown.endswith("warning\nanswer 42")
    assert " of 18,000 lines shown …\n" in shown
    assert len(shown) < 1100


def test_attached_file_is_described():
    text = observations.describe_file("a.csv", 2048, kind="text/csv", details="columns: x int64\n")
    assert text == (
        "[The person sent the file 'a.csv' (2 KiB, text/csv); it is at /mnt/data/a.csv.]\n"
        "columns: x int64"
    )


def test_empty_file_is_called_empty():
    assert "The file is empty" in observations.describe_file("a.csv", 0)


def test_system_prompt_states_the_limits():
    text = prompt_texts.build_system_prompt(settings.Limits(), today=datetime.date(2026, 11, 21))
    assert "60 seconds, 1 CPU core and 1.7 GiB of memory" in text
    assert "may have 512 MiB" in text
    assert text.endswith("Today is Saturday, 21 November 2026.")


def test_system_prompt_says_what_is_installed_and_what_is_not():
    packages = {"imageio-ffmpeg": "0.8.1", "mplfonts": "1.0", "pandas": "3.0.1", "torch": "2.13.0"}
    text = prompt_texts.build_system_prompt(
        settings.Limits(), today=datetime.date(2026, 11, 21), packages=packages
    )
    assert "Installed: pandas 3.0, torch 2.13. The program ffmpeg is there too." in text
    assert "Nothing else is, such as geopandas, " in text
    assert "transformers, xgboost." in text


def test_system_prompt_says_what_is_different_in_an_ordinary_container():
    day = datetime.date(2026, 11, 21)
    refusal = code_activity.Reach(refusal="Data connections are not available.")
    text = prompt_texts.build_system_prompt(
        settings.Limits(), today=day, sandbox_level=values.SandboxLevel.CONTAINER, reach=refusal
    )
    assert "/tmp cannot be written to" in text
    assert "Data connections are not available." in text
    assert "/tmp" not in prompt_texts.build_system_prompt(settings.Limits(), today=day)


def test_system_prompt_says_what_can_be_reached():
    day = datetime.date(2026, 11, 21)
    assert "There is no network:" in prompt_texts.build_system_prompt(settings.Limits(), today=day)
    one = code_activity.ReachableHost("a.org", (443,), ("GET",), ("/x/",), has_secret=True)
    text = prompt_texts.build_system_prompt(
        settings.Limits(), today=day, reach=code_activity.Reach((one,))
    )
    assert "There is no network" not in text
    assert "a.org (port 443) with GET below /x/ without a key, which is added." in text


def test_guard_lets_code_run_again_after_other_code():
    guard = tool_execution.RepetitionDetector()
    for code in ("a", "b", "a"):
        assert guard.refuse_repeat(code) is None
        guard.record_run(code, OK, None)
    assert guard.refuse_repeat("a  \n\n# same")
