"""Hosts of a Ray cluster of two local nodes: no execution notices that Ray or `fleet` is killed.

Run where Ray is installed (`pip install '.[cluster]'`); takes about two minutes.
"""

import asyncio
import contextlib
import os
import pathlib
import signal
import socket
import sqlite3
import subprocess
import sys

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.app import execution_startup
from interpreter_bot.hosts import (
    cancellable_executions,
    certificate_authorities,
    host_processes,
    host_sockets,
)

pytestmark = [pytest.mark.live, pytest.mark.kernel, pytest.mark.timeout(400)]
RAY = pathlib.Path(sys.prefix, "bin/ray")
COUNT = 250
TICKS = f"import time\nfor n in range({COUNT}):\n    print(n, flush=True)\n    time.sleep(0.2)"


def free_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


class Cluster:
    """Ray and `interpreter-bot fleet`, each process by its id."""

    def __init__(self, place, certificates):
        self.place = place
        self.address = f"127.0.0.1:{free_port()}"
        self.nodes = {name: self._config(name, certificates) for name in ("head", "other")}
        self.started = {}
        self.fleet = None

    def _config(self, name, certificates):
        return settings.Settings(
            kernels=settings.Kernels(preload=(), spares=0),
            paths=settings.Paths(data=self.place / name, runtime=self.place / f"r{name[0]}"),
            host=settings.Host(listen=f"127.0.0.1:{free_port()}", tls=certificates),
        )

    def start_host(self, name):
        """Start the host of a node before Ray does, as its pod on Kubernetes does."""
        with (self.place / "host.log").open("wb") as log:
            self.started["host"] = subprocess.Popen(
                [sys.executable, "-m", "interpreter_bot", "host"],
                env=dict(os.environ) | self.nodes[name].for_host(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self, name, *options, **variables_of_its_own):
        """Start a node in the foreground, so that its processes are children of ours.

        Without variables of its own it has those of its host.
        """
        own = "--head --port={} --include-dashboard=false --num-cpus=1"
        port = self.address.partition(":")[2]
        words = own.format(port) if name == "head" else f"--address={self.address} --num-cpus=1"
        variables = dict(os.environ) | {"RAY_USAGE_STATS_ENABLED": "0"}
        variables |= variables_of_its_own or self.nodes[name].for_host()
        log = (self.place / f"{name}.log").open("wb")
        with log:
            self.started[name] = subprocess.Popen(
                [
                    RAY,
                    "start",
                    "--block",
                    "--node-ip-address=127.0.0.1",
                    *words.split(),
                    *options,
                    "--object-store-memory=100000000",
                    f"--temp-dir={self.place / 'ray'}",
                ],
                env=variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def is_up(self):
        """Whether the head answers; other nodes wait for it but shortly."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.address.split(":")[1])
        except OSError:
            return False
        writer.close()
        return True

    def start_fleet(self, config):
        variables = dict(os.environ) | {"INTERPRETER_BOT_PATHS__DATA": str(config.paths.data)}
        with (self.place / "fleet.log").open("ab") as log:
            self.fleet = subprocess.Popen(
                [sys.executable, "-m", "interpreter_bot", "fleet", "--address", self.address],
                env=variables,
                stdout=log,
                stderr=log,
            )

    def kill(self, name, kind):
        """Kill one kind of process of a node."""
        (pid,) = [pid for pid in children(self.started[name].pid) if kind in command(pid)]
        os.kill(pid, signal.SIGKILL)

    def end(self):
        if self.fleet is not None:
            self.fleet.kill()
            self.fleet.wait()
        for one in self.started.values():
            # All of them at once: what starts a node waits for what it started.
            for pid in [*descendants(one.pid), one.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            one.wait(30)
        for config in self.nodes.values():
            with contextlib.suppress(errors.KernelError):
                status = asyncio.run(
                    host_processes.read_status(host_sockets.newest_link(config.paths))
                )
                os.kill(status.pid, signal.SIGKILL)


def children(pid):
    listed = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in listed.split()]


def descendants(pid):
    for child in children(pid):
        yield from descendants(child)
        yield child


def command(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()


@pytest.fixture
def cluster(short_path, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed; it is the extra [cluster]")
    authority = certificate_authorities.CertificateAuthority(tmp_path / "ca")
    made = Cluster(short_path, authority.issue(["127.0.0.1"], is_bot=False, days=1))
    made.bot = authority.issue(["bot"], is_bot=True, days=1)
    try:
        yield made
    finally:
        made.end()


async def until(is_so, seconds=120):
    async with asyncio.timeout(seconds):
        while not await is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("address", ["auto", f"127.0.0.1:{free_port()}"])
def test_a_cluster_that_is_not_there_is_told_of(address, short_path):
    pytest.importorskip("ray", reason="Ray is not installed; it is the extra [cluster]")
    done = subprocess.run(
        [sys.executable, "-m", "interpreter_bot", "fleet", "--address", address],
        env=dict(os.environ) | {"INTERPRETER_BOT_PATHS__DATA": str(short_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"There is no Ray cluster at {address}" in done.stderr


async def test_no_running_execution_notices_that_ray_or_fleet_is_killed(cluster, short_path):
    config = settings.Settings(
        paths=settings.Paths(data=short_path / "bot", runtime=short_path / "rb"),
        host=settings.Host(fleet=("ray",), tls=cluster.bot),
    )
    cluster.start("head")
    await until(cluster.is_up)
    cluster.start("other")
    async with execution_startup.open_database(config, takes_orphans=False) as database:
        cluster.start_fleet(config)

        async def has_both():
            if cluster.fleet.poll() is not None:
                # The cluster was not up yet; whatever keeps it running starts it again.
                cluster.start_fleet(config)
            return len(await database.fleet_hosts.list_addresses()) == 2

        await until(has_both)
    async with opened(config) as hosts:
        shown = {}

        async def ticking(key):
            shown[key] = []
            async with hosts.lease(key) as lease:
                kernel = await lease.kernel()
                return await cancellable_executions.run(
                    hosts, kernel, TICKS, show=lambda one: shown[key].append(one.plain)
                )

        keys = [f"s{number}" for number in range(6)]
        # By themselves all may go to one.
        for key, host in zip(keys, list(hosts._connected_hosts()) * 3, strict=True):
            await hosts._placements.put(key, host.connection.status.data_id, former_epoch=0)
        running = [asyncio.create_task(ticking(key)) for key in keys]

        async def go_on():
            before = {key: len(shown.get(key, ())) for key in keys}

            async def further():
                return all(len(shown.get(key, ())) > before[key] + 2 for key in keys)

            await until(further, 60)

        await go_on()
        cluster.fleet.kill()
        cluster.fleet.wait()
        await go_on()
        cluster.kill("other", "raylet")
        await go_on()
        cluster.kill("head", "gcs_server")
        await go_on()
        ended = await asyncio.gather(*running)
        assert len(await hosts_used(hosts, keys)) == 2, "both hosts had some"
        assert [one.ending.value for one in ended] == ["ok"] * len(keys)
        for key in keys:
            assert "".join(shown[key]).split() == [str(number) for number in range(COUNT)]

    # Whoever starts now finds them by what the table said last.
    async with opened(config) as hosts, hosts.lease(keys[0]) as lease:
        told = []
        await cancellable_executions.run(
            hosts, await lease.kernel(), "n + 1", show=lambda one: told.append(one.plain)
        )
        assert "".join(told).strip() == str(COUNT)


async def test_only_nodes_that_offer_it_have_a_host_which_may_be_there_before_ray(
    cluster, short_path
):
    config = settings.Settings(paths=settings.Paths(data=short_path / "bot"))
    other = cluster.nodes["other"]
    cluster.start_host("other")
    cluster.start("head", INTERPRETER_BOT_PATHS__DATA=str(short_path / "none"))
    await until(cluster.is_up)
    cluster.start(
        "other",
        '--resources={"interpreter_bot_host": 1}',
        INTERPRETER_BOT_PATHS__HOST_SOCKETS=str(host_sockets.newest_link(other.paths).parent),
        INTERPRETER_BOT_PATHS__DATA=str(short_path / "none"),
        INTERPRETER_BOT_HOST__LISTEN=other.host.listen,
    )
    async with execution_startup.open_database(config, takes_orphans=False) as database:
        cluster.start_fleet(config)

        async def has_it():
            if cluster.fleet.poll() is not None:
                cluster.start_fleet(config)
            return await database.fleet_hosts.list_addresses() == [other.host.listen]

        await until(has_it)
    status = await host_processes.read_status(host_sockets.newest_link(other.paths))
    assert status.pid == cluster.started["host"].pid
    with contextlib.closing(sqlite3.connect(config.paths.data / "interpreter-bot.db")) as stored:
        (row,) = stored.execute("SELECT data_id, memory_bytes, free_bytes FROM hosts")
    assert row[:2] == (status.data_id, status.memory_bytes)
    assert 0 < row[2] < row[1]


@contextlib.asynccontextmanager
async def opened(config):
    """Open what a bot has, and wait for both hosts."""
    async with execution_startup.open_hosts(config, kernels_outlive_bot=True) as hosts:

        async def has_both():
            return len(hosts._connected_hosts()) == 2

        await until(has_both)
        yield hosts


async def hosts_used(hosts, keys):
    return {(await hosts.find_host(key)).connection.address for key in keys}
