"""The page as a person meets it: the real command, browser, kernels, files and store.

Only the model is played, behind its real wire format.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import pathlib
import re
import signal
import sys

import nbclient
import nbformat
import pytest

from tests.fakes import openai_server

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(240)]

COMMAND = (str(pathlib.Path(sys.executable).with_name("interpreter-bot")), "run")
SECONDS = "parseFloat(document.querySelector('.turn .meta').innerText)"
ENDED = "document.querySelectorAll('.turn:not([aria-busy])').length"
MIB = 1024 * 1024

PLOT = """
import pandas as pd
import matplotlib.pyplot as plt

df = pd.read_csv("iris.csv")
print(df.shape)
plt.scatter(df.sepal_length, df.petal_length)
plt.show()
with open("made.bin", "wb") as stream:
    stream.write(bytes(range(256)) * 1000)
df.groupby("species").mean()
"""
IRIS = "sepal_length,petal_length,species\n" + "".join(
    f"{5 + n % 7 / 10},{1 + n % 50 / 10},{'abc'[n % 3]}\n" for n in range(150)
)


class Bot:
    """A running bot."""

    def __init__(self, process, address):
        self.process = process
        self.address = address

    @property
    def port(self):
        return int(re.search(r":(\d+)/", self.address)[1])

    def memory_bytes(self):
        """What it holds for itself: what the page cache holds of files is not counted."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024

    async def kill(self):
        self.process.kill()
        await self.process.wait()


@pytest.fixture
def running(tmp_path, short_path):
    """Run the bot: `async with running(server) as bot`; again on the same data."""

    @contextlib.asynccontextmanager
    async def running(server, *, port=0, **settings):
        environment = {
            "PATH": os.environ["PATH"],
            "INTERPRETER_BOT_LOCAL__ENABLED": "false",
            "INTERPRETER_BOT_SESSIONS__MODEL_TITLES": "false",
            "HOME": str(tmp_path),
            "OPENAI_API_KEY": server.api_key,
            "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
            "INTERPRETER_BOT_PATHS__RUNTIME": str(short_path),
            "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
            "INTERPRETER_BOT_WEB__LISTEN": f"127.0.0.1:{port}",
            "INTERPRETER_BOT_MODELS": json.dumps(
                [{"name": "scripted", "base_url": server.base_url}]
            ),
        } | settings
        log = tmp_path / "log"
        with log.open("ab") as stream:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                env=environment,
                cwd=tmp_path,
                stdout=stream,
                stderr=stream,
                # Its kernels end with it, whatever happens to us.
                start_new_session=True,
            )
        seen = log.stat().st_size
        try:
            yield Bot(process, await _address(process, log, seen))
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(60):
                    assert await process.wait() == 0, log.read_text()

    return running


async def _address(process, log, seen):
    for _ in range(3000):
        if found := re.search(r"http://\S+/\?token=\S+", log.read_text()[seen:]):
            return found[0]
        assert process.returncode is None, log.read_text()
        await asyncio.sleep(0.02)
    raise AssertionError(log.read_text())


async def _open(page, bot):
    """Go to the page, and wait until it is connected: what is said before is kept, but not sent."""
    await page.go(bot.address)
    await page.until("!document.getElementById('welcome').hidden")


async def _say(page, text):
    await page.value("document.getElementById('message').focus()")
    await page.type(text)
    await page.press("Enter")


async def _run(page, code):
    """Run raw code; returns what it printed."""
    await page.until("!document.querySelector('.turn[aria-busy]')")
    before = await page.value(ENDED)
    await _say(page, f"/py {code}")
    await page.until(f"{ENDED} === {before + 1}", seconds=60)
    last = "[...document.querySelectorAll('.turn')].at(-1)"
    await page.wait_for_frame()
    return await page.value(f"{last}.querySelector('.outputs')?.innerText ?? ''")


async def _watched_stream(page):
    """Collect how long the last words are until the turn is over."""
    lengths = set()
    length = "[...document.querySelectorAll('.words')].at(-1)?.innerText.length ?? 0"
    while not await page.value(f"{ENDED} === 1"):
        lengths.add(await page.value(length))
        await asyncio.sleep(0.02)
    await page.wait_for_frame()
    return lengths


