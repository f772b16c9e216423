"""Words that stop a running answer."""

import pytest

from interpreter_bot.platforms.rendering import stop_words


@pytest.mark.parametrize(
    "text",
    [
        "stop",
        "Stop!",
        "STOP",
        "cancel",
        "please stop it!",
        "stop stop",
        "ok, stop that now",
        "abort",
    ],
)
def test_stops(text):
    assert stop_words.is_stop_request(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "please",
        "stop words",
        "when did it stop?",
        "cancel my subscription",
        "stop" * 99,
        "run it",
    ],
)
def test_is_a_question(text):
    assert not stop_words.is_stop_request(text)
