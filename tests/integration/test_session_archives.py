"""What two machines keep of sessions in the store that they share, by their files."""

import contextlib
import hashlib
import os
import time

import pytest

from interpreter_bot import settings
from interpreter_bot.kernels import (
    archive_manifests,
    pools,
    session_archives,
    shared_object_stores,
    snapshot_generations,
)
from interpreter_bot.kernels.files import workspaces

pytestmark = pytest.mark.kernel

KEY = "a session"
NAME = workspaces.Workspaces.name_of(KEY)
DAY_SECONDS = 24 * 3600.0


class Machine:
    """The archives of a machine, and the files of its sessions; no kernel is started."""

    def __init__(self, pool, archives):
        self.pool, self.archives = pool, archives

    async def write(self, text):
        """Change the file of the session, and archive it."""
        (await self.path()).write_text(text)
        await self.archives.note_change(KEY)
        assert await self.archives.flush()

    async def path(self):
        return (await self.pool.workspace(KEY)).directory / "f"

    async def take(self, epoch):
        """Have the session from now on; return what is in its file."""
        self.archives.note_epoch(KEY, epoch)
        await self.archives.fetch_session(KEY, epoch)
        path = await self.path()
        return path.read_text() if path.exists() else ""

    async def forget(self):
        await self.pool.forget(KEY)
        await self.archives.forget(KEY)


@pytest.fixture
def store(tmp_path):
    return shared_object_stores.SharedStore((tmp_path / "shared").as_uri())


@pytest.fixture
async def machines(tmp_path, short_path, store):
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for name in ("a", "b"):
            config = settings.Settings(
                kernels=settings.Kernels(preload=(), spares=0),
                snapshots=settings.Snapshots(),
                paths=settings.Paths(data=tmp_path / name, runtime=short_path / name),
            )
            await archive_manifests.share_key(store, config)
            pool = await stack.enter_async_context(pools.Pool.open(config))
            opening = session_archives.SessionArchives.open(
                pool, store, snapshot_generations.load_key(config)
            )
            made.append(Machine(pool, await stack.enter_async_context(opening)))
        for one in made:
            stack.push_async_callback(one.archives.close)
        yield made


def stored(tmp_path):
    """All that is stored of files."""
    return sorted(one.read_text() for one in tmp_path.glob("shared/blobs/*/*"))


async def test_what_was_forgotten_comes_back_by_no_machine_that_was_away(machines, store):
    away, here = machines
    await away.take(1)
    packages = (await away.pool.workspace(KEY)).packages_file
    # As the usual mask leaves it, and longer than a file of secrets.
    packages.write_text("what was installed" * 10_000)
    packages.chmod(0o644)
    await away.write("secret")
    assert await here.take(2) == "secret"
    await here.forget()
    # It comes back with what it had still to archive, and has not heard that the session moved.
    await away.write("secret, and more")
    assert len(await archive_manifests.list_versions(store, NAME)) == 1
    assert await here.take(3) == ""
    # Also of its own disk nothing counts any more; and what is made from now on is kept.
    assert await away.take(4) == ""
    assert not packages.exists()
    await away.write("new")
    assert await here.take(5) == "new"


async def test_what_comes_after_forgetting_is_kept(machines):
    one, other = machines
    await one.take(1)
    await one.write("old")
    assert await other.take(2) == "old"
    await other.forget()
    (await other.path()).write_text("new")
    # Another bot asks, which does not know that the session is here.
    assert await other.take(2) == "new"
    await other.write("newer")
    assert await one.take(3) == "newer"


async def test_a_large_file_that_changes_while_it_is_uploaded_is_stored_under_no_wrong_digest(
    machines, store, tmp_path, monkeypatch
):
    one, other = machines
    await one.take(1)
    large = (await one.pool.workspace(KEY)).directory / "large"
    large.write_bytes(b"1" * 6_000_000)
    upload, sizes = store.upload, []

    async def upload_changed(content, digest):
        if not isinstance(content, bytes):
            large.write_bytes(b"%d" % len(sizes) + b"2" * 6_000_000)
            sizes.append(large.stat().st_size)
            monkeypatch.setattr(store, "upload", upload)
        await upload(content, digest)

    monkeypatch.setattr(store, "upload", upload_changed)
    await one.write("small")
    assert len(sizes) == 1
    blobs = {file.name: file.read_bytes() for file in tmp_path.glob("shared/blobs/*/*")}
    assert {hashlib.sha256(data).hexdigest() for data in blobs.values()} == blobs.keys()
    assert await other.take(2) == "small"
    arrived = (await other.pool.workspace(KEY)).directory / "large"
    assert arrived.read_bytes() == large.read_bytes()


