import stat

import pytest

from interpreter_bot import errors
from interpreter_bot.platforms.web import access


def test_is_made_once_and_private(tmp_path):
    file = tmp_path / "data" / "web-token"
    first = access.load_or_create_token(file)
    assert access.load_or_create_token(file) == first
    assert len(first) >= 43
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in file.parent.iterdir()] == ["web-token"]


def test_two_have_two(tmp_path):
    assert access.load_or_create_token(tmp_path / "one") != access.load_or_create_token(
        tmp_path / "two"
    )


@pytest.mark.parametrize("text", ["", "short", "x" * 201, "with space " * 5, "é" * 40])
def test_what_is_no_token_is_refused(tmp_path, text):
    file = tmp_path / "web-token"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(errors.SettingsError, match="holds no token"):
        access.load_or_create_token(file)


def test_one_that_others_can_read_is_refused(tmp_path):
    file = tmp_path / "web-token"
    access.load_or_create_token(file)
    file.chmod(0o640)
    with pytest.raises(errors.SettingsError, match="chmod 600"):
        access.load_or_create_token(file)


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.SettingsError, match="cannot be used"):
        access.load_or_create_token(tmp_path / "file" / "web-token")
