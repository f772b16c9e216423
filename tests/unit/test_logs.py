"""The log, as it is written to stderr."""

import logging
import time

import pytest

from interpreter_bot import errors, logs, settings, stored_credentials


@pytest.fixture
def log():
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield logging.getLogger("interpreter_bot.test")
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def _raise_foreseen():
    try:
        raise OSError(98, "Address already in use")
    except OSError as error:
        raise errors.SettingsError("Port 8765 is in use.") from error


def _log_foreseen(log):
    try:
        _raise_foreseen()
    except errors.SettingsError:
        log.exception("The web page failed")


def test_a_foreseen_error_is_one_line_with_its_causes(log, capsys):
    logs.configure("info")
    _log_foreseen(log)
    (line,) = capsys.readouterr().err.splitlines()
    assert "Traceback" not in line
    assert line.endswith(
        "The web page failed\\nSettingsError: Port 8765 is in use. <- "
        "OSError: [Errno 98] Address already in use"
    )


def test_a_foreseen_error_has_its_traceback_at_the_level_debug(log, capsys):
    logs.configure("debug")
    _log_foreseen(log)
    assert "Traceback" in capsys.readouterr().err


def test_an_unforeseen_error_has_its_traceback(log, capsys):
    logs.configure("info")
    try:
        raise KeyError("missing")
    except KeyError:
        log.exception("a turn failed")
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.slow
def test_thousands_of_renewed_tokens_slow_no_line_down(log, capsys):
    logs.configure("info")
    logs.add_secrets(["the-operators-key"])
    logs.add_secrets((f"token-{number:06}" for number in range(20_000)), are_short_lived=True)
    began = time.perf_counter()
    for _ in range(20):
        log.info("the-operators-key and token-019999")
    seconds = time.perf_counter() - began
    assert capsys.readouterr().err.count("[redacted] and [redacted]") == 20
    assert seconds / 20 < 0.02


def test_errors_of_a_library_that_quotes_what_servers_send_are_only_named(log, capsys):
    logs.configure("info")
    logger = logging.getLogger("mcp.client.streamable_http")
    try:
        raise ValueError("input_value={'salary': 5000}")
    except ValueError:
        logger.exception("Error parsing SSE message")
    logger.warning("Unknown SSE event: %s", "x" * 10_000)
    output = capsys.readouterr().err
    assert "Error parsing SSE message" in output
    assert "ValueError" in output
    assert "salary" not in output
    assert len(output) < 1000


def test_the_log_shows_stored_addresses_and_models_but_no_key(log, capsys, tmp_path):
    variables = {
        "OPENAI_API_KEY": "sk-of-this-test",
        "OPENAI_BASE_URL": "http://user-of:pass-of-it@models.example/v1?key=query-of-it&bare-of-it",
        "OPENAI_MODEL": "gpt-of-this-test",
        "DISCORD_TOKEN": "token-of-this-test",
    }
    config = settings.Settings(paths=settings.Paths(data=tmp_path))
    credentials = stored_credentials.StoredCredentials(config)
    credentials.save(variables)
    credentials.load()
    logs.configure("info")
    log.warning(" ".join(variables.values()))
    line = capsys.readouterr().err
    assert "@models.example/v1" in line
    assert "gpt-of-this-test" in line
    for secret in ("sk-of", "user-of", "pass-of", "query-of", "bare-of", "token-of"):
        assert secret not in line
