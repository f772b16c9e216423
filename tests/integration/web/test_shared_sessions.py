"""Conversations of other platforms, read on the page by who was let see them there."""

import asyncio
import contextlib
import hashlib
import os
import secrets

import aiohttp
import pytest

from interpreter_bot import errors, events, settings, values
from interpreter_bot.sessions import requests, share_links
from tests.fakes import replies
from tests.integration.web import visits

OURS = values.SessionKey("slack", "T1", "C1", "17.1")
OTHERS = values.SessionKey("slack", "T1", "C2", "17.2")
PUBLIC = settings.Web(listen="127.0.0.1:0", public_url="https://bot.example.org")
TABLE = values.Table(
    columns=("", "n"),
    rows=(("a", "1"),),
    row_count=9,
    column_count=1,
    index_count=1,
    handle="t1",
)


async def _asked(bot, key, text="show", *, is_code=False):
    """Let somebody ask something on another platform; nobody waits for the bot to say it there."""
    person = requests.Person("U1", "Ada")
    request = requests.Request(
        key=key, person=person, text=text, is_code=is_code, id=secrets.token_hex(8)
    )
    await bot.handle(request, replies.Reply())


async def _link(bot, client, key=OURS):
    """Ask for a link as a platform does, to where the test serves the page."""
    link = await bot.visits.link(key)
    assert link.startswith("https://bot.example.org/visit#")
    return link.replace("https://bot.example.org", client.origin)


async def _entered(stranger, client, link):
    """Use a link without a browser; returns the status and the id of the visit."""
    post = stranger.post(
        f"{client.origin}/visit",
        data=link.partition("#")[2],
        headers={"Origin": client.origin},
    )
    async with post as response:
        is_in = response.status == 200
        given = [
            cookie for cookie in response.headers.getall("Set-Cookie", []) if "gAAAA" in cookie
        ]
        assert len(given) == is_in
        assert all("HttpOnly" in cookie and "SameSite=Strict" in cookie for cookie in given)
        return response.status, (await response.json())["thread"] if is_in else ""


def _stranger():
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def _status(stranger, client, path, *, method="GET"):
    headers = {"Origin": client.origin} if method == "POST" else {}
    async with stranger.request(method, client.origin + path, headers=headers) as response:
        return response.status


@pytest.mark.gate
async def test_a_thread_is_read_by_who_has_the_link(serving_fake, browsing):
    picture = values.Image(data=visits.png(60, 40), mime="image/png", plain="Units by month")
    words = "Units **grew**: see `made.csv`."
    script = visits.make_script(picture, TABLE, text=words, artifacts=[("made.csv", b"1,2\n")])
    async with serving_fake(script, web=PUBLIC) as (bot, client), browsing() as browser:
        await _asked(bot, OURS, "show me the units")
        page = await browser.page()
        await page.go(await _link(bot, client))
        await page.until("document.querySelector('.turn img')?.naturalWidth === 60")
        assert await page.text(".bubble") == "show me the units"
        assert await page.text(".words strong") == "grew"
        assert "You are reading a conversation of Slack." in await page.text("#banner")
        # Its secret has left the address, and so a bookmark, and the list of what was visited.
        assert len(await page.value("location.hash")) == 33
        assert await page.text("#made .file-title") == "made.csv"
        await page.click(".work summary")
        seen = "[...document.querySelectorAll('button')].filter(e => e.checkVisibility())"
        assert await page.value(f"{seen}.map(e => e.innerText.trim())") == [
            "Download",
            *["Copy"] * 2,
            "Full screen",
            "Copy",
        ]
        await page.click(".turn .file a[download]")
        assert (await browser.wait_for_download()).read_bytes() == b"1,2\n"
        await page.reload()
        await page.until("document.querySelector('.turn img')?.naturalWidth === 60")


async def test_who_has_the_token_goes_on_in_a_copy_with_its_variables(serving_kernels, browsing):
    kept = settings.Snapshots()
    async with (
        serving_kernels(PUBLIC, snapshots=kept) as (service, address),
        browsing() as browser,
    ):
        await _asked(service, OURS, "x = 41", is_code=True)
        page = await browser.page()
        await page.go(address)
        await page.until("!document.getElementById('welcome').hidden")
        origin = address.partition("/?")[0]
        link = await service.visits.link(OURS)
        await page.go(link.replace("https://bot.example.org", origin))
        await page.until("document.querySelector('#continue')?.checkVisibility()")
        await page.click("#continue")
        await page.until("location.pathname === '/' && document.querySelectorAll('.turn').length")
        await page.until("document.getElementById('title').textContent === 'x = 41'")
        copy = values.SessionKey("web", thread=await page.value("location.hash.slice(1)"))
        await _asked(service, copy, "x + 1", is_code=True)
        shown = (await service.queries.history(copy))[-1].events
        plain = [one.output.plain for one in shown if isinstance(one, events.OutputShown)]
        assert plain == ["42"]
        assert [one.record.request for one in await service.queries.history(OURS)] == ["x = 41"]


