"""Sessions that go on on another machine, with a bucket that two host processes share."""

import asyncio
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time

import pytest
from aiohttp import web

from interpreter_bot import errors
from interpreter_bot.commands import options, sessions_command
from interpreter_bot.hosts import certificate_authorities, host_addresses
from interpreter_bot.kernels.files import workspaces
from tests import waiting
from tests.acceptance import test_fleet
from tests.acceptance.test_fleet import config, opened, ran
from tests.fakes import buckets

__all__ = ["config"]

pytestmark = pytest.mark.kernel

MAKE = "x = [1, 2]; import os; os.mkdir('d'); open('d/é', 'w').write('kept'); print('made')"
LOOK = "print(x, open('d/é').read())"


@pytest.fixture(scope="module")
def bucket():
    with buckets.serving("s3", {}) as server:
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    authority = certificate_authorities.CertificateAuthority(tmp_path_factory.mktemp("ca"))
    host = authority.issue(["127.0.0.1"], is_bot=False, days=1)
    return host, authority.issue(["bot"], is_bot=True, days=1)


def machine(place, runtime, certificates, bucket, key=buckets.KEY):
    saved = {"INTERPRETER_BOT_SNAPSHOTS__BYTES": "2147483648"} | buckets.s3_login(bucket, key)
    store = "s3://reports/fleet"
    return test_fleet.Machine(place, runtime, certificates[0], store=store, environment=saved)


@pytest.fixture(scope="module")
def all_machines(tmp_path_factory, certificates, bucket):
    """Of all tests here, which differ by their sessions."""
    data = tmp_path_factory.mktemp("machines")
    with (
        tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as runtime,
        contextlib.ExitStack() as s,
    ):
        both = [
            machine(data / n, pathlib.Path(runtime, n), certificates, bucket) for n in ("a", "b")
        ]
        for one in both:
            s.callback(one.end)
        yield both


@pytest.fixture
def machines(all_machines):
    gone = [one for one in all_machines if one.process is None or one.process.poll() is not None]
    for one in gone:
        one.launch()
    for one in gone:
        one.await_start()
    return all_machines


@pytest.fixture
def key(request):
    """A session of a test."""
    return request.node.name


async def chunks(data):
    yield data


def manifests(bucket, key):
    prefix = f"fleet/manifests/{workspaces.Workspaces.name_of(key)}/"
    return sorted(name for name in bucket.files if name.startswith(prefix))


async def archived(hosts, key):
    """Wait until a session that was just used is archived as it is."""
    host = await hosts.find_host(key)
    async with asyncio.timeout(60):
        while not await host.save(key):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert await host.archive(key)


async def machine_of(hosts, database, machines, key):
    return test_fleet.machine_of(machines, await database.placements.find(key))


def data_id_of(machine):
    return (machine.data / "host.id").read_text().strip()


async def test_a_session_goes_on_where_its_machine_is_lost_with_all_it_had(config, machines, key):
    async with opened(config) as (hosts, database):
        assert await ran(hosts, key, MAKE) == "made"
        look = "import os; print('AWS_SECRET_ACCESS_KEY' in os.environ)"
        assert await ran(hosts, key, look) == "False"
        await archived(hosts, key)
        lost = await machine_of(hosts, database, machines, key)
        other = next(one for one in machines if one is not lost)
        lost.kill()
        began = time.monotonic()
        assert not await hosts.ensure_placed(key), "nothing is lost"
        assert await ran(hosts, key, LOOK) == "[1, 2] kept"
        assert time.monotonic() - began < 30
        assert (await machine_of(hosts, database, machines, key)) is other
        await ran(hosts, key, "x.append(3); open('d/é', 'w').write('newer')")
        await archived(hosts, key)
        # What comes back from the dead overwrites nothing, and gets what is new when it is its.
        lost.process.stdout.close()
        lost.start()
        await waiting.until(lambda: len(test_fleet.connected(hosts)) == 2)
        name = workspaces.Workspaces.name_of(key)
        asked = options.read(["sessions", "move", name, lost.address])
        assert await sessions_command._run(config, asked) == 0
        assert await ran(hosts, key, LOOK) == "[1, 2, 3] newer"
        assert (await machine_of(hosts, database, machines, key)) is lost
        assert (await database.placements.find(key)).epoch == 3


