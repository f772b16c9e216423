"""Files up and down, and what code has shown, over real requests."""

import asyncio
import contextlib
import hashlib
import io
import os
import re
import time
import urllib.parse
import zipfile

import aiohttp
import pytest

from interpreter_bot import settings, values
from interpreter_bot.platforms import http_files
from tests.fakes import conversations

THREAD = "0123456789abcdef"
KEY = values.SessionKey("web", thread=THREAD)


def _where(path, **query):
    return f"{path}?{urllib.parse.urlencode({'thread': THREAD} | query)}"


async def _upload(client, name, data, **options):
    async with client.post(_where("/upload", name=name), data=data, **options) as response:
        return response.status, await response.text()


async def test_what_goes_up_comes_down_byte_for_byte(serving_fake):
    data = os.urandom(900_001)
    async with serving_fake() as (_, client):
        assert await _upload(client, "a b.bin", data) == (200, '{"name": "a b.bin"}')
        async with client.get(_where("/download", name="a b.bin")) as response:
            assert response.headers["Content-Type"] == "application/octet-stream"
            assert response.headers["Content-Disposition"].startswith("attachment;")
            assert int(response.headers["Content-Length"]) == len(data)
            assert await response.read() == data


async def test_an_empty_file_is_a_file(serving_fake):
    async with serving_fake() as (bot, client):
        assert (await _upload(client, "empty", b""))[0] == 200
        assert [one.size_bytes for one in await bot.queries.files(KEY)] == [0]
        async with client.get(_where("/download", name="empty")) as response:
            assert await response.read() == b""


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "..\\..\\x", "a\x00b", "é" * 300, "."])
async def test_no_name_leads_out_of_the_workspace(serving_fake, name):
    async with serving_fake() as (bot, client):
        assert (await _upload(client, name, b"x"))[0] == 200
        assert len(await bot.queries.files(KEY)) == 1
        async with client.get(_where("/download", name="../data/web-token")) as response:
            assert response.status == 404


async def test_a_file_over_the_limit_is_refused_before_it_is_sent(serving_fake):
    limits = settings.Limits(upload_bytes=1000)
    async with serving_fake(limits=limits) as (bot, client):
        status, told = await _upload(client, "big", b"x" * 1001)
        assert (status, told) == (413, "The file is too large: the limit is 1,000 bytes.")
        assert (await _upload(client, "fits", b"x" * 1000))[0] == 200
        assert [one.name for one in await bot.queries.files(KEY)] == ["fits"]


async def test_a_file_that_does_not_say_its_size_is_cut_off_at_the_limit(serving_fake):
    sent = 0

    async def endless():
        nonlocal sent
        while sent < 500_000_000:
            sent += 65_536
            yield b"x" * 65_536

    limits = settings.Limits(upload_bytes=5_000_000)
    async with serving_fake(limits=limits) as (bot, client):
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            assert (await _upload(client, "big", endless()))[0] == 413
        assert sent < 100_000_000
        assert await bot.queries.files(KEY) == ()


async def test_an_upload_that_breaks_off_leaves_nothing(serving_fake):
    async with serving_fake() as (bot, client):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.address.port)
        cookie = next(iter(client.session.cookie_jar))
        writer.write(
            f"POST {_where('/upload', name='half')} HTTP/1.1\r\n"
            f"Host: {client.address.authority}\r\nOrigin: {client.origin}\r\n"
            f"Cookie: {cookie.key}={cookie.value}\r\nInterpreter-Bot-Key: {client.key}\r\n"
            "Content-Length: 1000000\r\n\r\n".encode()
            + b"x" * 500_000
        )
        await writer.drain()
        workspace = bot.directory(KEY).parent
        for _ in range(3000):
            if conversations.read_files(workspace):
                break
            await asyncio.sleep(0.01)
        assert conversations.read_files(workspace)
        writer.close()
        for _ in range(3000):
            if not conversations.read_files(workspace):
                break
            await asyncio.sleep(0.01)
        assert conversations.read_files(workspace) == {}
        del reader


async def test_a_file_that_shrinks_while_it_is_read_breaks_off(serving_fake):
    async with serving_fake() as (bot, client):
        path = bot.directory(KEY) / "growing"
        path.write_bytes(b"x" * 40_000_000)
        async with client.get(_where("/download", name="growing")) as response:
            os.truncate(path, 1000)
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()


