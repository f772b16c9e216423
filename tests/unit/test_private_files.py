"""Files of secrets, and changes of them by several at once."""

import concurrent.futures

import pytest

from interpreter_bot import encryption, private_files, settings, stored_credentials
from interpreter_bot.platforms import client_tokens


def _add_key(data):
    encryption.KeyRing("", data / "file").add_key()


def _add_client(data):
    client_tokens.add(data / "file", "anna")


def _remove_client(data):
    client_tokens.remove(data / "file", "ben")


def _save(data):
    config = settings.Settings(paths=settings.Paths(data=data))
    stored_credentials.StoredCredentials(config).save({"DISCORD_TOKEN": "t"})


def _reencrypt(data):
    config = settings.Settings(paths=settings.Paths(data=data))
    stored_credentials.StoredCredentials(config).reencrypt()


@pytest.mark.parametrize("change", [_add_key, _add_client, _remove_client, _save, _reencrypt])
def test_who_changes_a_file_waits_for_who_is_changing_it(tmp_path, change):
    if change is _remove_client:
        client_tokens.add(tmp_path / "file", "ben")
    if change is _reencrypt:
        _save(tmp_path)
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        with private_files.locked_for_change(tmp_path / "file"):
            change_future = executor.submit(change, tmp_path)
            assert not concurrent.futures.wait({change_future}, timeout=0.3).done
        change_future.result(timeout=30)
