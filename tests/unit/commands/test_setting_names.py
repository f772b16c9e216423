"""Wrong settings, as the command line reports them."""

import logging
import os
import subprocess
import sys

import pytest

from interpreter_bot import cli


@pytest.fixture
def refusal(tmp_path, monkeypatch, capsys):
    """Give what a command prints that refuses a file or variables."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)

    def run_refused(toml="", **variables):
        file = tmp_path / "bot.toml"
        file.write_text(toml)
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            assert cli.main(["--config", str(file), "sessions"]) == 2
        return capsys.readouterr().err

    yield run_refused
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("INTERPRETER_BOT_DATA_DIRECTORY", "INTERPRETER_BOT_PATHS__DATA"),
        ("INTERPRETER_BOT_WEB_LISTEN", "INTERPRETER_BOT_WEB__LISTEN"),
        ("INTERPRETER_BOT_KERNEL__SPARES", "INTERPRETER_BOT_KERNELS__SPARES"),
        ("INTERPRETER_BOT_SLACK_BOT_TOKEN", "INTERPRETER_BOT_SLACK__BOT_TOKEN"),
        ("interpreter_bot_web_listen", "INTERPRETER_BOT_WEB__LISTEN"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_one_that_was_meant(refusal, variable, meant):
    output = refusal(**{variable: "1"})
    assert output == f"interpreter-bot: There is no setting {variable}. Did you mean {meant}?\n"


def test_a_variable_like_no_other_is_refused_without_a_guess(refusal):
    output = refusal(INTERPRETER_BOT_QWERTY="1")
    assert output == "interpreter-bot: There is no setting INTERPRETER_BOT_QWERTY.\n"


@pytest.mark.parametrize(
    ("toml", "unknown", "meant"),
    [
        ("[web]\nlisten_on = 1", "web.listen_on", "web.listen"),
        ("[kernel]\nspares = 1", "kernel", "kernels"),
        ('[[models]]\nnme = "gpt"', "models.0.nme", "models.name"),
    ],
)
def test_an_unknown_name_in_the_file_is_refused_with_the_one_meant(refusal, toml, unknown, meant):
    output = refusal(toml)
    assert f"There is no setting {unknown}. Did you mean {meant}?" in output


def test_a_wrong_value_is_named_and_not_repeated(refusal):
    output = refusal(INTERPRETER_BOT_WEB__LISTEN="sk-secret")
    assert output.startswith(
        "interpreter-bot: The setting web.listen is wrong: it must be an address"
    )
    assert "sk-secret" not in output


KEY = "sk-" + "a1b2" * 8


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("sk-abc•••••xyz", "has a character that cannot be sent (bullet)"),
        (f"{KEY[:20]}\u200b{KEY[20:]}", "has a character that cannot be sent"),
        (f"{KEY}\n", "has a space or a line break at its beginning or end"),
        (f" {KEY}", "has a space or a line break at its beginning or end"),
        (f"{KEY[:20]}\n{KEY[20:]}", "has a line break in it"),
        (f"{KEY[:20]} {KEY[20:]}", "has a space in it"),
        (f'"{KEY}"', "has quotes around it"),
        (f"\u201c{KEY}\u201d", "has quotes around it"),
        (f"Bearer {KEY}", "begins with 'Bearer'; give the key alone"),
        (f"OPENAI_API_KEY={KEY}", "holds the name of a variable as well"),
        ("sk-...abcd", "is a placeholder or was copied from a masked display"),
        ("<your key>", "has a space in it"),
        ("${OPENAI_API_KEY}", "is a placeholder"),
    ],
)
def test_a_key_that_no_server_can_take_is_refused_at_once(refusal, value, fault):
    for variable, name in {
        "OPENAI_API_KEY": "OPENAI_API_KEY cannot be used: it",
        "ANTHROPIC_API_KEY": "ANTHROPIC_API_KEY cannot be used: it",
        "SLACK_BOT_TOKEN": "The setting slack.bot_token is wrong: it",
        "DISCORD_TOKEN": "The setting discord.token is wrong: it",
    }.items():
        output = refusal(**{variable: value})
        assert output.startswith(f"interpreter-bot: {name} {fault}")
        assert output.count("\n") == 1
        assert "a1b2a1b2" not in output


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("variable", "value", "fault"),
    [
        ("OPENAI_BASE_URL", "localhost:8000/v1", "has to begin with http"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:80000/v1", "has to begin with http"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1 ", "has a space or a line break"),
        ("ANTHROPIC_BASE_URL", "'http://127.0.0.1:1'", "has quotes around it"),
        ("OPENAI_ORG_ID", "org-é", "has a character that cannot be sent"),
        ("OPENAI_PROJECT_ID", "proj\n1", "has a line break in it"),
    ],
)
def test_other_headers_and_addresses_of_models_are_checked_too(refusal, variable, value, fault):
    output = refusal(**{variable: value})
    assert output.startswith(f"interpreter-bot: {variable} cannot be used: it {fault}")


def test_the_key_of_a_model_in_the_file_is_checked(refusal):
    toml = '[[models]]\nname = "m"\napi_key_variable = "MY_KEY"'
    output = refusal(toml, MY_KEY=f"Bearer {KEY}")
    assert output.startswith("interpreter-bot: MY_KEY cannot be used: it begins with 'Bearer'")
    output = refusal('[[models]]\nname = "m"\nbase_url = "api.example/v1"')
    assert "The setting models.0.base_url is wrong: it has to begin with http" in output


def test_variables_of_a_kubernetes_service_of_our_name_are_passed_over(tmp_path):
    process = subprocess.run(
        [sys.executable, "-m", "interpreter_bot", "sessions", "list"],
        env=os.environ
        | {
            "INTERPRETER_BOT_PATHS__DATA": str(tmp_path),
            "INTERPRETER_BOT_SERVICE_HOST": "10.0.0.1",
            "INTERPRETER_BOT_SERVICE_PORT_HTTP": "8080",
            "INTERPRETER_BOT_PORT": "tcp://10.0.0.1:8080",
            "INTERPRETER_BOT_PORT_8080_TCP_ADDR": "10.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "There is no setting" not in process.stderr
