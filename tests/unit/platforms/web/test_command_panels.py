import pytest

from interpreter_bot import errors
from interpreter_bot.platforms.web import command_panels


@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ("/help", "help", ""),
        ("/model GPT 5 ", "model", "GPT 5"),
        ("/py print(1)", "py", "print(1)"),
        ("/py\nif x:\n    print(1)\n", "py", "if x:\n    print(1)"),
        ("/py    x = 1", "py", "x = 1"),
        ("/nonsense at all", "nonsense", "at all"),
        ("/Help", "help", ""),
        ("/MODEL gpt", "model", "gpt"),
    ],
)
def test_commands_are_read(text, name, rest):
    assert command_panels.read(text) == command_panels.SlashCommand(name, rest)


@pytest.mark.parametrize(
    "text", ["hello", "", "/", "/mnt/data/x is what?", "a /help", "/Users and I", "/PY3 x"]
)
def test_words_are_no_commands(text):
    assert command_panels.read(text) is None


def test_commands_are_known_in_code_too_and_nothing_else_behind_a_slash():
    assert command_panels.read("/py print(1)", is_code=True).rest == "print(1)"
    assert command_panels.read("/help", is_code=True).name == "help"
    assert command_panels.read("/print 1", is_code=True) is None


def test_every_command_is_explained():
    explained = {name.split()[0].removeprefix("/") for name, _ in command_panels.HELP}
    assert all(command_panels.is_known(command_panels.SlashCommand(name, "")) for name in explained)
    assert not command_panels.is_known(command_panels.SlashCommand("nonsense", ""))


@pytest.mark.parametrize(
    ("words", "title"),
    [("gpt-5 mini (work)", "GPT-5 mini (work)"), ("scribe", "Scribe 2"), ("GPT-5", "GPT-5")],
)
def test_a_model_is_meant_by_its_title_or_a_part_that_only_it_has(words, title):
    assert command_panels.model_title(words, ("GPT-5", "GPT-5 mini (work)", "Scribe 2")) == title


def test_a_model_that_cannot_be_meant_is_said_with_those_there_are():
    with pytest.raises(errors.BotError, match=r"^Several models are called gpt: GPT-5; GPT-6\.$"):
        command_panels.model_title("gpt", ("GPT-5", "GPT-6", "Scribe"))
    with pytest.raises(errors.BotError, match=r"^There is no model x\. There are: A; B\.$"):
        command_panels.model_title("x", ("A", "B"))
