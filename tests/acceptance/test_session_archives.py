"""Sessions that go on on another machine, with a store that two host processes share."""

import asyncio
import json
import os
import sys
import time

import pytest

from interpreter_bot import errors
from interpreter_bot.kernels import shared_stores
from interpreter_bot.kernels.files import workspaces
from tests.acceptance import test_fleet
from tests.acceptance.test_fleet import certificates, config, opened, ran, until

__all__ = ["certificates", "config"]

pytestmark = pytest.mark.kernel

KEY = "a session"
SECRET = "the login of the store"
MAKE = "x = [1, 2]; import os; os.mkdir('d'); open('d/é', 'w').write('kept'); print('made')"
LOOK = "print(x, open('d/é').read())"


@pytest.fixture
def shared(tmp_path):
    return tmp_path / "shared"


@pytest.fixture
def machines(tmp_path, short_path, certificates, shared):
    saved = {"INTERPRETER_BOT_SNAPSHOTS__ENABLED": "true", "AWS_SECRET_ACCESS_KEY": SECRET}
    both = [
        test_fleet.Machine(
            *(tmp_path / n, short_path / n, certificates[0]),
            store=shared.as_uri(),
            environment=saved,
        )
        for n in ("a", "b")
    ]
    try:
        for one in both:
            one.start()
        yield both
    finally:
        for one in both:
            one.end()


async def chunks(data):
    yield data


def manifests(shared, key=KEY):
    return sorted(shared.glob(f"manifests/{workspaces.Workspaces.name_of(key)}/*"))


async def archived(hosts, key=KEY):
    """Wait until a session that was just used is archived as it is."""
    host, _, _ = await hosts._placed(key)
    async with asyncio.timeout(60):
        while not await host.save(key):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert await host.archive(key)


async def machine_of(hosts, database, machines, key=KEY):
    return test_fleet.machine_of(machines, await database.placements.find(key))


async def test_a_session_goes_on_where_its_machine_is_lost_with_all_it_had(
    config, machines, shared
):
    async with opened(config) as (hosts, database):
        assert await ran(hosts, KEY, MAKE) == "made"
        look = "import os; print('AWS_SECRET_ACCESS_KEY' in os.environ)"
        assert await ran(hosts, KEY, look) == "False"
        await archived(hosts)
        lost = await machine_of(hosts, database, machines)
        other = next(one for one in machines if one is not lost)
        lost.kill()
        began = time.monotonic()
        assert not await hosts.settle(KEY), "nothing is lost"
        assert await ran(hosts, KEY, LOOK) == "[1, 2] kept"
        assert time.monotonic() - began < 30
        assert (await machine_of(hosts, database, machines)) is other
        await ran(hosts, KEY, "x.append(3); open('d/é', 'w').write('newer')")
        await archived(hosts)
        # What comes back from the dead overwrites nothing, and gets what is new when it is its.
        lost.process.stdout.close()
        lost.start()
        data_id = (lost.data / "host.id").read_text().strip()
        await until(lambda: len(hosts._connected()) == 2)
        await hosts.move(KEY, data_id)
        assert await ran(hosts, KEY, LOOK) == "[1, 2, 3] newer"
        assert (await machine_of(hosts, database, machines)) is lost
        assert (await database.placements.find(KEY))[1] == 3


async def test_an_operator_lists_and_moves_a_session(config, machines, tmp_path):
    environment = {
        name: value
        for name, value in config.for_host().items()
        if name in ("INTERPRETER_BOT_HOST", "INTERPRETER_BOT_PATHS")
    }

    async def operate(*arguments):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "interpreter_bot", "sessions", *arguments),
            env=dict(os.environ) | environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode, said.decode()

    name = workspaces.Workspaces.name_of(KEY)
    async with opened(config) as (hosts, database):
        await ran(hosts, KEY, MAKE)
        former = await machine_of(hosts, database, machines)
        other = next(one for one in machines if one is not former)
        status, said = await operate("--json")
        assert (status, json.loads(said)["sessions"][0]["state"]) == (0, "live")
        status, said = await operate("move", name, "127.0.0.1:1")
        assert (status, other.address in said) == (2, True)
        status, said = await operate("move", name[:8], other.address)
        assert (status, f"goes on at {other.address}" in said) == (0, True), said
        assert await ran(hosts, KEY, LOOK) == "[1, 2] kept"
        assert (await machine_of(hosts, database, machines)) is other
        status, said = await operate("move", name[:8], other.address)
        assert (status, "already" in said) == (0, True)


