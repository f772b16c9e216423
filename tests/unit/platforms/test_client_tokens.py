import pytest

from interpreter_bot import errors
from interpreter_bot.platforms import client_tokens


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data" / client_tokens.MCP_FILE


def test_a_token_names_its_client_until_that_is_removed(file):
    tokens = client_tokens.ClientTokens(file)
    assert tokens.find_client("") is None
    anna, ben = client_tokens.add(file, "anna"), client_tokens.add(file, "ben")
    assert (tokens.find_client(anna), tokens.find_client(ben)) == ("anna", "ben")
    client_tokens.remove(file, "anna")
    assert (tokens.find_client(anna), tokens.find_client(ben)) == (None, "ben")
    assert client_tokens.list_names(file) == ("ben",)


def test_the_file_holds_no_token_and_is_private(file):
    token = client_tokens.add(file, "anna")
    assert token not in file.read_text("utf-8")
    assert file.stat().st_mode & 0o077 == 0
    # What is in the file is no token.
    assert client_tokens.ClientTokens(file).find_client(file.read_text("utf-8").split()[1]) is None


def test_a_file_that_others_can_read_admits_nobody(file):
    token = client_tokens.add(file, "anna")
    file.chmod(0o644)
    with pytest.raises(errors.SettingsError, match="Other users can read"):
        client_tokens.ClientTokens(file).find_client(token)


@pytest.mark.parametrize("name", ["", "Anna", "a b", "a\nb", "-a", "a" * 33, "é", "../a"])
def test_a_name_that_is_no_word_is_refused(file, name):
    with pytest.raises(errors.SettingsError, match="A client's name has"):
        client_tokens.add(file, name)


def test_a_name_is_given_once(file):
    client_tokens.add(file, "anna")
    with pytest.raises(errors.SettingsError, match="already a client anna"):
        client_tokens.add(file, "anna")
    with pytest.raises(errors.SettingsError, match="no client ben"):
        client_tokens.remove(file, "ben")
