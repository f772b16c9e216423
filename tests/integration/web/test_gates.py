"""Who gets in, and who does not."""

import asyncio
import logging
import socket

import aiohttp
import pytest
import yarl

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.web import access, server
from interpreter_bot.wording import run_words
from tests import futures
from tests.fakes import conversations
from tests.integration.web import visits

THREAD = "0123456789abcdef"
KEY = values.SessionKey("web", thread=THREAD)
KEPT = "localStorage['interpreter-bot-key']"
PATHS = (
    *("/", "/view", "/main.js", "/look.css", "/icon.svg", "/live", "/notebook", "/picture"),
    *("/frame", "/output", f"/download?thread={THREAD}&name=x", "/nothing"),
)


def _fetched(**fields):
    return {f"Sec-Fetch-{name.title()}": value for name, value in fields.items()}


async def test_nothing_is_given_without_the_token(serving_fake):
    async with serving_fake() as (_, client), aiohttp.ClientSession() as stranger:
        for path in PATHS:
            async with stranger.get(client.origin + path) as response:
                assert response.status == 401, path
                assert "locked" in await response.text()


@pytest.mark.parametrize("token", ["", "x", "x" * 43, "%00", "%ff", "%c3%a9"])
async def test_a_wrong_token_opens_nothing(serving_fake, token):
    async with serving_fake() as (_, client), aiohttp.ClientSession() as stranger:
        address = yarl.URL(f"{client.origin}/?token={token}", encoded=True)
        async with stranger.get(address) as response:
            assert response.status == 401
            assert "Set-Cookie" not in response.headers


async def test_the_token_becomes_a_cookie_and_leaves_the_address(serving_fake):
    async with (
        serving_fake() as (_, client),
        aiohttp.ClientSession() as stranger,
        stranger.get(client.address, allow_redirects=False) as response,
    ):
        assert response.status == 303
        # What comes after it never leaves the browser again.
        assert response.headers["Location"].startswith("/#key=")
        cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    # Whatever else is served on this host is sent it.
    assert client.address.query["token"] not in cookie
    assert "SameSite=Strict" in cookie
    assert f"interpreter-bot-{client.address.port}=" in cookie


async def test_a_page_learns_whether_its_key_still_counts(serving_fake):
    async with serving_fake() as (_, client):
        async with client.post("/live") as response:
            assert response.status == 204
        wrong = {"Origin": client.origin, "Interpreter-Bot-Key": "0" * 64}
        async with client.session.post(f"{client.origin}/live", headers=wrong) as response:
            assert response.status == 403


@pytest.mark.parametrize("key", [None, "", "0" * 64, "cookie"])
async def test_who_was_sent_the_cookie_on_another_port_can_do_nothing_with_it(serving_fake, key):
    async with serving_fake() as (bot, client):
        [cookie] = client.session.cookie_jar
        known = {"Origin": client.origin}
        given = cookie.value if key == "cookie" else key
        header = {} if given is None else {"Interpreter-Bot-Key": given}
        where = f"{client.origin}/upload?thread={THREAD}&name=x"
        async with client.session.post(where, headers=known | header, data=b"x") as response:
            assert response.status == 403
        offered = [access.WEBSOCKET_PROTOCOL, *([given] if given else [])]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.session.ws_connect(
                f"{client.origin}/live", headers=known, protocols=offered
            )
        assert refused.value.status == 403
        assert client.key != cookie.value
        assert not list(bot.directory(KEY).iterdir())