@pytest.mark.gate
async def test_from_a_file_to_a_chart_and_a_notebook(running, browsing, tmp_path):
    iris = tmp_path / "iris.csv"
    iris.write_text(IRIS)
    words = [f"word{number} " for number in range(60)]
    script = [
        openai_server.code(PLOT, "I will ", "plot it."),
        openai_server.text(
            *words, "See [the file](sandbox:/mnt/data/made.bin).", delay_seconds=0.02
        ),
    ]
    async with (
        openai_server.Server(script) as server,
        running(server) as bot,
        browsing() as browser,
    ):
        page = await browser.page(width=1400)
        await _open(page, bot)
        await page.choose_files("#picker", iris)
        await page.until("document.querySelector('#uploads .done')")
        await _say(page, "plot petal length by species")
        lengths = await _watched_stream(page)
        assert len(lengths) > 3, "the words came all at once"
        await page.until("document.querySelector('.output.image img').naturalWidth > 100")
        assert "(150, 3)" in await page.text(".printed.stdout")
        await page.until("document.querySelector('.output.table')?.innerText.includes('3 rows')")
        assert "sandbox:" not in await page.text(".turn")
        await page.click(".file a.small[download]")
        assert (await browser.wait_for_download()).read_bytes() == bytes(range(256)) * 1000

        shown = await page.text("#turns")
        cells = "document.querySelectorAll('#turns td').length"
        cell_count = await page.value(cells)
        await page.reload()
        await page.until(f"{ENDED} === 1 && {cells} === {cell_count}")
        await page.until("document.querySelector('.output.image img')?.naturalWidth > 100")
        await page.wait_for_frame()
        again = await page.text("#turns")
        assert _settled(again) == _settled(shown)
        assert re.findall(r"[\d,]+ tokens", again) == re.findall(r"[\d,]+ tokens", shown) != []

        assert await _run(page, "kept = 41") == "Done. No output."
        await _say(page, "/py import time; print('go', flush=True); time.sleep(50)")
        await page.until(
            "[...document.querySelectorAll('.stdout')].at(-1).innerText.includes('go')"
        )
        for _ in range(2):
            await page.press("Escape")
        await page.until(f"{ENDED} === 3")
        stopped = await page.value("document.querySelector('.turn:last-child').innerText")
        assert stopped.lower().count("stopped") == 1
        assert "Variables are kept." in stopped
        assert "KeyboardInterrupt" not in stopped
        assert (await _run(page, "print(kept + 1, len(df))")).strip() == "42 150"

        await _check_notebook(browser, page, tmp_path)

        await page.click("#python-state")
        await page.click("#actions button:last-child")
        await page.click("dialog[open] .strong")
        await page.until(
            "document.getElementById('turns').innerText.includes('history are cleared')"
        )
        told = await _run(page, "import os; print('kept' in globals(), os.path.exists('iris.csv'))")
        assert told.strip() == "False True"


async def test_what_one_says_while_code_runs_is_taken_up(running, browsing):
    script = [
        openai_server.code("import time\nprint('begun', flush=True)\ntime.sleep(4)", "Wait."),
        openai_server.text("I use the other file."),
    ]
    async with (
        openai_server.Server(script) as server,
        running(server) as bot,
        browsing() as browser,
    ):
        page = await browser.page(width=1000)
        await _open(page, bot)
        await _say(page, "plot this file")
        await page.until("document.querySelector('.stdout')?.innerText.includes('begun')")
        await _say(page, "use the other file")
        await page.until("document.getElementById('turns').innerText.includes('use the other')")
        await page.until(f"{ENDED} === 2")
        assert "use the other file" in str(server.requests[1].messages[-1])
        await page.wait_for_frame()
        shown = await page.text(".turn")
        assert "Taken into account: use the other file" in shown
        assert "I use the other file." in shown
        await page.reload()
        await page.until(f"{ENDED} >= 1")
        await page.wait_for_frame()
        assert _settled(await page.text(".turn")) == _settled(shown)


