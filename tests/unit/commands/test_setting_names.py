"""Wrong settings, as the command line reports them."""

import os
import subprocess
import sys

import pytest


def _stderr(tmp_path, toml="", **variables):
    file = tmp_path / "bot.toml"
    file.write_text(toml)
    process = subprocess.run(
        [sys.executable, "-m", "interpreter_bot", "--config", str(file), "sessions"],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 2
    assert "Traceback" not in process.stderr
    return process.stderr


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("INTERPRETER_BOT_DATA_DIRECTORY", "INTERPRETER_BOT_PATHS__DATA"),
        ("INTERPRETER_BOT_WEB_PORT", "INTERPRETER_BOT_WEB__PORT"),
        ("INTERPRETER_BOT_KERNEL__SPARES", "INTERPRETER_BOT_KERNELS__SPARES"),
        ("INTERPRETER_BOT_SLACK_BOT_TOKEN", "INTERPRETER_BOT_SLACK__BOT_TOKEN"),
        ("interpreter_bot_web_port", "INTERPRETER_BOT_WEB__PORT"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_one_that_was_meant(tmp_path, variable, meant):
    said = _stderr(tmp_path, **{variable: "1"})
    assert said == f"interpreter-bot: There is no setting {variable}. Did you mean {meant}?\n"


def test_a_variable_like_no_other_is_refused_without_a_guess(tmp_path):
    said = _stderr(tmp_path, INTERPRETER_BOT_QWERTY="1")
    assert said == "interpreter-bot: There is no setting INTERPRETER_BOT_QWERTY.\n"


@pytest.mark.parametrize(
    ("toml", "unknown", "meant"),
    [
        ("[web]\nprot = 1", "web.prot", "web.port"),
        ("[kernel]\nspares = 1", "kernel", "kernels"),
        ('[[models]]\nnme = "gpt"', "models.0.nme", "models.name"),
    ],
)
def test_an_unknown_name_in_the_file_is_refused_with_the_one_meant(tmp_path, toml, unknown, meant):
    said = _stderr(tmp_path, toml)
    assert f"There is no setting {unknown}. Did you mean {meant}?" in said


def test_a_wrong_value_is_named_and_not_repeated(tmp_path):
    said = _stderr(tmp_path, INTERPRETER_BOT_WEB__PORT="sk-secret")
    assert said.startswith("interpreter-bot: The setting web.port is wrong: ")
    assert "sk-secret" not in said
