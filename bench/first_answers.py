"""The first answer of each command of a new installation, measured from the command's start."""

from __future__ import annotations

import asyncio
import contextlib
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
_ANSWER = "Hello."
_ADDRESS = re.compile(r"http\S+token=\S+")


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure each command in a new data directory, and a stock kernel alternately with them."""
    stock_times, exec_times, ask_times, address_times, page_times = [], [], [], [], []
    # The first sample of each kind reads files from disk that the others find in memory, so it is
    # left out.
    async with scripted_model.run_server() as model:
        for _ in range(effort.starts // 2 + 1):
            stock_times.append(await stock_jupyter.time_start(_CODE) / 1000)
            exec_times.append(await _time_output(b"42", "exec", "--cell", _CODE))
            question = scripted_model.make_question([], _ANSWER)
            ask_times.append(
                await _time_output(_ANSWER.encode(), "ask", question, model=model.base_url)
            )
            address_seconds, page_seconds = await _time_page()
            address_times.append(address_seconds)
            page_times.append(page_seconds)
    alternative = metrics.Alternative("cold ipykernel", stock_times[1:])
    return [
        metrics.Measure(
            f"exec of {_CODE}: command to output",
            "s",
            exec_times[1:],
            alternative=alternative,
            least_ratio=1.0,
        ),
        metrics.Measure("ask, instant model: command to first word", "s", ask_times[1:], bar=2.5),
        metrics.Measure("run: command to the page's address", "s", address_times[1:], bar=1.0),
        metrics.Measure("run: command to a usable page", "s", page_times[1:], bar=2.5),
    ]


@contextlib.asynccontextmanager
async def _start_command(
    *arguments: str, model: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory:
        settings = {
            "INTERPRETER_BOT_PATHS__DATA": f"{directory}/data",
            "INTERPRETER_BOT_PATHS__RUNTIME": f"{directory}/run",
            "INTERPRETER_BOT_WEB__LISTEN": "127.0.0.1:0",
            "INTERPRETER_BOT_LOCAL__ENABLED": "false",
        }
        if model:
            settings |= {"OPENAI_BASE_URL": model, "OPENAI_API_KEY": "none"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "interpreter_bot", *arguments),
            env={"PATH": os.environ["PATH"], "HOME": directory} | settings,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()


async def _time_output(expected: bytes, *arguments: str, model: str = "") -> float:
    """Return the seconds from a command's start to a line with the expected output."""
    start_time = time.perf_counter()
    async with _start_command(*arguments, model=model) as process:
        await _wait_for_line(process, expected)
        seconds = time.perf_counter() - start_time
        # Wait for its end, so that it does not slow the next command.
        await process.communicate()
    return seconds


async def _wait_for_line(process: asyncio.subprocess.Process, expected: bytes) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        if expected in line:
            return line.decode()
    raise RuntimeError(f"the command ended without {expected!r}")


async def _time_page() -> tuple[float, float]:
    """Return the seconds to the printed address, and to a page that takes messages."""
    start_time = time.perf_counter()
    async with _start_command("run") as process:
        match = _ADDRESS.search(await _wait_for_line(process, b"token="))
        assert match is not None
        address = yarl.URL(match[0])
        address_seconds = time.perf_counter() - start_time
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            async with session.get(address) as response:
                response.raise_for_status()
                key = response.real_url.fragment.removeprefix("key=")
            headers = {"Origin": str(address.origin()), "Interpreter-Bot-Key": key}
            async with session.ws_connect(address.origin() / "live", headers=headers) as socket:
                while '"hello"' not in (await socket.receive_str()):
                    pass
                return address_seconds, time.perf_counter() - start_time