def _settled(text):
    """What is shown, but for seconds, which a past turn tells less exactly."""
    return re.sub(r"\d+(?:\.\d+)? m?s\b", "…", text)


async def _check_notebook(browser, page, tmp_path):
    """Download the conversation, and run it again elsewhere."""
    for old in browser.downloads.iterdir():
        old.unlink()
    await page.click("#share")
    await page.click("#actions button:nth-of-type(2)")
    file = await browser.wait_for_download()
    assert file.name == "plot petal length by species.ipynb"
    notebook = nbformat.reads(file.read_text("utf-8"), as_version=4)
    nbformat.validate(notebook)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert any("read_csv" in source for source in sources)
    # The one that was stopped would sleep again.
    notebook.cells = [cell for cell in notebook.cells if "time.sleep" not in cell.source]
    where = tmp_path / "elsewhere"
    where.mkdir()
    (where / "iris.csv").write_text(IRIS)
    client = nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": where}})
    await client.async_execute()
    printed = json.dumps(notebook.cells)
    assert "(150, 3)" in printed
    assert "42 150" in printed


SHOWN = r"""
from IPython.display import HTML, Markdown, Math, display
import pandas as pd
import sympy

x = sympy.symbols("x")
display(Markdown("# Heading\n\nWith **bold** and $e^{i\\pi}$"))
display(Math(r"\frac{a}{b}\, \left(c\right)"))
display(sympy.Integral(sympy.exp(-x**2), (x, 0, sympy.oo)))
display(pd.DataFrame({f"column {n}": [n, "word " * 30] for n in range(120)}))
"""


async def test_what_code_shows_is_typeset_and_wide_tables_are_whole(running, browsing):
    async with openai_server.Server([]) as server, running(server) as bot, browsing() as browser:
        page = await browser.page()
        await _open(page, bot)
        await _run(page, SHOWN)
        # What draws tables is loaded by the first one.
        size = "2 rows \u00d7 120 columns, the first 95 columns shown"
        await page.until(f"document.querySelector('.outputs').innerText.includes('{size}')")
        await page.until("document.querySelectorAll('.outputs math').length === 3")
        assert await page.text(".output.markdown strong") == "bold"
        assert "Integral(" not in await page.text(".outputs")
        assert (
            await page.value("document.querySelectorAll('tbody tr:first-child > *').length") == 96
        )
        assert await page.value("document.querySelectorAll('tbody .long').length") == 95


async def test_a_bot_that_is_killed_in_the_middle_shows_what_was_and_goes_on(
    running, browsing, tmp_path
):
    script = [
        openai_server.code("print('before')\nx = 1", "First this."),
        openai_server.text("Then ", "that", fault="stall"),
        openai_server.text("Here I am again."),
    ]
    async with openai_server.Server(script) as server, browsing() as browser:
        async with running(server) as bot:
            page = await browser.page()
            page.expected = ["WebSocket", "ERR_CONNECTION_REFUSED"]
            await _open(page, bot)
            await _say(page, "tell me a long story")
            await page.until("document.body.innerText.includes('Then that')", seconds=60)
            await _say(page, "/py print('this ' + 'waits', x)")
            await page.until("document.body.innerText.includes('1 request ahead')")
            # What is shown is written down twice a second.
            await asyncio.sleep(1.2)
            await bot.kill()
            port = bot.port
        await page.until("!document.getElementById('banner').hidden")
        async with running(server, port=port):
            await page.until("document.getElementById('banner').hidden", seconds=60)
            await page.until("document.body.innerText.includes('Here I am again.')", seconds=60)
            # What waited is begun again, after what goes on.
            await page.until("document.body.innerText.includes('this waits 1')", seconds=60)
            await page.value("document.querySelector('.work').open = true")
            await page.until("document.getElementById('turns').innerText.includes('First this.')")
            text = await page.text("#turns")
            # What the model had begun to say is asked again.
            assert "Then that" not in text
            for words in ("tell me a long story", "First this.", "this waits 1"):
                assert text.count(words) == 1, text
            assert text.count("This kept running while the bot restarted.") == 1, text
            assert "before" in await page.text(".printed.stdout")
            # How long it took counts from when the bot that died began with it.
            shown = await page.value(SECONDS)
            await page.reload()
            await page.until("document.querySelectorAll('.turn .meta').length === 2")
            await page.until(f"{SECONDS} > 0")
            assert abs(shown - await page.value(SECONDS)) < 1
            assert (await _run(page, "print(x)")).strip() == "1"


