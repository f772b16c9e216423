"""The first answers of a new installation: from a command typed to what a person waits for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator

import aiohttp
import yarl

from bench import metrics, sample_sizes, scripted_model, stock_jupyter

_CODE = "print(6 * 7)"
_WORD = "Hello."
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}
_ADDRESS = re.compile(r"http\S+token=\S+")


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure each in a new data directory, and a stock kernel in turns with them."""
    stock, executed, asked, addresses, pages, greeted = [], [], [], [], [], []
    # The first of each kind finds files on disk that the others find in memory: it is not told.
    async with scripted_model.serving() as model:
        for _ in range(effort.starts // 2 + 1):
            stock.append(await stock_jupyter.time_start(_CODE) / 1000)
            executed.append(await _until(b"42", "exec", "--cell", _CODE))
            question = scripted_model.question([], _WORD)
            asked.append(await _until(_WORD.encode(), "ask", question, model=model.base_url))
            address, page = await _run()
            addresses.append(address)
            pages.append(page)
            greeted.append(await _initialize())
    alternative = metrics.Alternative("cold ipykernel", stock[1:])
    return [
        metrics.Measure(
            f"exec of {_CODE}: command to output",
            "s",
            executed[1:],
            alternative=alternative,
            least_ratio=1.0,
        ),
        metrics.Measure("ask, instant model: command to first word", "s", asked[1:], bar=2.5),
        metrics.Measure("run: command to the page's address", "s", addresses[1:], bar=1.0),
        metrics.Measure("run: command to a usable page", "s", pages[1:], bar=2.5),
        metrics.Measure("mcp: command to the answer to initialize", "s", greeted[1:], bar=0.5),
    ]


@contextlib.asynccontextmanager
async def _command(*words: str, model: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as place:
        settings = {
            "INTERPRETER_BOT_PATHS__DATA": f"{place}/data",
            "INTERPRETER_BOT_PATHS__RUNTIME": f"{place}/run",
            "INTERPRETER_BOT_WEB__PORT": "0",
            "INTERPRETER_BOT_LOCAL__ENABLED": "false",
        }
        if model:
            settings |= {"OPENAI_BASE_URL": model, "OPENAI_API_KEY": "none"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "interpreter_bot", *words),
            env={"PATH": os.environ["PATH"], "HOME": place} | settings,
            stdin=asyncio.subprocess.PIPE if words[0] == "mcp" else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()


async def _until(expected: bytes, *words: str, model: str = "") -> float:
    """Seconds from a command to the line with some output."""
    started = time.perf_counter()
    async with _command(*words, model=model) as process:
        await _line(process, expected)
        seconds = time.perf_counter() - started
        # To its end: what it leaves must not slow the next one.
        await process.communicate()
    return seconds


async def _line(process: asyncio.subprocess.Process, expected: bytes) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        if expected in line:
            return line.decode()
    raise RuntimeError(f"the command ended without {expected!r}")


async def _run() -> tuple[float, float]:
    """Seconds to the address, and to a page that takes messages."""
    started = time.perf_counter()
    async with _command("run") as process:
        found = _ADDRESS.search(await _line(process, b"token="))
        assert found is not None
        address = yarl.URL(found[0])
        seconds = time.perf_counter() - started
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            async with session.get(address) as response:
                response.raise_for_status()
                key = response.real_url.fragment.removeprefix("key=")
            headers = {"Origin": str(address.origin()), "Interpreter-Bot-Key": key}
            async with session.ws_connect(address.origin() / "live", headers=headers) as socket:
                while '"hello"' not in (await socket.receive_str()):
                    pass
                return seconds, time.perf_counter() - started


async def _initialize() -> float:
    started = time.perf_counter()
    async with _command("mcp") as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(_INITIALIZE).encode() + b"\n")
        await _line(process, b'"result"')
        return time.perf_counter() - started
