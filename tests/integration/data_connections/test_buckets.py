"""Buckets asked by real processes, in the wire formats of their vendors."""

import json

import pytest

from interpreter_bot import settings
from interpreter_bot.data_connections import configured_connections, worker_processes
from tests.fakes import buckets

FILES = {
    "2026/may/a & b.csv": b"a\n1\n",
    "2026/may/big.bin": bytes(range(256)) * 20_000,
    "2026/may/ümlaut.txt": b"x",
    "2025/old.csv": b"old",
}


def options(kind, url, **changed):
    """The options of a connection, as docs/data.md has them."""
    login = {
        "private_key": "",
        "private_key_id": "",
        "client_email": "",
        "gcs_base_url": url,
        "disable_oauth": True,
    }
    given = {
        "s3": {
            "aws_region": buckets.REGION,
            "aws_access_key_id": buckets.KEY_ID,
            "aws_secret_access_key": buckets.KEY,
            "aws_endpoint": url,
        },
        "az": {
            "azure_storage_account_name": buckets.ACCOUNT,
            "azure_storage_account_key": buckets.SHARED_KEY,
            "azure_endpoint": url,
        },
        "gs": {"google_service_account_key": json.dumps(login)},
    }
    return given[kind] | changed


async def asked(kind, given, **request):
    """What a process says in the end of a request, and the bytes that came before."""
    listed = settings.Connection(
        name="lake", kind="files", address=f"{kind}://reports", options=given
    )
    (rule,) = configured_connections.compile_rules([listed], {})
    workers = worker_processes.WorkerPool(rule)
    taken = bytearray()

    async def take(piece):
        taken.extend(piece)

    try:
        async with workers.lend_worker() as worker:
            return await worker.send_request(request, take, is_framed=False), bytes(taken)
    finally:
        await workers.close()


@pytest.mark.first_case
@pytest.mark.parametrize("kind", ["s3", "az", "gs"])
async def test_files_of_a_bucket_are_listed_by_pages_and_read(kind):
    with buckets.serving(kind, FILES) as server:
        given = options(kind, server.url)
        told, _ = await asked(kind, given, do="list", prefix="2026/may")
        assert {one["name"]: one["size"] for one in told["files"]} == {
            name: len(data) for name, data in FILES.items() if name.startswith("2026/may")
        }
        assert server.pages == 2
        for name in ("2026/may/a & b.csv", "2026/may/big.bin", "2026/may/ümlaut.txt"):
            assert (await asked(kind, given, do="get", name=name))[1] == FILES[name]
        told, _ = await asked(kind, given, do="get", name="2026/none.csv")
        assert told["error"] == "There is no file '2026/none.csv'."


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("s3", {"aws_secret_access_key": "another-key"}),
        ("az", {"azure_storage_account_key": "YW5vdGhlcg=="}),
    ],
)
async def test_wrong_credentials_get_nothing_and_learn_no_address(kind, changed):
    with buckets.serving(kind, FILES) as server:
        given = options(kind, server.url, **changed)
        for request in ({"do": "list", "prefix": ""}, {"do": "get", "name": "2025/old.csv"}):
            told, taken = await asked(kind, given, **request)
            assert "error" in told
            assert server.url not in told["error"]
            assert taken == b""
