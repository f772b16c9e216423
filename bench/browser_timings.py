"""The page in a browser: time until it is usable, and its delays in a long conversation."""

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
_TOKENS, _PARAGRAPH_TOKENS = 10_000, 60
_VISITS, _KEYS, _PAGES = 5, 200, 20
_PICTURE_CODE = "from PIL import Image\ndisplay(Image.effect_noise((640, 400), 80))"
_TABLE_CODE = "import pandas as pd\npd.DataFrame({f'c{n}': range(100) for n in range(12)})"
_PRINT_CODE = "print('word ' * 200)"
_LARGE_TABLE_CODE = "import numpy as np\nlarge = pd.DataFrame(np.random.rand(1_000_000, 8))\nlarge"
# Runs before the page's own scripts.
_PAGE_PROBE = """
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
    """Measure a bot with a real kernel, a scripted model and a browser."""
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory:
        async with contextlib.AsyncExitStack() as stack:
            answer = openai_server.text(*map(_make_token, range(_TOKENS)))
            server = await stack.enter_async_context(openai_server.Server(lambda _: answer))
            model = settings.Model(name="scripted", base_url=server.base_url, protocol="chat")
            bot = bot_processes.BotProcess(pathlib.Path(directory), model, server.api_key)
            thread = uuid.uuid4().hex
            visitor = page_visitors.Visitor(thread, lambda _: "")

            def set_address(address: str) -> None:
                visitor.address = address

            await stack.enter_async_context(bot.running(set_address))
            await stack.enter_async_context(visitor)
            read_times = await _hold_conversation(visitor)
            chromium = stack.enter_context(
                browsers.Chromium(browsers.find_chromium(is_peoples=False))
            )
            page = await stack.enter_async_context(_open_tab(chromium))
            visits = [await _time_visit(page, visitor.address) for _ in range(_VISITS)]
            return [
                _measure("page: first paint", [visit[0] for visit in visits], 200.0),
                _measure("page: usable", [visit[1] for visit in visits], 500.0),
                *await _measure_long_conversation(page, visitor.address, thread),
                _measure("page: first page of a table of 1e6 rows", read_times[:1], 100.0),
                _measure("page: next page of it", read_times[1:], 50.0),
            ]


def _make_token(number: int) -> str:
    return f"word{number % 97}" + (" " if (number + 1) % _PARAGRAPH_TOKENS else ".\n\n")


def _measure(name: str, samples: list[float], bar: float, **options: Any) -> metrics.Measure:
    return metrics.Measure(name, options.pop("unit", "ms"), samples, bar=bar, **options)


@contextlib.asynccontextmanager
async def _open_tab(chromium: browsers.Chromium) -> AsyncIterator[Any]:
    async with browsers.Browser.open(chromium.address()) as browser:
        page = await browser.page()
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=_PAGE_PROBE)
        yield page


async def _time_visit(page: Any, address: str) -> tuple[float, float]:
    """Return the milliseconds to the first paint, and until the message box is usable."""
    await page.go("about:blank")
    await page.go(address)
    await page.until("window.usable")
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return await page.value(paint), await page.value("usable")


async def _measure_long_conversation(page: Any, address: str, thread: str) -> list[metrics.Measure]:
    await page.go(re.sub(r"\?.*", f"#{thread}", address))
    while (shown_count := await page.value("document.querySelectorAll('.turn').length")) < _TURNS:
        await page.click("#earlier button")
        await page.until(f"document.querySelectorAll('.turn').length > {shown_count}")
    pictures = "[...document.querySelectorAll('.output img')]"
    await page.value(f"{pictures}.forEach((one) => (one.loading = 'eager'))")
    await page.until(f"{pictures}.every((one) => one.complete)", seconds=60)
    table_count = await page.value("document.querySelectorAll('.output.table').length")
    if (table_count, await page.value(f"{pictures}.length")) != (_TABLES + 1, _PICTURES):
        raise RuntimeError("the page does not show the whole conversation")
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
    ended_turns = "document.querySelectorAll('.turn:not([aria-busy])').length"
    await page.until(f"{ended_turns} === {_TURNS + 1}", seconds=120)
    await page.wait_for_frame()
    gaps = await page.value("gaps")
    contents = f"{_TURNS} turns, {_PICTURES} pictures, {_TABLES} tables"
    return [
        _measure(f"page of {contents}: key to paint", keys, 40.0, statistic="p99"),
        _measure(f"page of {contents}: heap", [heap], 30.0, unit="MB"),
        _measure(f"page there: frames of {_TOKENS:,} tokens", gaps, 50.0, statistic="most"),
    ]


async def _hold_conversation(visitor: page_visitors.Visitor) -> list[float]:
    """Hold the conversation; return the milliseconds of each read of a page of a large table."""
    turn_over, table_read = asyncio.Event(), asyncio.Event()
    handles: list[str] = []

    def handle_event(event: dict[str, Any]) -> None:
        if event.get("handle"):
            handles.append(event["handle"])
        if event["type"] == "over":
            turn_over.set()

    visitor.on_event, visitor.on_table_read = handle_event, table_read.set
    printing_turns = _TURNS - _PICTURES - _TABLES - 1
    codes = [
        *[_PRINT_CODE] * printing_turns,
        *[_PICTURE_CODE] * _PICTURES,
        *[_TABLE_CODE] * _TABLES,
        _LARGE_TABLE_CODE,
    ]
    for number, code in enumerate(codes):
        turn_over.clear()
        await visitor.send_message(f"{number:016d}", code, is_code=True)
        await asyncio.wait_for(turn_over.wait(), 60)
    read_times = []
    for number in range(1 + _PAGES):
        table_read.clear()
        view = {"rows": [number * 100, 100], "columns": [0, 8]}
        start_time = asyncio.get_running_loop().time()
        await visitor.read_table(handles[-1], view)
        await asyncio.wait_for(table_read.wait(), 60)
        read_times.append((asyncio.get_running_loop().time() - start_time) * 1000)
    return read_times