async def test_a_link_works_once(serving_fake):
    async with serving_fake(web=PUBLIC) as (bot, client):
        await bot.add_turn(OURS, "hello")
        link = await _link(bot, client)
        async with _stranger() as one, _stranger() as two:
            results = await asyncio.gather(*(_entered(s, client, link) for s in (one, two)))
            assert sorted(status for status, _ in results) == [200, 400]


async def test_a_visit_reads_one_conversation_and_does_nothing(serving_fake):
    async def show(turn):
        turn.reply.step(1)
        data = turn.request.text.encode()
        await turn.run(0, "show()", values.Image(data=data, mime="image/png"))
        return "Done."

    async with serving_fake({"show": show}, web=PUBLIC) as (bot, client), _stranger() as stranger:
        await _asked(bot, OURS, "show ours")
        await _asked(bot, OTHERS, "show theirs")
        for key in (OURS, OTHERS):
            (bot.directory(key) / "secret.txt").write_text(key.channel)
        _, visit = await _entered(stranger, client, await _link(bot, client))

        async def get(path):
            return await _status(stranger, client, path)

        ours, theirs = (
            hashlib.sha256(t.encode()).hexdigest() for t in ("show ours", "show theirs")
        )
        assert await get(f"/visited?thread={visit}") == 200
        assert await get(f"/picture?thread={visit}&suffix=png&sha256={ours}") == 200
        assert await get(f"/picture?thread={visit}&suffix=png&sha256={theirs}") == 404
        assert await get(f"/picture?suffix=png&sha256={ours}") == 401
        async with stranger.get(
            f"{client.origin}/download?thread={visit}&name=secret.txt"
        ) as response:
            assert await response.text() == "C1"
        # Of others neither by their name, nor by one of a visit that is somebody else's.
        async with _stranger() as other:
            _, foreign = await _entered(other, client, await _link(bot, client, OTHERS))
        for thread in (
            foreign,
            values.format_key(OTHERS),
            "17.2",
            "0" * 32,
            f"{visit}&thread={foreign}",
        ):
            status = await get(f"/download?name=secret.txt&thread={thread}")
            assert status == (200 if "&" in thread else 401)
        for path in ("/", "/live", "/nothing", f"/?thread={visit}"):
            assert await get(path) == 401
        for path in ("upload", "rename", "delete", "open", "run-notebook", "continue"):
            path = f"/{path}?thread={visit}&name=secret.txt&to=x"
            assert await _status(stranger, client, path, method="POST") == 401
        assert await _status(stranger, client, f"/download?thread={visit}", method="DELETE") == 403
        with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
            await stranger.ws_connect(
                f"{client.origin}/live?thread={visit}", headers={"Origin": client.origin}
            )
        assert (bot.directory(OURS) / "secret.txt").exists()


async def test_what_a_visitor_leaves_unread_keeps_nobody_else_out(serving_fake):
    ours = values.SessionKey("web", thread="0123456789abcdef")
    async with contextlib.AsyncExitStack() as stack:
        bot, client = await stack.enter_async_context(serving_fake(web=PUBLIC))
        await bot.add_turn(ours, "hello")
        (bot.directory(ours) / "film.mp4").write_bytes(os.urandom(40_000_000))
        strangers = [await stack.enter_async_context(_stranger()) for _ in range(2)]
        (_, greedy), (_, other) = [
            await _entered(stranger, client, await _link(bot, client, ours))
            for stranger in strangers
        ]
        path = f"/media?thread={greedy}&name=film.mp4"
        for _ in range(8):
            unread = strangers[0].get(client.origin + path)
            assert (await stack.enter_async_context(unread)).status == 200
        assert await _status(strangers[0], client, path) == 400
        path = f"/media?thread={other}&name=film.mp4"
        assert await _status(strangers[1], client, path) == 200
        async with client.get(f"/media?thread={ours.thread}&name=film.mp4") as response:
            assert response.status == 200


@pytest.mark.parametrize("what", ["LINK_SECONDS", "PASS_SECONDS"])
async def test_what_is_too_old_opens_nothing(serving_fake, monkeypatch, what):
    async with serving_fake(web=PUBLIC) as (bot, client), _stranger() as stranger:
        await bot.add_turn(OURS, "hello")
        monkeypatch.setattr(share_links, what, -1)
        link = (await _link(bot, client)).partition("#")[2]
        if what == "LINK_SECONDS":
            assert await _entered(stranger, client, f"#{link}") == (400, "")
            return
        visit, proof = await bot.visits.enter(link)
        name = f"interpreter-bot-{client.address.port}-visit-{visit.id}"
        headers = {"Cookie": f"{name}={proof}"}
        address = f"{client.origin}/visited?thread={visit.id}"
        async with stranger.get(address, headers=headers) as response:
            assert response.status == 401