MISSING = (
    "/download?name=x",
    "/download?thread=../../../etc&name=passwd",
    "/download?thread=0123456789abcdef&name=none",
    "/picture?sha256=../../x&suffix=png",
    "/picture?sha256=" + "0" * 64 + "&suffix=html",
    "/picture?sha256=" + "0" * 64 + "&suffix=png",
    "/picture?thread=0123456789abcdef&name=page.html",
    "/frame?sha256=none",
    "/notebook?thread=x",
    "/upload",
    "/../pages/__init__.py",
    "/serving.py",
)


async def test_whatever_is_not_there_is_a_sentence(serving_fake):
    async with serving_fake() as (_, client):
        for path in MISSING:
            async with client.get(path) as response:
                assert response.status in (400, 404, 405), path
                assert "Traceback" not in await response.text()


async def _show(client, output):
    """Let code show something; returns the event that told of it."""
    async with client.tab(THREAD) as tab:
        await tab.send("send", id="f" * 16, text="show", is_code=True)
        await tab.event("over")
        (event,) = [one["event"] for one in tab.received if "sha256" in one.get("event", {})]
        return event


def _showing(output):
    async def show(turn):
        await turn.run(0, "show", output)

    return {"show": show}


async def test_a_page_runs_behind_walls_and_only_in_a_frame(serving_fake):
    page = values.Html(html=b"<script>fetch('/')</script>", plain="x")
    async with serving_fake(_showing(page)) as (_, client):
        event = await _show(client, page)
        where = f"/frame?sha256={event['sha256']}"
        headers = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "iframe"}
        async with client.get(where, headers=headers) as response:
            policy = response.headers["Content-Security-Policy"]
            assert page.html in await response.read()
        assert policy.startswith("sandbox allow-scripts;")
        assert "allow-same-origin" not in policy
        assert "default-src 'none'" in policy
        assert "http" not in re.sub(r"[a-z]+-src", "", policy)
        headers = {"Sec-Fetch-Site": "none", "Sec-Fetch-Dest": "document"}
        async with client.get(where, headers=headers, allow_redirects=False) as response:
            assert response.status == 303
            assert response.headers["Location"] == f"/view?sha256={event['sha256']}"


async def test_a_page_with_many_comments_is_shown_at_once(serving_fake):
    page = values.Html(html=b"<!---->" * 27 + b"x", plain="x")
    async with serving_fake(_showing(page)) as (_, client):
        event = await _show(client, page)
        headers = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "iframe"}
        started = time.process_time()
        async with client.get(f"/frame?sha256={event['sha256']}", headers=headers) as response:
            assert page.html in await response.read()
        assert time.process_time() - started < 3


async def test_a_page_is_saved_as_it_is(serving_fake):
    page = values.Html(html="<p>é</p>".encode(), plain="x")
    async with serving_fake(_showing(page)) as (_, client):
        event = await _show(client, page)
        async with client.get(f"/output?sha256={event['sha256']}&suffix=html") as response:
            assert await response.text() == page.html.decode()
            assert 'filename="output.html"' in response.headers["Content-Disposition"]
        where = f"/output?sha256={event['sha256']}&suffix=html&title=..%2FA%5Cb%0A"
        async with client.get(where) as response:
            told = response.headers["Content-Disposition"]
            assert told == "attachment; filename=\".. A b.html\"; filename*=UTF-8''..%20A%20b.html"
            assert response.headers["Content-Type"] == "application/octet-stream"


async def test_a_picture_is_given_as_a_picture_and_runs_nothing(serving_fake):
    drawn = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    picture = values.Image(mime="image/svg+xml", data=drawn, plain="x")
    async with serving_fake(_showing(picture)) as (_, client):
        event = await _show(client, picture)
        expected = ("image/svg+xml", hashlib.sha256(drawn).hexdigest())
        assert (event["mime"], event["sha256"]) == expected
        where = f"/picture?sha256={event['sha256']}&suffix=svg"
        async with client.get(where) as response:
            assert response.headers["Content-Type"] == "image/svg+xml"
            policy = response.headers["Content-Security-Policy"]
            assert policy.startswith("sandbox;")
            assert "script" not in policy
            assert await response.read() == drawn


