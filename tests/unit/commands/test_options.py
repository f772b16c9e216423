import pytest

from interpreter_bot.commands import options


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["aks", "x"], "There is no command aks. Did you mean ask?"),
        (["--config", "a.toml", "-v", "doctr"], "There is no command doctr. Did you mean doctor?"),
        (["fly"], "There is no command fly. interpreter-bot --help lists them."),
    ],
)
def test_a_mistyped_command_is_said_with_the_one_that_may_be_meant(capsys, arguments, sentence):
    with pytest.raises(SystemExit) as exit_info:
        options.read(arguments)
    assert exit_info.value.code == 2
    assert capsys.readouterr().err == f"interpreter-bot: {sentence}\n"


def test_help_says_where_to_start(capsys):
    with pytest.raises(SystemExit):
        options.read(["--help"])
    output = capsys.readouterr().out
    assert "Start here:\n  interpreter-bot setup " in output


def test_words_of_a_command_are_no_commands():
    assert options.read(["ask", "aks", "fly"]).prompt == ["aks", "fly"]