async def test_what_is_made_up_opens_nothing(serving_fake):
    async with serving_fake(web=PUBLIC) as (bot, client), _stranger() as stranger:
        await bot.add_turn(OURS, "hello")
        link = (await _link(bot, client)).partition("#")[2]
        visit, proof = await bot.visits.enter(link)
        fresh = (await _link(bot, client)).partition("#")[2]
        middle = len(fresh) // 2
        turned = fresh[:middle] + ("A" if fresh[middle] != "A" else "B") + fresh[middle + 1 :]
        plain = f'["link", "{"0" * 32}", "slack/T1/C1/17.1", 9999999999]'
        # A pass is no link, nor a link a pass.
        for made in ("", "x", turned, plain, f"fernet:{fresh}", proof, "é", "A" * 100_000):
            assert await _entered(stranger, client, f"#{made}") == (400, "")
        for made in (fresh, turned, plain):
            assert await bot.visits.find(visit.id, made) is None
        assert await bot.visits.find("0" * 32, proof) is None
        assert await bot.visits.find(visit.id, proof) == visit
        headers = {"Origin": "http://127.0.0.1:1"}
        async with stranger.post(f"{client.origin}/visit", data=fresh, headers=headers) as response:
            assert response.status == 403


async def test_the_pass_goes_by_tls_alone_where_the_public_address_does(serving_fake):
    public = PUBLIC.model_copy(update={"public_url": "https://Bot.example.org:443/"})
    async with serving_fake(web=public) as (bot, client), _stranger() as stranger:
        await bot.add_turn(OURS, "hello")
        for host, is_secure in (("bot.example.org", True), (client.origin[7:], False)):
            headers = {"Host": host, "Origin": f"{'https' if is_secure else 'http'}://{host}"}
            link = (await bot.visits.link(OURS)).partition("#")[2]
            post = stranger.post(f"{client.origin}/visit", data=link, headers=headers)
            async with post as response:
                assert response.status == 200
                (cookie,) = response.headers.getall("Set-Cookie")
                assert ("Secure" in cookie) == is_secure


async def test_a_visit_asks_for_no_number_of_turns_that_is_none(serving_fake):
    async with serving_fake(web=PUBLIC) as (bot, client), _stranger() as stranger:
        await bot.add_turn(OURS, "hello")
        _, visit = await _entered(stranger, client, await _link(bot, client))
        for limit in ("5", "9" * 5000, "²"):
            path = f"/visited?thread={visit}&most={limit}"
            assert await _status(stranger, client, path) == 200


async def test_a_visit_ends_with_its_conversation(serving_fake):
    async with serving_fake(web=PUBLIC) as (bot, client), _stranger() as stranger:
        await bot.add_turn(OURS, "hello")
        _, visit = await _entered(stranger, client, await _link(bot, client))
        await bot.delete(OURS)
        assert await _status(stranger, client, f"/visited?thread={visit}") == 404
        with pytest.raises(errors.BotError, match="nothing in this conversation"):
            await bot.visits.link(OURS)


async def test_a_browser_keeps_so_many_visits(serving_fake):
    async with serving_fake(web=PUBLIC) as (bot, client), _stranger() as stranger:
        await bot.add_turn(OURS, "hello")
        made = []
        for _ in range(12):
            _, visit = await _entered(stranger, client, await _link(bot, client))
            made.append(visit)
        assert len(stranger.cookie_jar) == 8
        statuses = [await _status(stranger, client, f"/visited?thread={one}") for one in made]
        assert (statuses.count(401), statuses.count(200), statuses[-1]) == (4, 8, 200)


async def test_without_a_public_address_nothing_is_there(serving_fake):
    async with serving_fake() as (bot, client), _stranger() as stranger:
        await bot.add_turn(OURS, "hello")
        with pytest.raises(errors.BotError, match="public address"):
            await bot.visits.link(OURS)
        for path in ("/visit", "/visit.js", "/visited"):
            assert await _status(stranger, client, path) == 401
        assert await _status(stranger, client, "/visit", method="POST") == 401


async def test_the_public_host_is_served_and_what_is_open_holds_nothing(serving_fake):
    async with serving_fake(web=PUBLIC) as (_, client), _stranger() as stranger:
        for host, status in (("bot.example.org", 200), ("evil.example.org", 421)):
            headers = {"Host": host}
            async with stranger.get(f"{client.origin}/visit", headers=headers) as response:
                assert response.status == status
        fetched = {"Site": "cross-site", "Mode": "navigate", "Dest": "document"}
        headers = {f"Sec-Fetch-{name}": value for name, value in fetched.items()}
        for path, status in (("/visit", 200), ("/visit.js", 403), ("/visited", 403)):
            async with stranger.get(client.origin + path, headers=headers) as response:
                assert response.status == status
