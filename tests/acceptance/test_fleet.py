"""Two machines, as far as two processes with data directories of their own are: over TLS."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.app import execution_startup, service_startup
from interpreter_bot.commands import host as host_command
from interpreter_bot.doctor import configured_services
from interpreter_bot.hosts import (
    cancellable_executions,
    certificate_authorities,
    host_lists,
    placed_hosts,
)
from interpreter_bot.sessions import requests
from interpreter_bot.wording import host_words
from tests import futures, waiting
from tests.fakes import replies

pytestmark = pytest.mark.kernel

LOST_SECONDS = 1.0


class Machine:
    """A host process with a data directory and a port of its own."""

    def __init__(
        self, place, runtime, certificates, *, doors=False, index="", store="", environment=()
    ):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self.port = unused.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.data = place
        config = settings.Settings(
            kernels=settings.Kernels(preload=(), spares=0, doors=doors),
            paths=settings.Paths(data=place, runtime=runtime),
            host=settings.Host(listen=self.address, tls=certificates, store=store),
            package_index=settings.PackageIndex(url=index),
        )
        self._config = config
        self._environment = dict(os.environ) | config.for_host() | dict(environment)
        self.process = None

    def without_doors(self):
        kernels = self._config.kernels.model_copy(update={"doors": False})
        self._environment |= self._config.model_copy(update={"kernels": kernels}).for_host()

    def start(self):
        self.launch()
        self.await_start()

    def launch(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "interpreter_bot", "host", "--linger", "600"],
            env=self._environment,
            stdout=subprocess.PIPE,
        )

    def await_start(self):
        assert b"HostReady" in self.process.stdout.readline()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            self.process.stdout.close()


@pytest.fixture
def certificates(tmp_path):
    authority = certificate_authorities.CertificateAuthority(tmp_path / "ca")
    host = authority.issue(["127.0.0.1"], is_bot=False, days=1)
    return host, authority.issue(["bot"], is_bot=True, days=1)


@pytest.fixture
def machines(tmp_path, short_path, certificates):
    both = [Machine(tmp_path / n, short_path / n, certificates[0]) for n in ("a", "b")]
    try:
        for one in both:
            one.start()
        yield both
    finally:
        for one in both:
            one.end()


@pytest.fixture
def config(tmp_path, short_path, machines, certificates):
    """Of the bot, which has no kernels of its own."""
    return settings.Settings(
        paths=settings.Paths(data=tmp_path / "bot", runtime=short_path / "bot"),
        host=settings.Host(
            fleet=tuple(one.address for one in machines),
            tls=certificates[1],
            lost_seconds=LOST_SECONDS,
        ),
    )


@contextlib.asynccontextmanager
async def opened(config, lost_seconds=LOST_SECONDS):
    async with execution_startup.open_database(config, takes_orphans=False) as database:
        fleet = host_lists.Fleet(config.host.fleet, config.host.tls)
        opening = placed_hosts.PlacedHosts.open(
            fleet, database.placements, lost_seconds=lost_seconds
        )
        async with opening as hosts:
            await waiting.until(lambda: len(connected(hosts)) == len(config.host.fleet))
            yield hosts, database


def connected(hosts):
    return [host for host in hosts.hosts if host.connection.is_connected]


async def ran(hosts, key, code):
    shown = []
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        await cancellable_executions.run(
            hosts, kernel, code, show=lambda one: shown.append(one.plain)
        )
    return "".join(shown).strip()


def machine_of(machines, database_row):
    data_id = database_row[0]
    return next(one for one in machines if (one.data / "host.id").read_text().strip() == data_id)


async def test_new_sessions_go_to_both(config, machines):
    async with opened(config) as (hosts, database):
        keys = [f"s{number}" for number in range(64)]
        for key in keys:
            assert not await hosts.ensure_placed(key)
        placed = {machine_of(machines, await database.placements.find(key)) for key in keys}
        assert placed == set(machines)


async def test_sessions_stay_where_they_are(config, machines):
    keys = [f"s{number}" for number in range(6)]
    async with opened(config) as (hosts, database):
        await asyncio.gather(*(ran(hosts, key, f"kept = {key!r}") for key in keys))
        placed = {key: await database.placements.find(key) for key in keys}
        assert {epoch for _, epoch, _ in placed.values()} == {1}
    async with opened(config) as (hosts, database):
        assert await asyncio.gather(*(ran(hosts, key, "print(kept)") for key in keys)) == keys
        assert {key: await database.placements.find(key) for key in keys} == placed


async def test_a_session_goes_where_its_files_are(config, machines):
    for machine in machines:
        key = f"files in {machine.data.name}"
        async with opened(config) as (hosts, database):
            host = next(one for one in hosts.hosts if one.connection.address.port == machine.port)
            await ran(host, key, "open('here.txt', 'w').write('x')")
            assert await ran(hosts, key, "import os; print(os.listdir())") == "['here.txt']"
            assert machine_of(machines, await database.placements.find(key)) is machine


@pytest.mark.gate
async def test_a_host_that_is_killed_loses_its_own_sessions_only(config, machines):
    async with opened(config) as (hosts, database):
        lost, kept = await sessions_of_both(hosts, database, machines)
        machines[0].kill()
        # Those of the other go on at once, whatever becomes of the first.
        assert await ran(hosts, kept, "print(x)") == kept
        assert await hosts.ensure_placed(lost)
        assert not await hosts.ensure_placed(lost)
        assert not await hosts.ensure_placed(kept)
        assert await ran(hosts, lost, "print('x' in globals())") == "False"
        host, epoch, _ = await database.placements.find(lost)
        assert (machine_of(machines, (host,)), epoch) == (machines[1], 2)
        former = next(one for one in hosts.hosts if one.connection.address.port == machines[0].port)
        # A copy of what is lost goes where it can be.
        async with asyncio.timeout(30):
            found, placement = await hosts._place("a copy", preferred_host=former)
        assert (found.connection.address.port, placement.epoch) == (machines[1].port, 2)


def cut_off(connection):
    """Break the connection to a host that does not answer; closing it would wait for that."""
    connection._socket._response.connection.transport.abort()


async def test_a_host_that_was_only_cut_off_is_refused_what_it_lost(config, machines):
    async with opened(config) as (hosts, database):
        lost, kept = await sessions_of_both(hosts, database, machines)
        former = next(one for one in hosts.hosts if one.connection.address.port == machines[0].port)
        machines[0].process.send_signal(signal.SIGSTOP)
        try:
            # As good as dead, and nobody waits for its heartbeat.
            cut_off(former.connection)
            await waiting.until(lambda: former.connection.away_seconds > LOST_SECONDS)
            assert await ran(hosts, lost, "x = 'again'; print(x)") == "again"
        finally:
            machines[0].process.send_signal(signal.SIGCONT)
        await waiting.until(lambda: former.connection.is_connected)
        # It had its kernel still; it ends as soon as it hears that the session is elsewhere.
        while await former.statuses([lost]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        with pytest.raises(errors.SessionMovedError):
            await ran(former.with_epoch(1), lost, "print(x)")
        with pytest.raises(errors.WorkspaceError, match="moved to another machine"):
            await (await former.with_epoch(1).workspace(lost)).list()
        assert await ran(hosts, lost, "print(x)") == "again"
        assert await ran(hosts, kept, "print(x)") == kept


async def test_a_stop_reaches_a_host_that_is_away_just_then(config, machines):
    async with (
        opened(config, lost_seconds=30) as (hosts, database),
        hosts.lease("stopped") as lease,
    ):
        kernel = await lease.kernel()
        execution_id, shown = cancellable_executions.new_id(), []
        code = "import time\nprint('begun', flush=True)\ntime.sleep(300)"
        executing = asyncio.create_task(
            kernel.execute(
                code, execution_id=execution_id, show=lambda *one: shown.append(one), ask=None
            )
        )
        await waiting.until(lambda: shown)
        machine = machine_of(machines, await database.placements.find("stopped"))
        cut = next(one for one in hosts.hosts if one.connection.address.port == machine.port)
        machine.process.send_signal(signal.SIGSTOP)
        try:
            cut_off(cut.connection)
            await waiting.until(lambda: not cut.connection.is_connected)
            stopping = asyncio.create_task(hosts.stop(execution_id))
            # It has looked at who is there.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            machine.process.send_signal(signal.SIGCONT)
        await stopping
        async with asyncio.timeout(60):
            assert (await executing).finished.ending is values.Ending.STOPPED


def test_doctor_and_status_tell_of_each_host(config, machines):
    machines[1].kill()
    reached, lost = sorted(
        configured_services.check(
            config, {}, lambda: execution_startup.find_fleet_addresses(config)
        ),
        key=lambda one: str(machines[1].port) in one.name,
    )
    assert reached.is_active
    assert reached.name == f"host {machines[0].address}"
    assert reached.detail.endswith("0 kernels, takes sessions")
    assert not lost.is_active
    assert lost.detail == host_words.UNREACHABLE
    told = asyncio.run(host_command.list_statuses(config))
    assert {one.get("error") for one in told} == {None, host_words.UNREACHABLE}


async def test_a_kernel_from_before_the_fleet_ends_once_its_session_is_elsewhere(config, machines):
    async with opened(config) as (hosts, database):
        first, second = sorted(
            hosts.hosts, key=lambda one: one.connection.address.port != machines[0].port
        )
        await ran(first, "old", "x = 1")
        await database.placements.put("old", second.connection.status.data_id, former_epoch=0)
        await hosts._end_moved_sessions(first)
        assert await first.statuses(["old"]) == {}


async def sessions_of_both(hosts, database, machines):
    """A session of each machine, with a variable."""
    found = []
    for number, machine in enumerate(machines):
        host = next(one for one in hosts.hosts if one.connection.address.port == machine.port)
        await database.placements.put(f"s{number}", host.connection.status.data_id, former_epoch=0)
        await ran(hosts, f"s{number}", f"x = 's{number}'")
        found.append(f"s{number}")
    return found


async def test_people_hear_that_a_machine_took_variables_and_files(config, machines):
    async with (
        execution_startup.open_hosts(config, kernels_outlive_bot=True) as hosts,
        service_startup.open_conversations(
            config, {}, secrets={}, hosts=futures.completed_future(hosts)
        ) as service,
    ):
        key, person = values.SessionKey("console", thread="t"), requests.Person("you")

        async def said(code):
            reply = replies.Reply()
            asked = requests.Request(key=key, person=person, text=code, is_code=True)
            await service.handle(asked, reply)
            return reply

        await said("kept = 1; open('f.txt', 'w').write('x')")
        async with execution_startup.open_database(config, takes_orphans=False) as database:
            placement = await database.placements.find(values.format_key(key))
        machine_of(machines, placement).kill()
        reply = await said("import os; print(os.listdir())")
        told = " ".join(str(one) for one in reply.contents("announcement"))
        assert "without the variables of the earlier one (kept)" in told
        assert "The machine that Python ran on cannot be reached." in told
        assert "Files of this conversation were on a machine that cannot be reached." in told
        assert "".join(one.plain for one in reply.contents("output")).strip() == "[]"
        assert not (await said("1")).contents("announcement")
