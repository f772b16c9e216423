import pytest

from interpreter_bot import errors
from interpreter_bot.platforms import command_table


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/help", "help", ""),
        ("  /files", "files", ""),
        ("/files?", "files", ""),
        ("/model GPT 5 ", "model", "GPT 5"),
        ("/py print(1)", "py", "print(1)"),
        ("/py\nif x:\n    print(1)\n", "py", "if x:\n    print(1)"),
        ("/py    x = 1", "py", "x = 1"),
        ("/Help", "help", ""),
        ("/MODEL gpt", "model", "gpt"),
    ],
)
def test_commands_are_parsed(text, name, argument):
    invocation = command_table.parse(text, "web")
    assert (invocation.command.name, invocation.argument) == (name, argument)


@pytest.mark.parametrize(
    "text",
    ["hello", "", "/", "/mnt/data/x is what?", "a /help", "/Users and I", "// x", "/1 of 2"],
)
def test_words_are_no_commands(text):
    assert command_table.parse(text, "web") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("/fiels", "There is no command /fiels. Did you mean /files?"),
        ("/Fiels", "There is no command /Fiels. Did you mean /files?"),
        ("/rest", "There is no command /rest. Did you mean /reset?"),
        ("/py3 x", "There is no command /py3. Did you mean /py?"),
        ("/nonsense at all", "There is no command /nonsense. Type /help for a list."),
        ("/py", "Please write it as /py CODE."),
        ("/connect", "Please write it as /connect NAME."),
        ("/reset that", "/reset takes nothing after it."),
    ],
)
def test_what_is_meant_for_a_command_is_never_a_question(text, sentence):
    for platform in ("web", "console"):
        with pytest.raises(errors.BotError) as refused:
            command_table.parse(text, platform)
        assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("text", "platform", "place"),
    [("/undo", "console", "on the page"), ("/exit", "web", "in the terminal")],
)
def test_a_command_of_another_place_is_said_to_work_there(text, platform, place):
    with pytest.raises(errors.BotError, match=f"^{text} works {place}, not here\\.$"):
        command_table.parse(text, platform)


def test_commands_are_known_in_code_too_and_nothing_else_behind_a_slash():
    assert command_table.parse("/py print(1)", "web", is_code=True).argument == "print(1)"
    assert command_table.parse("/help", "web", is_code=True).command.name == "help"
    assert command_table.parse("/print 1", "web", is_code=True) is None
    assert command_table.parse("/file 1", "web", is_code=True) is None


def test_each_platform_offers_its_own():
    web, console = command_table.offered("web"), command_table.offered("console")
    assert "notebook" in web
    assert "notebook" not in console
    assert ("exit" in console, "exit" in web) == (True, False)


@pytest.mark.parametrize(
    ("words", "title"),
    [("gpt-5 mini (work)", "GPT-5 mini (work)"), ("scribe", "Scribe 2"), ("GPT-5", "GPT-5")],
)
def test_a_model_is_meant_by_its_title_or_a_part_that_only_it_has(words, title):
    assert command_table.model_title(words, ("GPT-5", "GPT-5 mini (work)", "Scribe 2")) == title


def test_a_model_that_cannot_be_meant_is_said_with_those_there_are():
    with pytest.raises(errors.BotError, match=r"^Several models are called gpt: GPT-5; GPT-6\.$"):
        command_table.model_title("gpt", ("GPT-5", "GPT-6", "Scribe"))
    with pytest.raises(errors.BotError, match=r"^There is no model x\. There are: A; B\.$"):
        command_table.model_title("x", ("A", "B"))
