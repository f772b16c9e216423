"""Where hosts listen, and whose sockets are left."""

import os
import socket
import stat

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.hosts import host_sockets


def test_hosts_of_two_data_directories_do_not_meet(tmp_path):
    one, two = (settings.Paths(data=tmp_path / name, runtime=tmp_path) for name in "ab")
    assert host_sockets.directory(one) != host_sockets.directory(two)
    long = settings.Paths(data=tmp_path, runtime=tmp_path / ("x" * 100))
    with pytest.raises(errors.SettingsError, match="too long"):
        host_sockets.directory(long)


def test_sockets_of_hosts_that_were_killed_are_removed(short_path):
    paths = settings.Paths(data=short_path / "d", runtime=short_path)
    made = host_sockets.make_socket_path(paths)
    assert made.name == f"{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(made.with_name("1.sock")))
    with socket.socket(socket.AF_UNIX) as serving:
        serving.bind(str(made.with_name("2.sock")))
        serving.listen()
        host_sockets.make_socket_path(paths)
        assert {path.name for path in made.parent.iterdir()} == {"2.sock"}


def test_directory_of_sockets_is_for_nobody_else(short_path):
    paths = settings.Paths(data=short_path / "d", runtime=short_path / "r" / "un")
    host_sockets.make_socket_path(paths)
    assert stat.S_IMODE(paths.runtime.stat().st_mode) == 0o700