@pytest.mark.gate
async def test_a_page_that_has_lost_its_key_is_locked(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        assert client.key not in await page.value("location.href")
        await page.reload()
        await page.until("!document.getElementById('welcome').hidden")
        # 403 where the open page has to connect once more before it goes.
        page.expected = ["401", "403"]
        await page.value("localStorage.clear()")
        await page.go(client.origin)
        await page.until("document.body.innerText.includes('This page is locked')")


@pytest.mark.gate
async def test_a_made_up_key_does_not_replace_the_kept_one(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        for _ in range(2):
            await page.go(f"{client.origin}/?again#key={'0' * 64}")
            await page.until("!document.getElementById('welcome').hidden")
            assert await page.value(KEPT) == client.key
            assert "key=" not in await page.value("location.href")


@pytest.mark.gate
async def test_a_key_that_is_refused_gives_way_or_the_page_is_locked(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        page.expected = ["401", "403"]
        await page.value(f"{KEPT} = '{'0' * 64}'")
        await page.go(str(client.address))
        await page.until("!document.getElementById('welcome').hidden")
        assert await page.value(KEPT) == client.key
        await page.value(f"{KEPT} = '{'0' * 64}'")
        await page.go(f"{client.origin}/#key={'1' * 64}")
        await page.reload()
        await page.until("document.body.innerText.includes('This page is locked')")
        assert await page.value("location.pathname + location.search") == "/?locked"


async def test_a_restart_logs_nobody_out(serving_fake, tmp_path):
    async with serving_fake() as (_, client):
        token = client.address.query["token"]
    async with serving_fake() as (_, client):
        assert client.address.query["token"] == token


async def test_every_answer_carries_the_walls(serving_fake):
    answers = []
    async with serving_fake() as (_, client):
        for path in PATHS:
            async with client.get(path) as response:
                answers.append(response.headers)
    for headers in answers:
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-DNS-Prefetch-Control"] == "off"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Server"] == "interpreter-bot"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe-inline" not in headers["Content-Security-Policy"]


STRANGERS = (
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1.evil.example:{port}",
    "localhost.evil.example",
    "169.254.169.254",
    "192.168.0.1:{port}",
    "127.0.0.1:{port}@evil.example",
    "",
    "[::2]:{port}",
    "0x7f.1:{port}",
    "evil.example#127.0.0.1",
)


async def test_a_name_of_a_strangers_that_leads_here_is_refused(serving_fake):
    async with serving_fake() as (_, client):
        for host in STRANGERS:
            headers = {"Host": host.format(port=client.address.port)}
            async with client.get("/", headers=headers) as response:
                assert response.status in (400, 421), host
                assert "conversation" not in await response.text()


async def test_names_of_this_machine_are_served(serving_fake):
    async with serving_fake() as (_, client):
        for host in ("localhost:{port}", "127.0.0.1", "[::1]:{port}", "LOCALHOST:99"):
            headers = {"Host": host.format(port=client.address.port)}
            async with client.get("/", headers=headers) as response:
                # Cookies are kept by name of the host and the port that was asked for.
                assert response.status in (200, 401), host


@pytest.mark.parametrize(
    ("host", "status"),
    [("bot.example", 401), ("BOT.example:1", 401), ("x.example:8443", 401), ("x.example", 421)],
)
async def test_an_operator_can_allow_other_names(serving_fake, host, status):
    web = settings.Web(listen="127.0.0.1:0", allowed_hosts=("bot.example", "x.example:8443"))
    async with (
        serving_fake(web=web) as (_, client),
        client.get("/", headers={"Host": host}) as response,
    ):
        assert response.status == status


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost"},
        _fetched(site="cross-site", mode="no-cors", dest="image"),
        _fetched(site="same-site", mode="no-cors", dest="script"),
        _fetched(site="same-site", mode="navigate", dest="iframe"),
        _fetched(site="cross-site", mode="cors", dest="empty"),
    ],
)
async def test_other_pages_are_refused_even_with_the_cookie(serving_fake, headers):
    async with serving_fake() as (bot, client):
        for path in ("/", "/main.js", f"/notebook?thread={THREAD}"):
            async with client.get(path, headers=headers) as response:
                assert response.status == 403
        where = f"/upload?thread={THREAD}&name=x"
        async with client.post(where, headers={"Origin": "", **headers}, data=b"x") as response:
            assert response.status == 403
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with client.tab(**({"Origin": ""} | headers)):
                pass
        assert refused.value.status == 403
        assert not list(bot.directory(KEY).iterdir())


async def test_what_names_no_page_may_read_and_not_write(serving_fake):
    async with serving_fake() as (_, client):
        async with client.session.post(f"{client.origin}/upload?thread={THREAD}") as response:
            assert response.status == 403
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await client.session.ws_connect(client.origin + "/live")