async def test_films_and_documents_are_given_in_parts_and_are_no_pages(serving_fake):
    async with serving_fake() as (_, client):
        await _upload(client, "film.mp4", b"0123456789")
        await _upload(client, "page.html", b"<script>alert(1)</script>")
        where = _where("/media", name="film.mp4")
        for asked, status, data in [
            (None, 200, b"0123456789"),
            ("bytes=4-", 206, b"456789"),
            ("bytes=2-4", 206, b"234"),
            ("bytes=2-99", 206, b"23456789"),
            ("bytes=-3", 200, b"0123456789"),
            ("nonsense", 200, b"0123456789"),
            ("bytes=10-", 416, None),
            (f"bytes={10**30}-", 416, None),
        ]:
            headers = {"Range": asked} if asked else {}
            async with client.get(where, headers=headers) as response:
                assert (asked, response.status) == (asked, status)
                assert data is None or await response.read() == data
                assert data is None or response.headers["Content-Type"] == "video/mp4"
                assert response.headers["X-Content-Type-Options"] == "nosniff"
        async with client.get(_where("/media", name="page.html")) as response:
            assert response.status == 400
        await _upload(client, "empty.mp4", b"")
        where = _where("/media", name="empty.mp4")
        async with client.get(where, headers={"Range": "bytes=0-"}) as response:
            assert response.status == 416


async def test_files_of_any_time_are_packed(serving_fake):
    async with serving_fake() as (bot, client):
        for name, second in (("old", 0), ("new", 7_000_000_000)):
            path = bot.directory(KEY) / name
            path.write_text(name)
            os.utime(path, (second, second))
        async with client.get(_where("/archive", name="x")) as response:
            packed = zipfile.ZipFile(io.BytesIO(await response.read()))
        dates = {one.filename: one.date_time[0] for one in packed.infolist()}
        assert dates == {"new": 2107, "old": 1980}
        assert packed.read("new") == b"new"


@pytest.mark.slow
async def test_a_file_that_grows_while_it_is_packed_is_packed_as_it_was(serving_fake, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 45_000_000)
    data = os.urandom(40_000_000)
    async with serving_fake() as (bot, client):
        path = bot.directory(KEY) / "growing"
        path.write_bytes(data)
        async with client.get(_where("/archive", name="x")) as response:
            begun = await response.content.readexactly(200_000)
            with path.open("ab") as file:
                file.write(data)
            packed = zipfile.ZipFile(io.BytesIO(begun + await response.read()))
        assert packed.read("growing") == data


async def test_a_file_that_shrinks_while_it_is_packed_is_named(serving_fake):
    async with serving_fake() as (bot, client):
        path = bot.directory(KEY) / "shrinking"
        path.write_bytes(os.urandom(40_000_000))
        async with client.get(_where("/archive", name="x")) as response:
            begun = await response.content.readexactly(200_000)
            os.truncate(path, 100)
            packed = zipfile.ZipFile(io.BytesIO(begun + await response.read()))
        assert 0 < packed.getinfo("shrinking").file_size < 40_000_000
        assert packed.read("left-out.txt").startswith(b"shrinking: ")


async def test_what_cannot_be_packed_is_named_in_the_archive(serving_fake):
    limits = settings.Limits(workspace_bytes=2000, upload_bytes=1000)
    async with serving_fake(limits=limits) as (bot, client):
        for name, size in (("large", 1001), ("small", 3), ("left-out.txt", 4)):
            (bot.directory(KEY) / name).write_bytes(b"x" * size)
        async with client.get(_where("/archive", name="x")) as response:
            packed = zipfile.ZipFile(io.BytesIO(await response.read()))
        assert sorted(packed.namelist()) == ["left-out (2).txt", "left-out.txt", "small"]
        assert packed.read("left-out (2).txt").startswith(b"large: ")


async def test_holes_take_no_room_in_an_archive_and_its_sum_is_bounded(serving_fake):
    limits = settings.Limits(workspace_bytes=3_000_000)
    async with serving_fake(limits=limits) as (bot, client):
        for number in range(200):
            path = bot.directory(KEY) / f"hole-{number:03}"
            path.touch()
            os.truncate(path, 1_200_000)
        for name in ("a", "b", "c"):
            (bot.directory(KEY) / name).write_bytes(os.urandom(1_400_000))
        async with client.get(_where("/archive", name="x")) as response:
            packed = zipfile.ZipFile(io.BytesIO(await response.read()))
        assert packed.namelist() == ["a", "b", "left-out.txt"]
        told = packed.read("left-out.txt").decode()
        assert len(told.splitlines()) == 201


