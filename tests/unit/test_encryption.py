import os
import pathlib
import stat

import pytest
from cryptography import fernet

from interpreter_bot import encryption, errors, settings


def new_key():
    return fernet.Fernet.generate_key().decode()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data" / "keys"


def test_a_key_is_made_when_it_is_needed_and_private(file):
    ring = encryption.KeyRing("", file)
    assert ring.decrypt("in clear") == "in clear"
    assert not ring.is_current("in clear")
    assert not file.exists()
    secret = ring.encrypt("xoxb-1")
    assert "xoxb" not in secret
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["keys"]
    next_ring = encryption.KeyRing("", file)
    assert next_ring.is_current(secret)
    assert next_ring.decrypt(secret) == "xoxb-1"


def test_the_first_key_encrypts_and_all_decrypt(file):
    old_key, new = new_key(), new_key()
    secret = encryption.KeyRing(old_key, file).encrypt("xoxb-1")
    ring = encryption.KeyRing(f"{new}, {old_key}", file)
    assert ring.decrypt(secret) == "xoxb-1"
    assert not ring.is_current(secret)
    assert encryption.KeyRing(new, file).decrypt(ring.encrypt("xoxb-1")) == "xoxb-1"
    assert not file.exists()


def test_a_running_bot_reads_what_a_rotated_key_encrypted(file):
    ring_of_bot, ring_of_command = encryption.KeyRing("", file), encryption.KeyRing("", file)
    old_secret = ring_of_bot.encrypt("xoxb-1")
    assert ring_of_command.add_key()
    assert ring_of_bot.decrypt(ring_of_command.encrypt("xoxb-2")) == "xoxb-2"
    assert not ring_of_command.is_current(old_secret)
    assert ring_of_command.decrypt(old_secret) == "xoxb-1"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["keys"]


def test_keys_of_the_environment_are_rotated_there(file):
    assert not encryption.KeyRing(new_key(), file).add_key()
    assert not file.exists()


@pytest.mark.parametrize("given", ["", "another"])
def test_a_missing_key_is_said_and_none_is_made_in_its_place(file, given):
    secret = encryption.KeyRing(new_key(), file).encrypt("xoxb-1")
    ring = encryption.KeyRing(given and new_key(), file)
    with pytest.raises(errors.SettingsError, match="Add it there"):
        ring.decrypt(secret)
    assert not file.exists()


def test_what_is_no_key_is_refused_without_repeating_it(file):
    with pytest.raises(errors.SettingsError, match=r"encryption\.keys") as refusal:
        encryption.KeyRing("secret-but-no-key", file)
    assert "secret-but" not in str(refusal.value)


@pytest.mark.parametrize("given", [",", " "])
def test_an_environment_without_any_key_is_refused(file, given):
    with pytest.raises(errors.SettingsError, match=r"encryption\.keys .* holds no key"):
        encryption.KeyRing(given, file)


def test_an_empty_file_is_refused_and_not_filled(file):
    file.parent.mkdir()
    file.touch(mode=0o600)
    with pytest.raises(errors.SettingsError, match="keys is there but holds no key"):
        encryption.KeyRing("", file).encrypt("x")
    assert file.read_text() == ""


def test_a_new_key_is_in_its_place_before_the_directory_is_synchronized(file, monkeypatch):
    synchronized = []

    def synchronize_and_note(descriptor, synchronize=os.fsync):
        synchronize(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            place = pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            synchronized.append((place, file.read_text()))

    monkeypatch.setattr(os, "fsync", synchronize_and_note)
    ring = encryption.KeyRing("", file)
    ring.encrypt("x")
    assert synchronized == [(file.parent, file.read_text())]
    ring.add_key()
    assert synchronized[1:] == [(file.parent, file.read_text())]


def test_a_file_that_others_can_read_is_refused(file):
    encryption.KeyRing("", file).encrypt("x")
    file.chmod(0o640)
    with pytest.raises(errors.SettingsError, match="chmod 600"):
        encryption.KeyRing("", file).encrypt("x")


def test_kernels_must_not_see_the_file(tmp_path):
    config = settings.Settings(paths=settings.Paths(data=tmp_path))
    file = pathlib.Path(encryption.KeyRing.from_settings(config).location)
    assert file == tmp_path / "keys"
    assert any(file.is_relative_to(path) for path in config.private_paths)
