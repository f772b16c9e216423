"""Sentences that depend on what happened."""

import pytest

from interpreter_bot import values
from interpreter_bot.wording import run_words, session_words


@pytest.mark.parametrize(
    ("finished", "options", "sentence"),
    [
        (values.Finished(values.Ending.OK, 1), {"has_shown": True}, ""),
        (values.Finished(values.Ending.OK, 1), {"has_shown": False}, "Done. No output."),
        (values.Finished(values.Ending.ERROR, 1), {"has_shown": True, "has_error": True}, ""),
        (
            values.Finished(values.Ending.TIMED_OUT, 1, "Stopped after 60 s."),
            {"has_shown": True},
            "Stopped after 60 s. Variables are kept.",
        ),
        # That a person stopped it, the end of the turn says.
        (values.Finished(values.Ending.STOPPED, 1), {"has_shown": True}, ""),
        (
            values.Finished(values.Ending.CRASHED, 1, kernel_lost=True),
            {"has_shown": True},
            "The Python process ended unexpectedly. "
            "Its variables are gone; files in /mnt/data are kept.",
        ),
        (
            values.Finished(values.Ending.CRASHED, 1, "Its variables are gone.", kernel_lost=True),
            {"has_shown": True},
            "Its variables are gone.",
        ),
    ],
)
def test_endings_have_words(finished, options, sentence):
    assert run_words.ending_sentence(finished, **options) == sentence


# Of code that a person stopped, and of code in the background, other sentences tell.
_SILENT = {values.Ending.STOPPED, values.Ending.BACKGROUND}


@pytest.mark.parametrize("ending", [ending for ending in values.Ending if ending not in _SILENT])
def test_every_other_ending_has_words(ending):
    sentence = run_words.ending_sentence(values.Finished(ending, 1.0), has_shown=False)
    assert sentence.endswith(".")


def test_undo_says_which_runs_the_variables_miss():
    assert session_words.answer_undone("plot units", 0, "") == (
        "Undone. Variables, files and history are back to before “plot units”."
    )
    assert session_words.answer_undone("", 2, "") == (
        "Undone. Files and history are back to before the last answer. Variables were restored "
        "from the last save, which misses 2 earlier runs."
    )


def test_undo_says_why_files_stay():
    assert session_words.answer_undone("plot", 0, "They are large.") == (
        "Undone. Variables and history are back to before “plot”. Files stay as they are now. "
        "They are large."
    )