async def test_a_bot_that_is_told_to_end_says_so_once_and_to_those_who_wait(running, browsing):
    async with openai_server.Server([]) as server, browsing() as browser:
        async with running(server) as bot:
            page = await browser.page()
            page.expected = ["WebSocket", "ERR_CONNECTION_REFUSED"]
            await _open(page, bot)
            await _say(page, "/py print('before')\nwhile True: pass")
            await page.until("document.querySelector('.printed.stdout')", seconds=60)
            await _say(page, "/py print('after')")
            await page.until("document.body.innerText.includes('1 request ahead')")
            port = bot.port
        await page.until("!document.getElementById('banner').hidden")
        told = await page.text("#turns")
        assert told.count("The bot is restarting. This answer continues when it is back.") == 1, (
            told
        )
        assert told.count("The bot is being shut down.") == 1, told
        # What goes on is no failure, and nobody is led to ask for it twice.
        assert "restarted" not in await page.text(".notice.bad")
        buttons = "[...document.querySelector('.turn').querySelectorAll('.notice, .meta')]"
        assert "again" not in await page.value(f"{buttons}.map(e => e.innerText).join()")
        async with running(server, port=port):
            await page.until("document.getElementById('banner').hidden", seconds=60)
            await page.until("document.querySelector('#turns').innerText.includes('Running…')")
            again = await page.text("#turns")
            assert again.count("This kept running while the bot restarted.") == 1, again
            assert again.count("The bot is being shut down.") == 1, again
            assert "Stopped." not in told + again


async def test_a_map_is_shown_without_its_background_and_says_so(running, browsing_as_people):
    pytest.importorskip("offlinefolium")
    async with (
        openai_server.Server([]) as server,
        running(server) as bot,
        browsing_as_people() as browser,
    ):
        page = await browser.page()
        page.expected = ["Content Security Policy"]
        await _open(page, bot)
        code = "import folium; m = folium.Map([47, 8]); folium.Marker([47, 8]).add_to(m); m"
        printed = await _run(page, code)
        assert "The background of a map and the fonts of its icons come from the network" in printed
        await page.until("parseInt(document.querySelector('iframe').style.height) > 100")
        assert not [one for one in page.requests if not one.startswith(bot.address[:17])]


async def test_a_file_of_128_mib_goes_up_and_down_without_being_held(running, browsing, tmp_path):
    size = 128 * MIB
    big = tmp_path / "big.bin"
    with big.open("wb") as stream:
        stream.write(b"begin")
        stream.truncate(size - 3)
        stream.seek(0, os.SEEK_END)
        stream.write(b"end")
    async with openai_server.Server([]) as server, running(server) as bot, browsing() as browser:
        page = await browser.page()
        await _open(page, bot)
        before, most = bot.memory_bytes(), 0

        async def watch():
            nonlocal most
            while True:
                most = max(most, bot.memory_bytes())
                await asyncio.sleep(0.01)

        watching = asyncio.create_task(watch())
        await page.choose_files("#picker", big)
        await page.until("document.querySelector('#uploads progress')")
        await page.until("document.querySelector('#uploads .done')", seconds=120)
        await page.click("#files")
        await page.click("#pane .file button")
        await page.click("#pane a[download]")
        file = await browser.wait_for_download(seconds=120)
        watching.cancel()
        assert file.stat().st_size == size
        with file.open("rb") as down, big.open("rb") as up:
            digests = [hashlib.file_digest(one, "sha256").digest() for one in (down, up)]
        assert digests[0] == digests[1]
        assert most - before <= 32 * MIB
