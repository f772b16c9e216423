import pytest

from interpreter_bot.platforms.web import commands


@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ("/help", "help", ""),
        ("/model GPT 5 ", "model", "GPT 5"),
        ("/py print(1)", "py", "print(1)"),
        ("/py\nif x:\n    print(1)\n", "py", "if x:\n    print(1)"),
        ("/py    x = 1", "py", "x = 1"),
        ("/nonsense at all", "nonsense", "at all"),
    ],
)
def test_commands_are_read(text, name, rest):
    assert commands.read(text) == commands.Command(name, rest)


@pytest.mark.parametrize("text", ["hello", "", "/", "/mnt/data/x is what?", "a /help", "/Help me"])
def test_words_are_no_commands(text):
    assert commands.read(text) is None


def test_every_command_is_explained():
    explained = {name.split()[0].removeprefix("/") for name, _ in commands.HELP}
    assert all(commands.is_known(commands.Command(name, "")) for name in explained)
    assert not commands.is_known(commands.Command("nonsense", ""))