async def test_what_a_person_uploads_moves_and_a_draining_host_gives_its_sessions_away(
    config, machines
):
    async with opened(config) as (hosts, database):
        workspace = await hosts.workspace(KEY)
        await workspace.put("a.csv", chunks(b"1,2"))
        assert await ran(hosts, KEY, "y = open('a.csv').read(); print(y)") == "1,2"
        former = await machine_of(hosts, database, machines)
        host, _, _ = await hosts._placed(KEY)
        await host.connection.request("POST", "/v1/drain", {"is_urgent": False})
        await until(lambda: host.connection.status.is_draining)
        for _ in range(60):
            assert await ran(hosts, KEY, "print(y, open('a.csv').read())") == "1,2 1,2"
            if (await machine_of(hosts, database, machines)) is not former:
                break
            # Its variables were being saved just then: it stays until its next message.
            await asyncio.sleep(0.5)
        assert (await machine_of(hosts, database, machines)) is not former
        assert not await hosts.settle(KEY)


async def test_what_is_damaged_or_cannot_be_reached_is_a_sentence_and_loses_nothing(
    config, machines, shared, tmp_path
):
    async with opened(config) as (hosts, database):
        await ran(hosts, KEY, MAKE)
        await archived(hosts)
        (await machine_of(hosts, database, machines)).kill()
        (shared / "manifests").rename(tmp_path / "away")
        (shared / "manifests").write_text("in the way")
        with pytest.raises(errors.KernelError, match="cannot be used right now"):
            await ran(hosts, KEY, LOOK)
        (shared / "manifests").unlink()
        (tmp_path / "away").rename(shared / "manifests")
        [manifest] = manifests(shared)
        signed = manifest.read_bytes()
        manifest.write_bytes(signed.replace(b'"size_bytes":4', b'"size_bytes":5'))
        with pytest.raises(errors.KernelError, match="not signed"):
            await ran(hosts, KEY, LOOK)
        manifest.write_bytes(signed)
        [blob] = [one for one in shared.glob("blobs/*/*") if one.read_bytes() == b"kept"]
        blob.write_bytes(b"kepT")
        with pytest.raises(errors.KernelError, match="damaged"):
            await ran(hosts, KEY, LOOK)
        blob.write_bytes(b"kept")
        assert await ran(hosts, KEY, LOOK) == "[1, 2] kept"


async def test_forgotten_sessions_are_forgotten_in_the_store_too(config, machines, shared):
    async with opened(config) as (hosts, _):
        await ran(hosts, KEY, MAKE)
        await archived(hosts)
        assert len(manifests(shared)) == 1
        await hosts.forget(KEY)
        assert not manifests(shared)


async def test_content_is_written_once_and_swept_when_it_is_old_and_unnamed(tmp_path):
    store = shared_stores.SharedStore(tmp_path.as_uri(), {})
    (tmp_path / "f").write_bytes(b"x")
    await store.upload(tmp_path / "f", "ab")
    (tmp_path / "f").write_bytes(b"y")
    await store.upload(tmp_path / "f", "ab")
    blob = tmp_path / "blobs/ab/ab"
    assert blob.read_bytes() == b"x", "what is there is not written again"
    old = time.time() - shared_stores.GRACE_SECONDS
    os.utime(blob, (old, old))
    await store.upload(tmp_path / "f", "ab")
    assert blob.stat().st_mtime > old, "what might be swept in a moment is"
    assert await store.create("n", b"1")
    assert not await store.create("n", b"2")
    assert await store.read("n") == b"1"
    assert await store.read("none") is None


async def test_what_is_written_anew_is_not_swept(tmp_path):
    store = shared_stores.SharedStore(tmp_path.as_uri(), {})
    (tmp_path / "f").write_bytes(b"x")
    for digest in ("ab", "cd"):
        await store.upload(tmp_path / "f", digest)
    blobs = [tmp_path / "blobs/ab/ab", tmp_path / "blobs/cd/cd"]
    old = time.time() - shared_stores.GRACE_SECONDS
    os.utime(blobs[0], (old - 1, old - 1))
    await store.delete(["blobs/ab/ab", "blobs/cd/cd", "blobs/no/no"], before=old)
    assert [blob.exists() for blob in blobs] == [False, True]
