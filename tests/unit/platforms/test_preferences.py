"""What people choose for themselves, a channel or a server."""

import pytest

from interpreter_bot import errors
from interpreter_bot.platforms import preferences


def test_choices_that_make_no_sense_do_not_hold():
    chosen = {"approval": "perhaps", "threads": "yes", "model": 3, "show_code": True}
    holds = preferences.find_effective(chosen, {"threads": True})
    assert holds == preferences.Preferences(show_code=True)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("threads", "Off", False),
        ("show_code", "on", True),
        ("approval", "plan", "plan"),
        ("model", "large", "large"),
        ("model", "default", None),
    ],
)
def test_choices_are_read(name, text, value):
    assert preferences.parse(name, text, ("small", "large")) is value or (
        preferences.parse(name, text, ("small", "large")) == value
    )


@pytest.mark.parametrize(
    ("name", "text"), [("threads", "maybe"), ("approval", "on"), ("model", "x")]
)
def test_choices_that_are_none_are_refused(name, text):
    with pytest.raises(errors.BotError):
        preferences.parse(name, text, ("small",))


@pytest.mark.parametrize(
    ("words", "title"),
    [("gpt-5 mini (work)", "GPT-5 mini (work)"), ("scribe", "Scribe 2"), ("GPT-5", "GPT-5")],
)
def test_a_model_is_meant_by_its_title_or_a_part_that_only_it_has(words, title):
    assert preferences.model_title(words, ("GPT-5", "GPT-5 mini (work)", "Scribe 2")) == title


def test_a_model_that_cannot_be_meant_is_said_with_those_there_are():
    with pytest.raises(errors.BotError, match=r"^Several models are called gpt: GPT-5; GPT-6\.$"):
        preferences.model_title("gpt", ("GPT-5", "GPT-6", "Scribe"))
    with pytest.raises(errors.BotError, match=r"^There is no model x\. There are: A; B\.$"):
        preferences.model_title("x", ("A", "B"))
