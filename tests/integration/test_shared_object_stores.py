"""Stores that machines share: a directory, and a bucket in the wire format of S3."""

import asyncio
import hashlib
import os
import time

import pytest

from interpreter_bot import errors
from interpreter_bot.kernels import shared_object_stores
from tests.fakes import buckets

LARGE = bytes(range(256)) * 45_000  # uploaded in three parts
DIGEST = hashlib.sha256(LARGE).hexdigest()
SMALL = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a", "b", "c")}


@pytest.fixture
def bucket(monkeypatch):
    with buckets.serving("s3", {}) as server:
        login(monkeypatch, buckets.s3_login(server))
        yield server


def login(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def opened(hurry=1):
    timeouts = {name: span / hurry for name, span in shared_object_stores.TIMEOUTS.items()}
    return shared_object_stores.SharedStore("s3://reports/fleet one", timeouts)


async def large():
    """Yield LARGE as files are read, in chunks."""
    for start in range(0, len(LARGE), 1 << 20):
        yield LARGE[start : start + (1 << 20)]


async def test_content_is_written_once_and_swept_when_it_is_old_and_unnamed(tmp_path):
    store = shared_object_stores.SharedStore(tmp_path.as_uri())
    await store.upload(b"x", "ab")
    await store.upload(b"y", "ab")
    blob = tmp_path / "blobs/ab/ab"
    assert blob.read_bytes() == b"x", "what is there is not written again"
    old = time.time() - shared_object_stores.GRACE_SECONDS
    os.utime(blob, (old, old))
    await store.upload(b"y", "ab")
    assert blob.stat().st_mtime > old, "what might be swept in a moment is"
    assert await store.create("n", b"1")
    assert not await store.create("n", b"2")
    assert await store.read("n") == b"1"
    assert await store.read("none") is None


async def test_what_is_written_anew_is_not_swept(tmp_path):
    store = shared_object_stores.SharedStore(tmp_path.as_uri())
    for digest in ("ab", "cd"):
        await store.upload(b"x", digest)
    blobs = [tmp_path / "blobs/ab/ab", tmp_path / "blobs/cd/cd"]
    old = time.time() - shared_object_stores.GRACE_SECONDS
    os.utime(blobs[0], (old - 1, old - 1))
    await store.delete(["blobs/ab/ab", "blobs/cd/cd", "blobs/no/no"], before=old)
    assert [blob.exists() for blob in blobs] == [False, True]


async def test_a_bucket_keeps_what_is_written_and_the_first_of_two_counts(bucket, tmp_path):
    store = opened()
    for name in SMALL:
        assert await store.create(f"keys/{name} é", name.encode())
    assert not await store.create("keys/a é", b"another")
    assert await store.read("keys/a é") == b"a"
    assert await store.read("keys/none") is None
    listed = [one async for one in store.list("keys/")]
    assert sorted(one.name for one in listed) == [f"keys/{name} é" for name in SMALL]
    assert bucket.pages == 2
    assert all(abs(time.time() - one.written_at) < 60 for one in listed)
    await store.upload(large(), DIGEST)
    await store.download(DIGEST, len(LARGE), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == LARGE
    assert bucket.files[f"fleet one/{shared_object_stores.blob_name(DIGEST)}"] == LARGE
    await store.delete(["keys/a é", "keys/none"])
    await store.delete(["keys/b é"], before=time.time() - 60)
    assert [one.name async for one in store.list("keys/")] == ["keys/b é", "keys/c é"]


@pytest.mark.parametrize("fault", [503, "cut", "lost"])
async def test_what_goes_wrong_on_the_way_is_tried_again(bucket, tmp_path, fault):
    store = opened()
    bucket.faults += [(method, "", fault) for method in ("POST", "PUT", "PUT", "HEAD", "GET")]
    await store.upload(large(), DIGEST)
    await store.download(DIGEST, len(LARGE), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == LARGE
    bucket.faults.append(("PUT", "key", fault))
    # Also where the answer was lost: then it is not known whose it is, and is read.
    await store.create("key", b"1")
    assert await store.read("key") == b"1"
    assert not bucket.faults


async def test_what_takes_long_is_waited_for_while_it_goes_on(bucket, tmp_path):
    store = opened(hurry=60)
    await store.upload(large(), DIGEST)
    bucket.faults.append(("GET", "blobs", "slow"))
    await store.download(DIGEST, len(LARGE), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == LARGE


async def test_what_a_slow_line_carries_arrives(bucket):
    # A part takes 1.7 s of the 3 that are waited for it.
    bucket.bytes_per_second = 3 * 1024 * 1024
    await opened(hurry=100).upload(large(), DIGEST)
    assert bucket.faults == []
    assert len(bucket.files) == 2


async def test_an_upload_that_is_broken_off_leaves_nothing_that_counts(bucket, tmp_path):
    store = opened()
    bucket.faults += [("PUT", "partNumber=2", "cut")] * 10
    with pytest.raises(errors.KernelError, match="cannot be used right now"):
        await store.upload(large(), DIGEST)
    assert not [name for name in bucket.files if "blobs" in name]
    assert not bucket.uploads
    with pytest.raises(errors.KernelError, match="damaged"):
        await store.download(DIGEST, len(LARGE), tmp_path / "none")
    bucket.faults.clear()
    await store.upload(large(), DIGEST)
    assert LARGE in bucket.files.values()


async def test_content_that_is_not_what_its_digest_says_is_not_stored(bucket):
    with pytest.raises(shared_object_stores.ContentChangedError):
        await opened().upload(large(), SMALL["a"])
    assert not [name for name in bucket.files if "blobs" in name]
    assert not bucket.uploads


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "another key"}, "(SignatureDoesNotMatch)"),
        ({"AWS_REGION": "us-east-1"}, "(AuthorizationHeaderMalformed)"),
    ],
)
async def test_a_wrong_login_is_told_apart_from_an_outage(
    bucket, monkeypatch, caplog, changed, code
):
    login(monkeypatch, changed)
    for ask in (opened().read("key"), opened().create("key", b"1")):
        with pytest.raises(errors.KernelError, match="refuses this machine") as caught:
            await ask
        assert code in str(caught.value)
        for secret in (buckets.KEY, "another key", buckets.KEY_ID):
            assert secret not in str(caught.value)
    assert buckets.KEY not in caplog.text