async def test_few_downloads_of_a_session_are_made_at_a_time(serving_fake):
    async with serving_fake() as (bot, client), contextlib.AsyncExitStack() as stack:
        (bot.directory(KEY) / "a").write_bytes(os.urandom(40_000_000))
        for path, limit in ((_where("/archive", name="x"), 2), (_where("/download", name="a"), 8)):
            begun = [await stack.enter_async_context(client.get(path)) for _ in range(limit)]
            assert {response.status for response in begun} == {200}
            async with client.get(path) as refused:
                assert refused.status >= 400
                assert "Too many downloads" in await refused.text()
            for response in begun:
                response.close()
            await asyncio.sleep(0.5)
            async with client.get(path) as response:
                assert response.status == 200


@pytest.mark.first_case
@pytest.mark.parametrize(("path", "limit"), [("/archive", 2), ("/media", 8)])
async def test_who_reads_nothing_for_long_is_cut_off(serving_fake, monkeypatch, path, limit):
    monkeypatch.setattr(http_files, "STALL_SECONDS", 0.3)
    where = _where(path, name="a.mp4")
    async with serving_fake() as (bot, client), contextlib.AsyncExitStack() as stack:
        (bot.directory(KEY) / "a.mp4").write_bytes(os.urandom(40_000_000))
        for _ in range(limit):
            await stack.enter_async_context(client.get(where))
        status = 0
        async with asyncio.timeout(60):
            while status != 200:
                await asyncio.sleep(0.2)
                async with client.get(where) as response:
                    status = response.status


async def test_names_in_an_archive_are_names_on_every_system(serving_fake):
    names = ("..\\..\\evil.bat", 'a:*?"<>|\n.txt', "con.txt", "end.", "x?", "x*", "GROSSE.csv")
    names += ("Große.csv", "data (1).csv", ".hidden")
    async with serving_fake() as (bot, client):
        for name in names:
            (bot.directory(KEY) / name).write_bytes(name.encode())
        (bot.directory(KEY) / "x_").mkdir()
        (bot.directory(KEY) / "x_" / "b").write_bytes(b"x_/b")
        listed = {one.name for one in await bot.queries.files(KEY)}
        async with client.get(_where("/archive", name="x")) as response:
            packed = zipfile.ZipFile(io.BytesIO(await response.read()))
    paths = packed.namelist()
    assert len(paths) == len({path.casefold() for path in paths}) == len(listed)
    for path in paths:
        assert not set(path) & set('\\:*?"<>|\n')
        assert not any(part.endswith((".", " ")) for part in path.split("/"))
    assert not {path for path in paths if any(other.startswith(f"{path}/") for other in paths)}
    assert {"_con.txt", "data (1).csv", ".hidden", "end_"} <= set(paths)


async def test_only_our_page_renames_deletes_and_opens(serving_fake):
    async with serving_fake() as (bot, client):
        await _upload(client, "a.csv", b"1")
        for path in ("/rename", "/delete", "/open"):
            where = _where(path, name="a.csv", to="b.csv")
            async with client.post(where, headers={"Interpreter-Bot-Key": "0" * 64}) as response:
                assert response.status == 403
            async with client.get(where) as response:
                assert response.status == 405
        async with client.post(_where("/rename", name="a.csv", to="../b.csv")) as response:
            assert await response.json() == {"name": "b.csv"}
        async with client.post(_where("/delete", name="a.csv")) as response:
            assert response.status == 404
        async with client.post(_where("/delete", name="b.csv")) as response:
            assert response.status == 200
        assert await bot.queries.files(KEY) == ()
        async with client.get(_where("/archive", name="x")) as response:
            assert response.status == 404


async def test_the_notebook_is_saved_under_the_title(serving_fake):
    async with (
        serving_fake() as (_, client),
        client.get(_where("/notebook", name="Über alles")) as response,
    ):
        assert "%C3%9Cber%20alles.ipynb" in response.headers["Content-Disposition"]
        assert (await response.json(content_type=None))["nbformat"] == 4
