"""Fetching a model's file, from a server on loopback that misbehaves in known ways."""

import asyncio
import dataclasses
import hashlib
import shutil
import types

import pytest
from aiohttp import web

from interpreter_bot import settings
from interpreter_bot.agent.llms.embedded import downloading, opening, weights
from tests.unit.agent.test_embedded import SCRIPT

CONTENT = b"GGUF{" + b" " * 3_000_000 + b"}"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@dataclasses.dataclass
class Publisher:
    """Serves the file; `script` has one way of doing so for each request, the last for ever."""

    script: list
    asked: list = dataclasses.field(default_factory=list)
    content: bytes = CONTENT
    port: int = 0

    async def serve(self, request):
        self.asked.append(request.headers.get("Range", ""))
        way = self.script[min(len(self.asked), len(self.script)) - 1]
        if isinstance(way, int):
            return web.Response(status=way)
        start = int(self.asked[-1].removeprefix("bytes=").rstrip("-") or 0)
        if way == "whole":
            start = 0
        if way == "redirect":
            self.script.append("ranges")
            raise web.HTTPFound("/elsewhere")
        data = self.content[start:]
        response = web.StreamResponse(status=206 if start else 200)
        response.content_length = len(data)
        await response.prepare(request)
        if way == "breaks":
            await response.write(data[:1_000_000])
            # What the other side has not taken up yet is lost with the connection.
            await asyncio.sleep(0.05)
            request.transport.close()
        else:
            await response.write(data)
        return response

    @property
    def wanted(self):
        return weights.Weights(
            alias="m",
            title="M",
            url=f"http://127.0.0.1:{self.port}/m.gguf",
            size_bytes=len(CONTENT),
            sha256=DIGEST,
            licence="Free.",
        )


@pytest.fixture
async def publisher():
    one = Publisher(["ranges"])
    app = web.Application()
    app.router.add_get("/{name}", one.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    one.port = runner.addresses[0][1]
    yield one
    await runner.cleanup()


async def fetched(publisher, directory, *, progress=lambda *_: None):
    return await downloading.fetch(
        publisher.wanted, directory, progress=progress, pause_seconds=0.01
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
    assert publisher.asked == [""]
    assert "m.partial" not in names(tmp_path / "models")


async def test_a_lost_connection_is_taken_up_where_it_broke(publisher, tmp_path):
    publisher.script = ["breaks", "breaks", "ranges"]
    path = await fetched(publisher, tmp_path)
    assert path.read_bytes() == CONTENT
    first, *later = [int(one.removeprefix("bytes=").rstrip("-") or 0) for one in publisher.asked]
    assert first < later[0] < later[1]
    assert len(later) == 2


async def test_what_an_earlier_bot_had_is_kept(publisher, tmp_path):
    (tmp_path / "m.partial").write_bytes(CONTENT[:2_500_000])
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT
    assert publisher.asked == ["bytes=2500000-"]


async def test_a_server_without_ranges_gives_all_of_it_again(publisher, tmp_path):
    publisher.script = ["whole"]
    (tmp_path / "m.partial").write_bytes(CONTENT[:2_500_000])
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT
    assert len(publisher.asked) == 1


@pytest.mark.parametrize("left", [b"x" * 2_000_000, b"x" * len(CONTENT), b"x" * 5_000_000])
async def test_a_beginning_of_another_file_is_found_out(publisher, tmp_path, left):
    (tmp_path / "m.partial").write_bytes(left)
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT
    assert publisher.asked[-1] == ""


async def test_a_redirect_is_followed(publisher, tmp_path):
    publisher.script = ["redirect"]
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT


async def test_a_damaged_file_is_fetched_anew(publisher, tmp_path):
    (tmp_path / "m.gguf").write_bytes(CONTENT[:-1] + b"x")
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT


@pytest.mark.parametrize("content", [b"x" * len(CONTENT), b"x" * 2 * len(CONTENT)])
async def test_another_file_is_thrown_away(publisher, tmp_path, content):
    publisher.content = content
    with pytest.raises(weights.NoLocalModelError, match="not the expected file"):
        await fetched(publisher, tmp_path)
    assert names(tmp_path) == ["m.lock"]


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_a_server_that_says_no_is_named(publisher, tmp_path, status):
    publisher.script = [status]
    with pytest.raises(weights.NoLocalModelError, match=rf"127\.0\.0\.1: it answered {status}"):
        await fetched(publisher, tmp_path)


async def test_a_server_that_recovers_is_waited_for(publisher, tmp_path):
    publisher.script = [503, 503, "ranges"]
    assert (await fetched(publisher, tmp_path)).read_bytes() == CONTENT


async def test_nobody_there_is_one_sentence(publisher, tmp_path):
    publisher.port = 9
    with pytest.raises(weights.NoLocalModelError, match=r"no connection could be made.*model_path"):
        await fetched(publisher, tmp_path)


async def test_no_room_is_said_before_anything_is_fetched(publisher, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=60_000_000))
    with pytest.raises(weights.NoLocalModelError, match="has 60 MB free, and it needs 71"):
        await fetched(publisher, tmp_path)
    assert publisher.asked == []


async def test_a_directory_that_cannot_be_made_is_one_sentence(publisher, tmp_path):
    (tmp_path / "models").write_text("a file")
    with pytest.raises(
        weights.NoLocalModelError, match=r"cannot be stored in .*models: File exists"
    ):
        await fetched(publisher, tmp_path / "models")


async def test_of_two_bots_only_one_fetches(publisher, tmp_path, monkeypatch):
    monkeypatch.setattr(downloading, "_POLL_SECONDS", 0.01)
    one, other = await asyncio.gather(fetched(publisher, tmp_path), fetched(publisher, tmp_path))
    assert one == other
    assert publisher.asked == [""]


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
    told, progress = [], []
    async with opening.Embedded.open(
        settings.Local(), tmp_path, official=publisher.wanted, script=SCRIPT
    ) as local:
        await local.ready(notice=lambda news: (told.append(news), progress.append(local.progress)))
        assert local.progress is None
    assert told[0] == "The demo model is looked for…"
    assert any("Downloading the demo model" in one and "%. Free." in one for one in told)
    assert told[-1] == "The demo model is starting…"
    assert any(progress)
