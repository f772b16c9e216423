"""What holds for the person of the page, and what is remembered for them: panels, forms, cards."""

import contextlib

import aiohttp
import pytest

from interpreter_bot import settings, values
from interpreter_bot.app import bot_startup
from interpreter_bot.platforms.web import server, validation
from tests import futures
from tests.fakes import conversations, openai_server
from tests.integration.web import visits
from tests.integration.web.conftest import Client

SAYS = "document.getElementById('panel-body').innerText.includes('{}')"
THREAD, NEXT = "a" * 20, "b" * 20
NOTE = "Revenue is net of VAT. <img src=x onerror=alert(1)>"


@contextlib.asynccontextmanager
async def served(tmp_path, short_path, *script):
    """Serve real conversations with a scripted model."""
    await conversations.prepare_database(tmp_path / "data")
    web = settings.Web(listen="127.0.0.1:0")
    async with openai_server.Server(script) as model:
        config = settings.Settings(
            web=web,
            models=(settings.Model(name="scripted", base_url=model.base_url),),
            kernels=settings.Kernels(preload=(), spares=0),
            sessions=settings.Sessions(model_titles=False),
            paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
        )
        keys = {"OPENAI_API_KEY": model.api_key}
        jar = aiohttp.CookieJar(unsafe=True)
        async with (
            bot_startup.open_service(config, keys) as service,
            server.serve(futures.completed_future(service), web, tmp_path / "data") as address,
            aiohttp.ClientSession(cookie_jar=jar) as session,
        ):
            async with session.get(address) as response:
                key = response.real_url.fragment.removeprefix("key=")
            yield service, model, Client(session, address, key)


@pytest.mark.kernel
async def test_a_note_is_proposed_confirmed_and_told_in_the_next_conversation(tmp_path, short_path):
    ok = openai_server.text("ok")
    script = [openai_server.call("propose_note", {"text": NOTE}), ok, ok]
    async with served(tmp_path, short_path, *script) as (service, model, client):
        # Notes of chats are not the page's.
        chat = values.Scope("slack", "T1", "C1")
        await service.places.remember(chat, "Of a channel.", validation.PERSON)
        async with client.tab(THREAD) as tab:
            await tab.send("send", id="1" * 20, text="revenue is net of VAT")
            question = await tab.event("approve")
            assert (question["title"], question["approve"]) == ("Remember this here?", "Remember")
            # An answer under a made-up id, and one that is too long, decide nothing.
            await tab.send("answer", question="12345", text=NOTE)
            assert "expired" in (await tab.next("refused"))["sentence"]
            await tab.send("answer", question=question["id"], text="x" * 501)
            assert "500 characters" in (await tab.next("refused"))["sentence"]
            assert await service.places.notes(validation.PAGE_SCOPE) == ()
            await tab.send("answer", question=question["id"], text=NOTE)
            await tab.event("over")
        async with client.tab(NEXT) as tab:
            await tab.send("send", id="2" * 20, text="go")
            await tab.event("over")
        assert NOTE in model.requests[2].messages[0]["content"]
        assert "Of a channel." not in model.requests[2].messages[0]["content"]


async def test_tabs_see_and_change_only_what_is_theirs(serving_fake):
    place = settings.Place(places=("web",), approval="plan")
    async with serving_fake({}, place=(place,)) as (service, client), client.tab(THREAD) as tab:

        async def shown(do="show", **fields):
            await tab.send(do, **fields)
            return await tab.next("panel")

        chat = values.Scope("slack", "T1", "C1")
        await service.places.remember(chat, "Of a channel.", validation.PERSON)
        [theirs] = await service.places.notes(chat)
        empty = await shown(panel="memory")
        assert "I remember nothing here" in empty["text"]
        form = await shown(panel="memory", argument="add")
        assert [field["name"] for field in form["form"]["fields"]] == ["note"]
        saved = await shown("submit", panel="memory", argument="add", fields={"note": "Ours."})
        assert saved["text"] == "I'll remember that here."
        refused = await shown("submit", panel="memory", argument="add", fields={"note": "x" * 501})
        assert "the limit is 500" in refused["problem"]
        for rest in (f"edit {theirs.id}", f"forget {theirs.id}"):
            await tab.send("show", panel="memory", argument=rest)
            assert "There is no note" in (await tab.next("refused"))["sentence"]
        stolen = await shown(
            "submit", panel="memory", argument=f"edit {theirs.id}", fields={"note": "Mine."}
        )
        assert "There is no note" in stolen["problem"]
        # Only commands with forms take what is entered, and nobody chooses for a server here.
        for panel, rest in (("reset", ""), ("usage", ""), ("memory", "add server")):
            answer = await shown("submit", panel=panel, rest=rest, fields={"note": "x"})
            assert answer["problem"]
        await shown("submit", panel="place", argument="edit", fields={"instructions": "Be brief."})
        rows = {label: value for label, value, _ in (await shown(panel="place"))["rows"]}
        assert rows["instructions"] == "Be brief. (set by you)"
        assert rows["approval"] == "plan (set for everybody by whoever runs this bot)"
        assert rows["notes"] == "1"
        assert [note.text for note in await service.places.notes(chat)] == ["Of a channel."]


@pytest.mark.gate
async def test_panels_and_forms_in_a_browser(serving_fake, browsing):
    async with serving_fake({}) as (service, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "/memory")
        await page.until("document.querySelector('#panel[open] button.small')")
        assert "I remember nothing here" in await page.text("#panel-body")
        await page.click("#panel-body .row button")
        await page.until("document.querySelector('.command-form textarea')")
        await page.click(".command-form textarea")
        await page.type(NOTE)
        await page.click(".command-form .strong")
        await page.until(SAYS.format("remember that"))
        await page.click("#panel-body .row button:first-child")
        await page.until("document.querySelector('#panel-body td')")
        # It is shown as it was written.
        assert NOTE in await page.text("#panel-body td")
        assert await page.value("document.querySelector('#panel-body img') === null")
        await page.click("#panel-body td button:last-child")
        await page.until(SAYS.format("Forgotten"))
        assert await service.places.notes(validation.PAGE_SCOPE) == ()
        await page.click("#panel-close")
        await visits.send_message(page, "/place edit")
        await page.until("document.querySelector('.command-form select')")
        await page.click(".command-form textarea")
        await page.type("Be brief.")
        await page.click(".command-form .strong")
        await page.until(SAYS.format("Saved"))
        choices = await service.queries.choices(validation.PAGE_SCOPE)
        assert choices == {"instructions": "Be brief."}
