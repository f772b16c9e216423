"""What a host process is told, and where it listens."""

import asyncio
import os
import socket
import stat
import sys

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.hosts import host_connection, host_processes, socket_owners, wire_messages


def test_host_is_told_all_settings_of_kernels_and_no_secret(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERPRETER_BOT_SNAPSHOTS__ENABLED", raising=False)
    config = settings.Settings(
        limits=settings.Limits(execution_seconds=7),
        kernels=settings.Kernels(spares=3, preload=("numpy",)),
        sandbox=settings.Sandbox(enabled=False, cgroups="off"),
        snapshots=settings.Snapshots(days=2),
        paths=settings.Paths(data=tmp_path / "d", runtime=tmp_path / "r"),
        web=settings.Web(token_file=tmp_path / "token"),
        store=settings.Store(url="postgresql://bot:hidden@db/bot"),
        slack=settings.Slack(bot_token="xoxb-hidden", app_token="xapp-hidden"),
        encryption=settings.Encryption(keys="hidden"),
    )
    variables = config.for_host()
    assert "hidden" not in str(variables)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    read = settings.Settings()
    for group in ("limits", "kernels", "snapshots", "host"):
        assert getattr(read, group) == getattr(config, group)
    assert (read.sandbox.enabled, read.sandbox.cgroups) == (True, "off")
    assert (read.paths.data, read.paths.runtime) == (tmp_path / "d", tmp_path / "r")
    # What the bot hides of its own, the host hides too.
    assert set(config.private_paths) <= set(read.private_paths)


def test_hosts_of_two_data_directories_do_not_meet(tmp_path):
    one, two = (settings.Paths(data=tmp_path / name, runtime=tmp_path) for name in "ab")
    assert host_processes.directory(one) != host_processes.directory(two)
    long = settings.Paths(data=tmp_path, runtime=tmp_path / ("x" * 100))
    with pytest.raises(errors.SettingsError, match="too long"):
        host_processes.directory(long)


def test_sockets_of_hosts_that_were_killed_are_removed(short_path):
    paths = settings.Paths(data=short_path / "d", runtime=short_path)
    made = host_processes.make_socket_path(paths)
    assert made.name == f"{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(made.with_name("1.sock")))
    with socket.socket(socket.AF_UNIX) as serving:
        serving.bind(str(made.with_name("2.sock")))
        serving.listen()
        host_processes.make_socket_path(paths)
        assert {path.name for path in made.parent.iterdir()} == {"2.sock"}


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


def test_directory_of_sockets_is_for_nobody_else(short_path):
    paths = settings.Paths(data=short_path / "d", runtime=short_path / "r" / "un")
    host_processes.make_socket_path(paths)
    assert stat.S_IMODE(paths.runtime.stat().st_mode) == 0o700


async def test_bot_uses_no_directory_that_others_can_write_to_or_lead_elsewhere(short_path):
    config = made(short_path)
    (short_path / "other").mkdir()
    config.paths.runtime.symlink_to(short_path / "other")
    await refused(config, "is a link")
    config.paths.runtime.unlink()
    place = host_processes.directory(config.paths)
    place.mkdir(parents=True)
    place.chmod(0o777)
    await refused(config, "Others may write")
    assert not list(place.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_bot_says_nothing_to_a_host_of_another_user(short_path):
    config = made(short_path)
    config.paths.runtime.mkdir()
    os.chown(config.paths.runtime, 65534, 65534)
    await refused(config, "belongs to another user")
    os.chown(config.paths.runtime, 0, 0)
    for path in (short_path, config.paths.runtime):
        path.chmod(0o755)
    place = host_processes.make_directory(config.paths, is_shared=False)
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
    assert 65534 in socket_owners.Connector(place / "host.sock")._trusted
    short_path.chmod(0o1777)
    assert 65534 not in socket_owners.Connector(place / "host.sock")._trusted


async def test_no_second_host_is_started_beside_one_that_is_stuck_or_of_another_release(
    short_path, monkeypatch
):
    monkeypatch.setattr(host_connection, "_STATUS_SECONDS", 0.2)
    config = made(short_path)
    path = host_processes.make_directory(config.paths, is_shared=False) / "host.sock"
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(str(path))
        stuck.listen()
        await refused(config, "does not answer", errors.HostUnusableError)
    path.unlink()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = wire_messages.document({"protocol": 0})
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(answer, path):
        await refused(config, "host drain", errors.HostUnusableError)
    assert not config.paths.data.exists()


async def test_host_that_does_not_begin_is_ended(short_path, monkeypatch):
    monkeypatch.setattr(host_processes, "_START_SECONDS", 0.0)
    await refused(made(short_path), "did not start", errors.KernelError)