async def test_a_bucket_that_is_not_there_is_told_apart_too(bucket):
    store = shared_object_stores.SharedStore("s3://other")
    with pytest.raises(errors.KernelError, match=r"this machine \(NoSuchBucket\)"):
        await store.create("key", b"1")


async def test_a_login_that_was_forgotten_is_told_apart_too(bucket, monkeypatch, caplog):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    # Where machines of the vendor find theirs.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", bucket.url)
    with pytest.raises(errors.KernelError, match="refuses this machine"):
        await opened().read("key")
    assert f"{bucket.url}/latest" in caplog.text


async def test_variables_of_other_tools_do_no_harm(bucket, monkeypatch):
    login(monkeypatch, {"AWS_PROFILE": "me", "AWS_EXECUTION_ENV": "x", "GOOGLE_CLOUD_PROJECT": "p"})
    assert await opened().create("key", b"1")
    shared_object_stores.SharedStore("gs://reports")


async def test_what_is_too_large_is_neither_read_nor_written(tmp_path):
    store = shared_object_stores.SharedStore(tmp_path.as_uri())
    with pytest.raises(errors.KernelError, match="too large to share between machines: a"):
        await store.create("a", bytes(shared_object_stores.MAX_BYTES + 1))
    with (tmp_path / "b").open("wb") as file:
        file.truncate(shared_object_stores.MAX_BYTES * 1024)
    async with asyncio.timeout(10):
        with pytest.raises(errors.KernelError, match="too large to share between machines: b"):
            await store.read("b")