async def test_a_click_on_another_page_opens_ours_and_nothing_else(serving_fake):
    headers = _fetched(site="cross-site", mode="navigate", dest="document")
    async with serving_fake() as (_, client):
        async with client.get("/", headers=headers) as response:
            assert response.status == 200
        async with client.get("/view", headers=headers) as response:
            assert response.status == 403
        # A browser keeps our cookie to itself then; the page asks once more, by itself.
        async with aiohttp.ClientSession() as stranger:
            async with stranger.get(client.origin + "/", headers=headers) as response:
                assert 'content="0;url=/?again"' in await response.text()
            async with stranger.get(client.origin + "/?again", headers=headers) as response:
                assert response.status == 401


async def test_the_token_is_in_no_log(serving_fake, caplog):
    caplog.set_level("DEBUG")
    async with serving_fake() as (_, client):
        token = client.address.query["token"]
    assert token not in caplog.text


async def test_a_port_that_is_taken_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        web = settings.Web(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        async with conversations.opened(tmp_path) as bot:
            opening = server.serve(futures.completed_future(bot), web, tmp_path)
            with pytest.raises(errors.SettingsError, match="Is another bot running"):
                await opening.__aenter__()


async def test_listens_on_this_machine_alone(serving_fake):
    async with serving_fake() as (_, client):
        assert client.address.host == "127.0.0.1"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", client.address.port)


@pytest.mark.parametrize(
    ("forwarded", "scheme", "status"),
    [("", "http", 200), ("", "https", 403), ("https", "https", 200), ("https", "http", 403)],
)
async def test_a_page_of_another_scheme_is_another_page(serving_fake, forwarded, scheme, status):
    async with serving_fake() as (_, client):
        origin = client.origin.replace("http://", f"{scheme}://")
        headers = {"Origin": origin, "X-Forwarded-Proto": forwarded}
        async with client.get("/main.js", headers=headers) as response:
            assert response.status == status


async def test_a_proxy_with_tls_need_not_say_so_at_a_name_that_the_operator_allows(serving_fake):
    web = settings.Web(listen="127.0.0.1:0", allowed_hosts=("bot.example",))
    headers = {"Host": "bot.example", "Origin": "https://bot.example"}
    async with (
        serving_fake(web=web) as (_, client),
        client.get("/main.js", headers=headers) as response,
    ):
        assert response.status == 401


@pytest.mark.looptime
async def test_connections_without_a_complete_request_are_closed(serving_fake):
    begun = (b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
    async with serving_fake() as (_, client):
        silent = [
            await asyncio.open_connection("127.0.0.1", client.address.port) for _ in begun * 100
        ]
        for (_, writer), data in zip(silent, begun * 100, strict=True):
            writer.write(data)
        async with asyncio.timeout(30):
            assert {await reader.read() for reader, _ in silent} == {b""}
        for _, writer in silent:
            writer.close()


async def test_what_is_no_http_is_a_line_of_the_log_at_most(serving_fake, caplog):
    caplog.set_level(logging.INFO)
    sent = (
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"x" * 20_000 + b"\r\n\r\n",
    )
    async with serving_fake() as (_, client):
        for data in sent:
            reader, writer = await asyncio.open_connection("127.0.0.1", client.address.port)
            writer.write(data)
            await reader.read()
            writer.close()
    assert [record for record in caplog.records if record.exc_info] == []
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


async def test_a_request_that_ends_in_an_error_gets_a_sentence(serving_fake, caplog):
    async def broken(*_, **__):
        raise RuntimeError("nobody foresaw this")

    async with serving_fake() as (bot, client):
        bot.save_table = broken
        where = f"/table?thread={THREAD}&table=t1"
        async with client.post(where) as response:
            assert (response.status, await response.text()) == (500, run_words.BOT_FAULT)
        async with client.post(f"{where}&suffix=exe") as response:
            assert (response.status, (await response.text())[-10:]) == (400, "reload it.")
    assert [one.exc_info[0] for one in caplog.records if one.exc_info] == [RuntimeError]
