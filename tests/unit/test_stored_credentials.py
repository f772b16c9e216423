"""Keys and tokens on disk."""

import pytest

from interpreter_bot import errors, settings, stored_credentials
from interpreter_bot.sessions import model_setup


@pytest.fixture
def config(tmp_path):
    return settings.Settings(paths=settings.Paths(data=tmp_path / "data"))


def test_they_are_encrypted_kept_changed_and_removed(config):
    credentials = stored_credentials.StoredCredentials(config)
    assert credentials.load() == {}
    credentials.save({"OPENAI_API_KEY": "sk-1", "DISCORD_TOKEN": "t"})
    file = config.paths.data / "credentials"
    assert "sk-1" not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    credentials.save({"OPENAI_API_KEY": "sk-2", "OPENAI_BASE_URL": "", "DISCORD_TOKEN": ""})
    assert stored_credentials.StoredCredentials(config).load() == {"OPENAI_API_KEY": "sk-2"}
    former_text = file.read_text()
    assert credentials.reencrypt() == 1
    assert file.read_text() != former_text
    assert credentials.load() == {"OPENAI_API_KEY": "sk-2"}


@pytest.mark.parametrize("text", ["nonsense", "[1]", '{"OPENAI_API_KEY": "fernet:broken"}'])
def test_a_damaged_file_is_told(config, text):
    config.paths.data.mkdir()
    file = config.paths.data / "credentials"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(errors.SettingsError):
        stored_credentials.StoredCredentials(config).load()


def test_a_lost_key_is_told_with_the_file_that_has_to_be_deleted(config):
    stored_credentials.StoredCredentials(config).save({"OPENAI_API_KEY": "sk-1"})
    (config.paths.data / "keys").unlink()
    with pytest.raises(errors.SettingsError, match="key is lost") as caught:
        stored_credentials.StoredCredentials(config).load()
    file = config.paths.data / "credentials"
    assert f"delete {file} " in str(caught.value)
    file.unlink()
    stored_credentials.StoredCredentials(config).save({"OPENAI_API_KEY": "sk-2"})
    assert stored_credentials.StoredCredentials(config).load() == {"OPENAI_API_KEY": "sk-2"}


def test_stored_tokens_count_only_if_no_others_are_set(config):
    stored = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "DISCORD_TOKEN": "d"}
    with_tokens = stored_credentials.with_stored_tokens(config, stored)
    assert with_tokens.slack.bot_token.get_secret_value() == "xoxb-1"
    assert with_tokens.slack.app_token.get_secret_value() == "xapp-1"
    assert with_tokens.discord.token.get_secret_value() == "d"
    with_own_token = config.model_copy(update={"discord": settings.Discord(token="other")})
    assert (
        stored_credentials.with_stored_tokens(
            with_own_token, stored
        ).discord.token.get_secret_value()
        == "other"
    )


def test_stored_models_are_not_mixed_with_those_of_the_environment():
    stored = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "DISCORD_TOKEN": "d"}
    assert model_setup.add_stored_models({"OPENAI_API_KEY": "sk"}, stored) == {
        "OPENAI_API_KEY": "sk"
    }
    assert model_setup.add_stored_models({"A": "b"}, stored) == {
        "A": "b",
        "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
    }
