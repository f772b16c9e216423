"""The page in a browser: how soon it is there, and how it feels in a long conversation."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import re
import tempfile
import uuid
from collections.abc import AsyncIterator
from typing import Any

from bench import bot_processes, measured_bots, metrics, page_visitors, sample_sizes
from interpreter_bot import settings
from tests import browsers
from tests.fakes import openai_server

_TURNS, _PICTURES, _TABLES = 200, 50, 20
_TOKENS, _PARAGRAPH = 10_000, 60
_VISITS, _KEYS, _PAGES = 5, 200, 20
_PICTURE = "from PIL import Image\ndisplay(Image.effect_noise((640, 400), 80))"
_TABLE = "import pandas as pd\npd.DataFrame({f'c{n}': range(100) for n in range(12)})"
_WORDS = "print('word ' * 200)"
_LARGE = "import numpy as np\nlarge = pd.DataFrame(np.random.rand(1_000_000, 8))\nlarge"
# It runs before anything of the page does.
_WATCHED = """
window.keys = [];
window.gaps = [];
addEventListener("keydown", ({ timeStamp }) => requestAnimationFrame(() =>
  setTimeout(() => keys.push(performance.now() - timeStamp))), true);
let before = 0;
const frame = (now) => {
  if (before) gaps.push(now - before);
  before = now;
  const welcome = document.getElementById("welcome");
  const isThere = document.querySelector(".turn") || (welcome && !welcome.hidden);
  if (!window.usable && isThere) window.usable = performance.now();
  requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
"""


async def run(_: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure a bot with a real kernel, a model that is a script, and a browser."""
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as place:
        async with contextlib.AsyncExitStack() as stack:
            answer = openai_server.text(*map(_token, range(_TOKENS)))
            server = await stack.enter_async_context(openai_server.Server(lambda _: answer))
            model = settings.Model(name="scripted", base_url=server.base_url, protocol="chat")
            bot = bot_processes.BotProcess(pathlib.Path(place), model, server.api_key)
            thread = uuid.uuid4().hex
            visitor = page_visitors.Visitor(thread, lambda _: "")

            def at(address: str) -> None:
                visitor.address = address

            await stack.enter_async_context(bot.running(at))
            await stack.enter_async_context(visitor)
            pages = await _looked(visitor)
            chromium = stack.enter_context(
                browsers.Chromium(browsers.find_chromium(is_peoples=False))
            )
            page = await stack.enter_async_context(_opened(chromium))
            first = [await _visited(page, visitor.address) for _ in range(_VISITS)]
            return [
                _measure("page: first paint", [one[0] for one in first], 200.0),
                _measure("page: usable", [one[1] for one in first], 500.0),
                *await _long_conversation(page, visitor.address, thread),
                _measure("page: first page of a table of 1e6 rows", pages[:1], 100.0),
                _measure("page: next page of it", pages[1:], 50.0),
            ]


def _token(number: int) -> str:
    return f"word{number % 97}" + (" " if (number + 1) % _PARAGRAPH else ".\n\n")


def _measure(name: str, samples: list[float], bar: float, **more: Any) -> metrics.Measure:
    return metrics.Measure(name, more.pop("unit", "ms"), samples, bar=bar, **more)


@contextlib.asynccontextmanager
async def _opened(chromium: browsers.Chromium) -> AsyncIterator[Any]:
    async with browsers.Browser.open(chromium.address()) as browser:
        page = await browser.page()
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCHED)
        yield page


async def _visited(page: Any, address: str) -> tuple[float, float]:
    """Milliseconds until something is painted, and until one can write."""
    await page.go("about:blank")
    await page.go(address)
    await page.until("window.usable")
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return await page.value(paint), await page.value("usable")


async def _long_conversation(page: Any, address: str, thread: str) -> list[metrics.Measure]:
    await page.go(re.sub(r"\?.*", f"#{thread}", address))
    while (shown := await page.value("document.querySelectorAll('.turn').length")) < _TURNS:
        await page.click("#earlier button")
        await page.until(f"document.querySelectorAll('.turn').length > {shown}")
    pictures = "[...document.querySelectorAll('.output img')]"
    await page.value(f"{pictures}.forEach((one) => (one.loading = 'eager'))")
    await page.until(f"{pictures}.every((one) => one.complete)", seconds=60)
    found = await page.value("document.querySelectorAll('.output.table').length")
    if (found, await page.value(f"{pictures}.length")) != (_TABLES + 1, _PICTURES):
        raise RuntimeError("the conversation is not what was to be measured")
    await page.value("document.getElementById('message').focus()")
    await page.value("keys.length = 0")
    for _ in range(_KEYS):
        await page.call("Input.dispatchKeyEvent", type="keyDown", text="a", key="a")
        await page.call("Input.dispatchKeyEvent", type="keyUp", key="a")
        await asyncio.sleep(0.03)
    keys = await page.value("keys")
    await page.call("HeapProfiler.enable")
    await page.call("HeapProfiler.collectGarbage")
    heap = (await page.call("Runtime.getHeapUsage"))["usedSize"] / measured_bots.MEGABYTE
    await page.value("gaps.length = 0")
    await page.press("Enter")
    ended = "document.querySelectorAll('.turn:not([aria-busy])').length"
    await page.until(f"{ended} === {_TURNS + 1}", seconds=120)
    await page.wait_for_frame()
    gaps = await page.value("gaps")
    about = f"{_TURNS} turns, {_PICTURES} pictures, {_TABLES} tables"
    return [
        _measure(f"page of {about}: key to paint", keys, 40.0, statistic="p99"),
        _measure(f"page of {about}: heap", [heap], 30.0, unit="MB"),
        _measure(f"page there: frames of {_TOKENS:,} tokens", gaps, 50.0, statistic="most"),
    ]


async def _looked(visitor: page_visitors.Visitor) -> list[float]:
    """Have the conversation, and milliseconds of looks into a large table: the first, the next."""
    over, looked = asyncio.Event(), asyncio.Event()
    handles: list[str] = []

    def heard(event: dict[str, Any]) -> None:
        if event.get("handle"):
            handles.append(event["handle"])
        if event["type"] == "over":
            over.set()

    visitor.on_event, visitor.on_look = heard, looked.set
    others = _TURNS - _PICTURES - _TABLES - 1
    codes = [*[_WORDS] * others, *[_PICTURE] * _PICTURES, *[_TABLE] * _TABLES, _LARGE]
    for number, code in enumerate(codes):
        over.clear()
        await visitor.say(f"{number:016d}", code, is_code=True)
        await asyncio.wait_for(over.wait(), 60)
    taken = []
    for number in range(1 + _PAGES):
        looked.clear()
        wanted = {"rows": [number * 100, 100], "columns": [0, 8]}
        started = asyncio.get_running_loop().time()
        await visitor.look_into(handles[-1], wanted)
        await asyncio.wait_for(looked.wait(), 60)
        taken.append((asyncio.get_running_loop().time() - started) * 1000)
    return taken