async def test_what_arrives_replaces_what_was_there_and_keeps_times_and_odd_names(machines):
    one, other = machines
    await one.take(1)
    there = (await one.pool.workspace(KEY)).directory
    odd = there / "d" / os.fsdecode(b"two\nlines \xff")
    odd.parent.mkdir()
    odd.write_text("same")
    (there / "twice").write_text("same")
    os.utime(odd, ns=(0, 5))
    (there / "link").symlink_to("/etc/passwd")
    await one.write("new")
    here = (await other.pool.workspace(KEY)).directory
    (here / "d").symlink_to(here.parent)
    (here / "old").touch()
    assert await other.take(2) == "new"
    assert sorted(os.listdir(here)) == ["d", "f", "twice"]
    arrived = here / odd.relative_to(there)
    assert (arrived.read_text(), arrived.stat().st_mtime_ns) == ("same", 5)
    assert not (here.parent / ".staging").exists()


async def test_a_clock_that_is_set_back_loses_nothing(machines, monkeypatch):
    one, other = machines
    await one.take(1)
    await one.write("first")
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    await one.write("second")
    await one.write("third")
    assert await other.take(2) == "third"


async def test_what_does_not_count_is_swept_and_what_was_forgotten_is_remembered_for_long(
    machines, store, tmp_path
):
    one, _ = machines
    await one.take(1)
    await one.write("kept")
    [number] = await archive_manifests.list_versions(store, NAME)
    manifest = tmp_path / "shared" / archive_manifests.manifest_path(NAME, number)
    stale = manifest.with_name(f"{0:012}-{1:020}")
    stale.write_bytes(manifest.read_bytes().replace(b'"size_bytes":4', b'"size_bytes":5'))
    [blob] = tmp_path.glob("shared/blobs/*/*")
    old = time.time() - 2 * DAY_SECONDS
    os.utime(blob, (old, old))
    await archive_manifests.sweep(store)
    assert (stale.exists(), stored(tmp_path)) == (False, ["kept"])
    await one.forget()
    await archive_manifests.sweep(store)
    [number] = await archive_manifests.list_versions(store, NAME)
    assert not stored(tmp_path)
    forgotten = manifest.with_name(number)
    old = time.time() - 91 * DAY_SECONDS
    os.utime(forgotten, (old, old))
    await archive_manifests.sweep(store)
    assert not forgotten.exists()


async def test_content_is_old_by_the_clock_of_the_store(store, tmp_path, monkeypatch):
    await store.upload(b"x", "ab")
    ahead = time.time() + 2 * DAY_SECONDS
    monkeypatch.setattr(time, "time", lambda: ahead)
    await archive_manifests.sweep(store)
    assert stored(tmp_path) == ["x"], "somebody may be about to name it"


async def test_what_is_archived_while_the_store_is_swept_is_kept(
    machines, store, tmp_path, monkeypatch
):
    one, other = machines
    await one.take(1)
    (await one.pool.workspace(KEY)).directory.joinpath("large").write_text("precious")
    await one.write("first")
    for blob in tmp_path.glob("shared/blobs/*/*"):
        os.utime(blob, (time.time() - 2 * DAY_SECONDS,) * 2)
    read, begun = store.read, []

    async def archived_meanwhile(name):
        if name.startswith("manifests/") and not begun:
            begun.append(name)
            await one.write("second")
        return await read(name)

    monkeypatch.setattr(store, "read", archived_meanwhile)
    await archive_manifests.sweep(store)
    monkeypatch.undo()
    assert await other.take(2)
    assert (await other.pool.workspace(KEY)).directory.joinpath("large").read_text() == "precious"


async def test_a_damaged_manifest_ends_no_sweep_and_its_content_is_kept(machines, store, tmp_path):
    one, _ = machines
    await one.take(1)
    await one.write("kept")
    [number] = await archive_manifests.list_versions(store, NAME)
    manifest = tmp_path / "shared" / archive_manifests.manifest_path(NAME, number)
    manifest.write_bytes(manifest.read_bytes().replace(b'"packages":', b'"of a later release":'))
    await store.upload(b"unnamed", "ab" * 32)
    old = time.time() - 2 * DAY_SECONDS
    for blob in tmp_path.glob("shared/blobs/*/*"):
        os.utime(blob, (old, old))
    await archive_manifests.sweep(store)
    assert stored(tmp_path) == ["kept"]


async def test_what_is_archived_anew_while_a_session_arrives_is_what_arrives(
    machines, store, monkeypatch
):
    one, other = machines
    await one.take(1)
    await one.write("first")
    read = store.read

    async def read_late(name):
        if name.startswith("manifests/"):
            monkeypatch.setattr(store, "read", read)
            await one.write("second")
        return await read(name)

    monkeypatch.setattr(store, "read", read_late)
    assert await other.take(2) == "second"


async def test_content_is_written_anew_by_the_clock_of_the_store(store, tmp_path, monkeypatch):
    await store.upload(b"x", "ab")
    [blob] = tmp_path.glob("shared/blobs/*/*")
    old = time.time() - shared_object_stores.GRACE_SECONDS
    os.utime(blob, (old, old))
    behind = time.time() - 2 * DAY_SECONDS
    monkeypatch.setattr(time, "time", lambda: behind)
    await store.upload(b"x", "ab")
    assert blob.stat().st_mtime > old + DAY_SECONDS / 2
