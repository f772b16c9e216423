"""A bot without a model, whose operator enters one on the page."""

import asyncio
import json
import re
import stat

import aiohttp
import pytest

from interpreter_bot import settings
from interpreter_bot.commands import run
from tests.fakes import openai_server

pytestmark = pytest.mark.kernel

KEY = "test-key-0123456789"
POST = """import('/connection.js').then(({ pageKey }) => fetch('/model', {
    method: 'POST', headers: { 'Interpreter-Bot-Key': pageKey }, body: %s,
})).then(async (response) => [response.status, await response.text()])"""


@pytest.fixture
def bot(tmp_path, short_path):
    return settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0),
        local={"enabled": False},
        paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
        web=settings.Web(listen="127.0.0.1:0"),
    )


class Running:
    """A bot in this process, and the address of its page."""

    def __init__(self, bot, capsys, environment):
        self._bot, self._capsys, self._environment = bot, capsys, environment
        self._end = asyncio.Event()

    async def __aenter__(self):
        running = run.run_bot(self._bot, self._environment, self._end)
        self._task = asyncio.create_task(running)
        told = ""
        async with asyncio.timeout(60):
            while not (found := re.search(r"http://\S+token=\S+", told)):
                assert not self._task.done(), told
                await asyncio.sleep(0.05)
                told += self._capsys.readouterr().out
        return found[0]

    async def __aexit__(self, *_):
        self._end.set()
        assert await self._task == 0


@pytest.fixture
def running(bot, capsys):
    return lambda environment=None: Running(bot, capsys, environment or {})


async def _enter(page, key, address):
    await page.until("document.querySelector('.model-form')", seconds=60)
    for name, text in (("key", key), ("address", address)):
        await page.value(f"document.querySelector('.model-form [name={name}]').value = {text!r}")
    await page.click(".model-form .strong")


def _answer(request):
    return openai_server.text("Hello there.")


@pytest.mark.gate
async def test_a_model_is_tried_used_at_once_and_after_a_restart(running, browsing, bot, caplog):
    async with openai_server.Server(_answer, api_key=KEY) as server, browsing() as browser:
        for number in range(2):
            async with running() as address:
                page = await browser.page()
                page.expected += ["400 (Bad Request)", "ERR_CONNECTION_REFUSED"]
                await page.go(address)
                if number == 0:
                    await _enter(page, "wrong-key-0123456789", server.base_url)
                    await page.until(
                        "document.querySelector('.model-form [role=status]')"
                        ".textContent.includes('key')"
                    )
                    assert not server.requests
                    await _enter(page, KEY, server.base_url)
                await page.until(
                    "!document.querySelector('.model-form') && "
                    "document.querySelector('#welcome h2').textContent.startsWith('What')",
                    seconds=60,
                )
                await page.value("document.getElementById('message').focus()")
                await page.type("Say hello")
                await page.press("Enter")
                await page.until("document.body.textContent.includes('Hello there.')", seconds=60)
                assert KEY not in await page.value("document.documentElement.outerHTML")
    stored = bot.paths.data / "credentials"
    assert KEY not in stored.read_text()
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert KEY not in caplog.text


async def test_a_model_is_chosen_in_the_menu_of_a_conversation_that_has_begun(running, browsing):
    server = openai_server.Server(_answer, api_key=KEY)
    async with server, browsing() as browser, running() as address:
        page = await browser.page()
        await page.go(address)
        await page.until("!document.getElementById('welcome').hidden", seconds=60)
        await page.value("document.getElementById('message').focus()")
        await page.type("/py 6 * 7")
        await page.value("document.getElementById('composer').requestSubmit()")
        await page.until("document.querySelector('.outputs')?.innerText === '42'", seconds=60)
        assert not await page.value("!!document.querySelector('.model-form')?.checkVisibility()")
        await page.click("#more")
        entry = (
            "[...document.querySelectorAll('#actions button')]"
            ".find((one) => one.innerText.startsWith('Model'))"
        )
        await page.until(f"!!{entry}")
        await page.value(f"{entry}.click()")
        await page.until("document.querySelector('#panel .model-form')")
        await page.value(
            f"document.querySelector('#panel [name=key]').value = {KEY!r};"
            f"document.querySelector('#panel [name=address]').value = {server.base_url!r}; 1"
        )
        await page.click("#panel .model-form .strong")
        await page.until("document.getElementById('model').value === 'scripted'", seconds=60)


REFUSED = [
    ({"key": "", "address": ""}, "Enter a key"),
    ({"key": "sk-\u2022\u2022\u2022\u2022 12", "address": ""}, "cannot be sent"),
    ({"key": "OPENAI_API_KEY=sk-1234567890", "address": ""}, "give the key alone"),
    ({"key": "k" * 2000, "address": ""}, "characters"),
    ({"key": "", "address": "127.0.0.1:8000"}, "has to begin with http"),
    ({"key": "", "address": "file:///etc/passwd"}, "has to begin with http"),
    ({"key": "", "address": "http://127.0.0.1:9/v1"}, "127.0.0.1"),
    ({"key": "", "address": "http://169.254.169.254/v1"}, "reserved"),
    ({"key": 5, "address": ""}, "was not understood"),
    ([], "Enter a key and an address as text"),
]


async def test_what_is_no_key_or_address_is_refused_in_words(running, browsing, bot):
    async with running() as address, browsing() as browser:
        page = await browser.page()
        page.expected.append("400 (Bad Request)")
        await page.go(address)
        await page.until("document.querySelector('.model-form')", seconds=60)
        for fields, words in REFUSED:
            answer = await page.value(POST % json.dumps(json.dumps(fields)))
            assert answer[0] == 400, fields
            assert words in answer[1]
    assert not (bot.paths.data / "credentials").exists()


async def test_a_model_of_the_environment_is_not_replaced_on_the_page(running, browsing):
    async with openai_server.Server([], api_key=KEY) as server, browsing() as browser:
        named = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
        async with running(named) as address:
            page = await browser.page()
            page.expected.append("400 (Bad Request)")
            await page.go(address)
            await page.until("document.querySelector('.examples')", seconds=60)
            assert not await page.value("document.querySelector('.model-form')")
            answer = await page.value(POST % json.dumps('{"key": "sk-1234567890"}'))
            assert answer[0] == 400
            assert "where the bot runs" in answer[1]


@pytest.mark.gate
async def test_only_whoever_has_the_token_may_choose(running):
    jar = aiohttp.CookieJar(unsafe=True)
    async with running() as address, aiohttp.ClientSession(cookie_jar=jar) as stranger:
        place = address.partition("/?")[0]
        async with stranger.post(f"{place}/model", json={"key": KEY, "address": ""}) as response:
            assert response.status in (401, 403)
        async with stranger.post(f"{place}/model-servers") as response:
            assert response.status in (401, 403)
        # With the cookie, which another page of the browser makes it send, but without the key.
        async with stranger.get(address):
            pass
        async with stranger.post(f"{place}/model-servers", headers={"Origin": place}) as response:
            assert response.status == 403
        async with stranger.get(f"{place}/model-servers") as response:
            assert response.status == 405
