"""Fetching a model's file, from a server on loopback that misbehaves in known ways."""

import asyncio
import shutil
import types

import pytest

from interpreter_bot import settings
from interpreter_bot.agent.llms.embedded import model_files, on_demand_model
from tests.fakes import publishers
from tests.fakes.publishers import CONTENT, ENGINE


@pytest.fixture
async def publisher():
    async with publishers.Publisher.open() as one:
        yield one


async def fetched(publisher, directory, *, progress=lambda *_: None, pause_seconds=0.01):
    return await model_files.download(
        publisher.weights, directory, progress=progress, pause_seconds=pause_seconds
    )


def names(directory):
    return sorted(path.name for path in directory.iterdir())


async def test_it_is_fetched_once_and_told_of(publisher, tmp_path):
    seen = []
    path = await fetched(publisher, tmp_path / "models", progress=lambda *now: seen.append(now))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [had for had, _ in seen] == sorted({had for had, _ in seen})
    assert len(seen) >= 3
    assert await fetched(publisher, tmp_path / "models") == path
    assert publisher.ranges == [""]
    assert "m.partial" not in names(tmp_path / "models")


async def test_a_lost_connection_is_taken_up_where_it_broke(publisher, tmp_path):
    publisher.script = ["breaks", "breaks", "ranges"]
    path = await fetched(publisher, tmp_path)
    assert path.read_bytes() == CONTENT
    first, *later = [int(one.removeprefix("bytes=").rstrip("-") or 0) for one in publisher.ranges]
    assert first < later[0] < later[1]
    assert len(later) == 2


async def test_what_an_earlier_bot_had_is_kept(publisher, tmp_path):
    (tmp_path / "m.partial").write_bytes(CONTENT[:2_500_000])
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT
    assert publisher.ranges == ["bytes=2500000-"]


async def test_a_server_without_ranges_gives_all_of_it_again(publisher, tmp_path):
    publisher.script = ["whole"]
    (tmp_path / "m.partial").write_bytes(CONTENT[:2_500_000])
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT
    assert len(publisher.ranges) == 1


@pytest.mark.parametrize("left", [b"x" * 2_000_000, b"x" * len(CONTENT), b"x" * 5_000_000])
async def test_a_beginning_of_another_file_is_found_out(publisher, tmp_path, left):
    (tmp_path / "m.partial").write_bytes(left)
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT
    assert publisher.ranges[-1] == ""


async def test_a_redirect_is_followed(publisher, tmp_path):
    publisher.script = ["redirect"]
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT


async def test_a_damaged_file_is_fetched_anew(publisher, tmp_path):
    (tmp_path / "m.gguf").write_bytes(CONTENT[:-1] + b"x")
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT


@pytest.mark.parametrize("content", [b"x" * len(CONTENT), b"x" * 2 * len(CONTENT)])
async def test_another_file_is_thrown_away(publisher, tmp_path, content):
    publisher.content = content
    with pytest.raises(model_files.NoLocalModelError, match="is not the demo model"):
        await fetched(publisher, tmp_path)
    assert names(tmp_path) == ["m.lock"]


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_a_server_that_says_no_is_named(publisher, tmp_path, status):
    publisher.script = [status]
    with pytest.raises(model_files.NoLocalModelError, match=rf"127\.0\.0\.1: it answered {status}"):
        await fetched(publisher, tmp_path)


async def test_a_server_that_recovers_is_waited_for(publisher, tmp_path):
    publisher.script = [503, 503, "ranges"]
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT


@pytest.mark.looptime
async def test_nobody_there_is_one_sentence(publisher, tmp_path):
    publisher.port = 9
    started = asyncio.get_running_loop().time()
    with pytest.raises(
        model_files.NoLocalModelError, match=r"no connection could be made.*run your own code"
    ):
        await fetched(publisher, tmp_path, pause_seconds=100)
    # At once: a person waits, and most often there is no network.
    assert asyncio.get_running_loop().time() - started < 1


async def test_no_room_is_said_before_anything_is_fetched(publisher, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=60_000_000))
    with pytest.raises(
        model_files.NoLocalModelError, match=r"needs 66\.9 MiB, and .* has 57\.2 MiB free"
    ):
        await fetched(publisher, tmp_path)
    assert publisher.ranges == []


async def test_a_directory_that_cannot_be_made_is_one_sentence(publisher, tmp_path):
    (tmp_path / "models").write_text("a file")
    with pytest.raises(
        model_files.NoLocalModelError, match=r"cannot be stored in .*models: File exists"
    ):
        await fetched(publisher, tmp_path / "models")


async def test_of_two_bots_only_one_fetches(publisher, tmp_path):
    one, other = await asyncio.gather(fetched(publisher, tmp_path), fetched(publisher, tmp_path))
    assert one == other
    assert publisher.ranges == [""]


async def test_being_cancelled_leaves_what_can_be_gone_on_with(publisher, tmp_path):
    reached = asyncio.Event()
    fetching = asyncio.create_task(fetched(publisher, tmp_path, progress=lambda *_: reached.set()))
    await reached.wait()
    fetching.cancel()
    await asyncio.wait({fetching})
    assert fetching.cancelled()
    assert (tmp_path / "m.partial").stat().st_size > 0
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT


async def test_who_waits_hears_of_the_download_and_its_licence(publisher, tmp_path):
    told = []
    async with on_demand_model.OnDemandModel.open(
        settings.EmbeddedModel(), tmp_path, official=publisher.weights, script=ENGINE
    ) as local:
        await local.ensure_started(progress=lambda *news: told.append(news))
    assert told[0] == ("Looking for the demo model…", None)
    assert told[-2:] == [("Starting the demo model…", None), ("", None)]
    text = "Downloading the demo model (2.86 MiB). Free."
    shares = [share for said, share in told if said == text]
    assert [text for text, _ in told].count(text) == len(told) - 3 == len(shares)
    assert shares == sorted(set(shares))
    assert 0 < shares[0] < shares[-1] == 1
