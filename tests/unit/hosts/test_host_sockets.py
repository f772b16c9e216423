"""Where hosts listen, and whose sockets are left."""

import asyncio
import contextlib
import os
import socket
import stat

import aiohttp
import pytest

from interpreter_bot import errors, settings
from interpreter_bot.hosts import host_sockets, http_sessions


def test_data_directories_have_different_directories_of_sockets(tmp_path):
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


def test_other_users_cannot_enter_the_parent_of_the_sockets(short_path):
    paths = settings.Paths(data=short_path / "d", runtime=short_path / "r" / "un")
    host_sockets.make_socket_path(paths)
    assert stat.S_IMODE(paths.runtime.stat().st_mode) == 0o700


@contextlib.asynccontextmanager
async def answering(path):
    """Listen at a socket, and note what is said there."""
    said, tasks = bytearray(), set()

    async def note(reader, writer):
        tasks.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            said.extend(await reader.read(1000))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            await writer.drain()

    async with await asyncio.start_unix_server(note, path):
        yield said
        await asyncio.wait(tasks, timeout=10)
        await asyncio.sleep(0.05)


async def test_nothing_is_sent_to_a_host_of_another_user(short_path, monkeypatch):
    path = short_path / "s"
    monkeypatch.setattr(http_sessions, "trusted_uids", lambda _: {os.geteuid() + 1})
    async with answering(path) as said, http_sessions.HostSession(path) as session:
        with pytest.raises(errors.HostUnusableError, match="another user"):
            await session.request("POST", "/v1/stop", data=b"secret")
        with pytest.raises(errors.HostUnusableError, match="another user"):
            await session.ws_connect("/v1/events")
    assert said == b""


async def test_a_host_is_not_used_if_its_owner_was_not_checked(short_path, monkeypatch):
    path = short_path / "s"
    monkeypatch.setattr(http_sessions.Connector, "connect", aiohttp.UnixConnector.connect)
    async with answering(path), http_sessions.HostSession(path) as session:
        with pytest.raises(errors.HostUnusableError, match="cannot tell which user"):
            await http_sessions.read_status(session, path)