@contextlib.asynccontextmanager
async def other_release(certificates):
    """Serve as a host that speaks another protocol; give its address."""

    async def status(_):
        return web.json_response({"protocol": 0})

    application = web.Application()
    application.add_routes([web.get("/v1/host", status)])
    runner = web.AppRunner(application)
    await runner.setup()
    context = host_addresses.Credentials(certificates, is_host=True).context()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_an_operator_lists_and_moves_a_session_though_other_hosts_cannot_be_asked(
    config, machines, certificates, key, capsys
):
    async def operate(*arguments):
        asked = options.read(["sessions", *arguments])
        # In this loop: in one of its own, TLS had no time to close.
        status = await sessions_command._run(config, asked)
        return status, capsys.readouterr()

    name = workspaces.Workspaces.name_of(key)
    async with opened(config) as (hosts, database):
        await ran(hosts, key, MAKE)
        former = await machine_of(hosts, database, machines, key)
        other = next(one for one in machines if one is not former)
        status, said = await operate("--json")
        states = {one["key"]: one["state"] for one in json.loads(said.out)["sessions"]}
        assert (status, states[key], said.err) == (0, "live", "")
        with pytest.raises(errors.BotError, match=other.address):
            await operate("move", name, "127.0.0.1:1")
        moving = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "interpreter_bot", "sessions", "move", name[:8], other.address),
            env=dict(os.environ) | config.for_host(),
            stdout=asyncio.subprocess.PIPE,
        )
        told, _ = await moving.communicate()
        assert (moving.returncode, f"continues at {other.address}" in told.decode()) == (0, True)
        assert await ran(hosts, key, LOOK) == "[1, 2] kept"
        assert (await machine_of(hosts, database, machines, key)) is other
        status, said = await operate("move", name[:8], other.address)
        assert (status, "already" in said.out) == (0, True)
        async with other_release(certificates[0]) as strange:
            fleet = (*config.host.fleet, strange, "127.0.0.1:1")
            host = config.host.model_copy(update={"fleet": fleet})
            config = config.model_copy(update={"host": host})
            status, said = await operate("--json")
        assert key in {one["key"] for one in json.loads(said.out)["sessions"]}
        assert f"{strange}: The Python host is of another release" in said.err
        assert "127.0.0.1:1: " in said.err


async def test_what_is_damaged_or_cannot_be_reached_is_a_sentence_and_loses_nothing(
    config, machines, bucket, key
):
    async with opened(config) as (hosts, database):
        await ran(hosts, key, MAKE)
        await archived(hosts, key)
        lost = await machine_of(hosts, database, machines, key)
        other = next(one for one in machines if one is not lost)
        await database.placements.put(key, data_id_of(other), former_epoch=1)
        # More than there are tries: other sessions of the machines may be archived just now.
        bucket.faults += [("GET", "list-type", 503)] * 40
        with pytest.raises(errors.KernelError, match="cannot be used right now"):
            await ran(hosts, key, LOOK)
        bucket.faults.clear()
        [manifest] = manifests(bucket, key)
        signed = bucket.files[manifest]
        bucket.files[manifest] = signed.replace(b'"size_bytes":4', b'"size_bytes":5')
        with pytest.raises(errors.KernelError, match="not signed"):
            await ran(hosts, key, LOOK)
        bucket.files[manifest] = signed
        blob = next(name for name, data in bucket.files.items() if data == b"kept")
        bucket.files[blob] = b"kepT"
        with pytest.raises(errors.KernelError, match="damaged"):
            await ran(hosts, key, LOOK)
        bucket.files[blob] = b"kept"
        assert await ran(hosts, key, LOOK) == "[1, 2] kept"


async def test_forgotten_sessions_are_forgotten_in_the_store_too(config, machines, bucket, key):
    async with opened(config) as (hosts, _):
        await ran(hosts, key, MAKE)
        await archived(hosts, key)
        assert len(manifests(bucket, key)) == 1
        await hosts.forget(key)
        [forgotten] = manifests(bucket, key)
        assert b'"files":[],"variables":[]' in bucket.files[forgotten]


async def test_a_copy_of_a_session_is_archived_before_it_is_used(config, machines, bucket, key):
    async with opened(config) as (hosts, database):
        await ran(hosts, key, MAKE)
        copy = f"copy {key}"
        await hosts.fork(key, copy)
        await waiting.until(lambda: manifests(bucket, copy))
        former = await machine_of(hosts, database, machines, copy)
        other = next(one for one in machines if one is not former)
        await database.placements.put(copy, data_id_of(other), former_epoch=1)
        assert await ran(hosts, copy, LOOK) == "[1, 2] kept"


def test_a_host_says_at_its_start_that_its_login_is_wrong(
    tmp_path, short_path, certificates, bucket
):
    wrong = machine(tmp_path / "c", short_path / "c", certificates, bucket, key="another key")
    wrong.launch()
    said, _ = wrong.process.communicate()
    assert b"refuses this machine (SignatureDoesNotMatch)" in said
    assert b"another key" not in said
    assert wrong.process.returncode


async def test_what_a_person_uploads_moves_and_a_draining_host_gives_its_sessions_away(
    config, machines, key
):
    async with opened(config) as (hosts, database):
        workspace = await hosts.workspace(key)
        await workspace.put("a.csv", chunks(b"1,2"))
        assert await ran(hosts, key, "y = open('a.csv').read(); print(y)") == "1,2"
        former = await machine_of(hosts, database, machines, key)
        host = await hosts.find_host(key)
        await host.drain(is_urgent=False)
        await waiting.until(lambda: host.connection.status.is_draining)
        for _ in range(60):
            assert await ran(hosts, key, "print(y, open('a.csv').read())") == "1,2 1,2"
            if (await machine_of(hosts, database, machines, key)) is not former:
                break
            # Its variables were being saved just then: it stays until its next message.
            await asyncio.sleep(0.5)
        assert (await machine_of(hosts, database, machines, key)) is not former
        assert not await hosts.ensure_placed(key)
    former.end()
