"""What a host process is told, and which are used."""

import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import sys
from importlib import metadata

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.hosts import (
    host_processes,
    host_sockets,
    http_sessions,
    messages,
)
from tests.fakes import host_statuses


def test_a_host_gets_all_settings_of_kernels_and_no_secret(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERPRETER_BOT_SNAPSHOTS__BYTES", raising=False)
    config = settings.Settings(
        limits=settings.Limits(execution_seconds=7),
        kernels=settings.Kernels(spares=3, preload=("numpy",)),
        sandbox=settings.Sandbox(level="standard").with_walls(enabled=False),
        retention=settings.Retention(days=7),
        paths=settings.Paths(data=tmp_path / "d", runtime=tmp_path / "r"),
        mcp_servers=(
            settings.McpServer(name="s", url="https://example.org", token_file=tmp_path / "token"),
        ),
        store=settings.Store(url="postgresql://bot:hidden@db/bot"),
        slack=settings.Slack(bot_token="xoxb-hidden", app_token="xapp-hidden"),
        encryption=settings.Encryption(keys="hidden"),
    )
    variables = config.for_host()
    assert "hidden" not in str(variables)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    read = settings.Settings()
    for group in ("limits", "kernels", "retention", "host"):
        assert getattr(read, group) == getattr(config, group)
    assert (read.sandbox.enabled, read.sandbox.level) == (True, "standard")
    assert (read.paths.data, read.paths.runtime) == (tmp_path / "d", tmp_path / "r")
    # What the bot hides of its own, the host hides too.
    assert set(config.private_paths) <= set(read.private_paths)


STRANGER = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    peer, _ = listener.accept()
    print(peer.recv(1000).decode(), flush=True)
"""


def made(place):
    return settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0),
        paths=settings.Paths(data=place / "d", runtime=place / "r"),
    )


async def refused(config, words, error=errors.SettingsError):
    with pytest.raises(error, match=words):
        async with host_processes.open_host(config, may_start=True):
            pass


async def test_a_bot_refuses_a_directory_that_others_can_write_to_and_a_link(short_path):
    config = made(short_path)
    (short_path / "other").mkdir()
    config.paths.runtime.symlink_to(short_path / "other")
    await refused(config, "is a link")
    config.paths.runtime.unlink()
    place = host_sockets.directory(config.paths)
    place.mkdir(parents=True)
    place.chmod(0o777)
    await refused(config, "Other users can write")
    assert not list(place.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_a_bot_sends_nothing_to_a_host_of_another_user(short_path):
    config = made(short_path)
    config.paths.runtime.mkdir()
    os.chown(config.paths.runtime, 65534, 65534)
    await refused(config, "belongs to another user")
    os.chown(config.paths.runtime, 0, 0)
    for path in (short_path, config.paths.runtime):
        path.chmod(0o755)
    place = host_sockets.make_directory(config.paths, is_shared=False)
    os.chown(place, 65534, 65534)
    stranger = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", STRANGER, str(place / "host.sock")),
        stdout=asyncio.subprocess.PIPE,
    )
    assert await stranger.stdout.readline() == b"ready\n"
    os.chown(place, 0, 0)
    await refused(config, "another user", errors.HostUnusableError)
    assert (await stranger.communicate())[0] == b"\n"
    # Where the directory was made for that user, and not in one for all, it is no stranger.
    os.chown(config.paths.runtime, 65534, 65534)
    assert 65534 in http_sessions.trusted_uids(place / "host.sock")
    short_path.chmod(0o1777)
    assert 65534 not in http_sessions.trusted_uids(place / "host.sock")


async def test_no_second_host_is_started_beside_one_that_is_stuck(short_path, monkeypatch):
    monkeypatch.setattr(http_sessions, "_MAX_STATUS_SECONDS", 0.2)
    config = made(short_path)
    path = host_sockets.make_directory(config.paths, is_shared=False) / "host.sock"
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(str(path))
        stuck.listen()
        await refused(config, "does not answer", errors.HostUnusableError)
    assert not config.paths.data.exists()


@contextlib.asynccontextmanager
async def saying(path, **fields):
    """Play a host that says this of itself."""

    async def answer(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                body = messages.encode_json(fields)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(answer, path):
        yield


def status(config, **fields):
    """What a host of these settings says of itself."""
    status = dataclasses.replace(
        host_statuses.STATUS,
        release=metadata.version("interpreter-bot"),
        fingerprint=host_processes.fingerprint(config),
        private_paths=tuple(map(str, config.private_paths)),
        is_lingering=True,
    )
    return json.loads(messages.encode_json(status)) | fields


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({}, True),
        ({"release": "0.0.1"}, False),
        ({"fingerprint": "other limits"}, False),
        ({"private_paths": []}, False),
        ({"sandbox_level": "none"}, False),
        ({"is_draining": True}, False),
        ({"protocol_version": 1}, False),
    ],
)
async def test_a_command_uses_only_a_compatible_host(short_path, fields, fits):
    config = made(short_path)
    path = host_sockets.make_directory(config.paths, is_shared=False) / "host.sock"
    async with (
        saying(path, **status(config, **fields)),
        host_processes.open_compatible(config.for_one_session()) as found,
    ):
        assert (found is not None) == fits


async def test_a_host_that_does_not_start_in_time_is_killed(short_path, monkeypatch):
    monkeypatch.setattr(host_processes, "_MAX_START_SECONDS", 0.0)
    await refused(made(short_path), "did not start", errors.KernelError)


@pytest.mark.parametrize("parent", [1, 7])
async def test_a_bot_runs_where_other_processes_are_hidden(short_path, monkeypatch, parent):
    read_text = pathlib.Path.read_text

    def read_unless_hidden(path, *arguments, **options):
        if path == pathlib.Path("/proc/1/comm"):
            raise FileNotFoundError(path)
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(pathlib.Path, "read_text", read_unless_hidden)
    monkeypatch.setattr(os, "getppid", lambda: parent)
    monkeypatch.setattr(host_processes, "_MAX_START_SECONDS", 0.0)
    await refused(made(short_path), "did not start", errors.KernelError)
