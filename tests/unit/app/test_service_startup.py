"""Files on their way to people lie where space is watched."""

import os
import tempfile
import types

import pytest

from interpreter_bot import errors
from interpreter_bot.app import service_startup


def test_temporary_files_lie_below_the_data_as_long_as_the_bot_runs(tmp_path):
    former_directory = tempfile.gettempdir()
    with (
        service_startup.spool_directory(tmp_path / "data"),
        tempfile.NamedTemporaryFile() as file,
    ):
        assert file.name.startswith(f"{tmp_path}/data/spool/")
        assert (tmp_path / "data" / "spool").stat().st_mode & 0o077 == 0
    assert tempfile.gettempdir() == former_directory


def test_what_a_killed_bot_left_behind_is_removed_and_nothing_younger(tmp_path):
    old, young = tmp_path / "spool" / "old", tmp_path / "spool" / "young"
    for directory in (old, young):
        directory.mkdir(parents=True)
        (directory / "file").write_text("x")
    os.utime(old, (0, 0))
    with service_startup.spool_directory(tmp_path):
        assert not old.exists()
        assert young.exists()


def test_a_directory_that_another_process_deletes_meanwhile_is_no_error(tmp_path, monkeypatch):
    other = tmp_path / "spool" / "other"
    other.mkdir(parents=True)

    def delete_other():
        other.rmdir()
        return 0.0

    # The clock is read between the two looks at the directory.
    monkeypatch.setattr(service_startup, "time", types.SimpleNamespace(time=delete_other))
    with service_startup.spool_directory(tmp_path):
        assert not other.exists()


def test_a_directory_that_cannot_be_made_is_an_error_for_the_operator(tmp_path):
    (tmp_path / "data").write_text("no directory")
    with (
        pytest.raises(errors.SettingsError, match="data/spool cannot be used: Not a directory"),
        service_startup.spool_directory(tmp_path / "data"),
    ):
        pass
