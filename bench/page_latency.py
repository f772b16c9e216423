"""The page: time to the first sign of life, and the bot's memory during large transfers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator

import aiohttp
import yarl

from bench import measured_bots, metrics, sample_sizes

_MIB = 1024 * 1024
_CHUNK = bytes(_MIB)


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure a bot that runs as people run it."""
    async with _start_bot() as (pid, address), _open_visit(address) as visit:
        sign_times = [await visit.time_first_sign() for _ in range(effort.turns // 2)]
        megabytes_before = _read_anonymous_megabytes(pid)
        sizes: list[float] = []
        async with measured_bots.running_meanwhile(_record_sizes(pid, sizes)):
            upload_ms = await visit.upload(effort.file_mebibytes)
            download_ms = await visit.download(effort.file_mebibytes)
    name = f"{effort.file_mebibytes} MiB through the page"
    return [
        metrics.Measure("page: message sent to first sign of life", "ms", sign_times, bar=50.0),
        metrics.Measure(
            f"{name}: growth of the bot",
            "MB",
            [max(size - megabytes_before, 0.0) for size in sizes],
            "most",
            bar=33.6,
            notes={"upload_ms": upload_ms, "download_ms": download_ms},
        ),
    ]


@contextlib.asynccontextmanager
async def _start_bot() -> AsyncIterator[tuple[int, yarl.URL]]:
    """Run the command; yield its process id and the page's address with the token."""
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory:
        settings = {
            "INTERPRETER_BOT_PATHS__DATA": f"{directory}/data",
            "INTERPRETER_BOT_PATHS__RUNTIME": f"{directory}/run",
            "INTERPRETER_BOT_WEB__LISTEN": "127.0.0.1:0",
            "INTERPRETER_BOT_LOCAL__ENABLED": "false",
            "INTERPRETER_BOT_SESSIONS__MODEL_TITLES": "false",
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "interpreter_bot", "run"),
            env={"PATH": os.environ["PATH"], "HOME": directory} | settings,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            while (line := await process.stdout.readline()) and b"token=" not in line:
                pass
            match = re.search(r"http\S+", line.decode())
            assert match is not None, "the bot did not say where its page is"
            yield process.pid, yarl.URL(match[0])
        finally:
            process.terminate()
            await process.wait()


class _Visit:
    """Requests of one browser, as the page makes them."""

    def __init__(self, session: aiohttp.ClientSession, origin: yarl.URL, key: str) -> None:
        self._session = session
        self._origin = origin
        self._thread = uuid.uuid4().hex
        self._headers = {"Origin": str(origin), "Interpreter-Bot-Key": key}

    async def time_first_sign(self) -> float:
        """Return the milliseconds from a message to the first event about it in the tab."""
        address = self._origin / "live"
        async with self._session.ws_connect(address, headers=self._headers) as socket:
            await socket.send_json({"do": "watch", "thread": self._thread, "max_turns": 1})
            turn = uuid.uuid4().hex
            message = {
                "do": "send",
                "thread": self._thread,
                "id": turn,
                "text": "1",
                "is_code": True,
            }
            while not any(event["kind"] == "conversation" for event in await socket.receive_json()):
                pass
            start_time = time.perf_counter()
            await socket.send_json(message)
            while not any(turn in str(event) for event in await socket.receive_json()):
                pass
            milliseconds = measured_bots.milliseconds_since(start_time)
            while "over" not in str(await socket.receive_json()):
                pass
            return milliseconds

    async def upload(self, mebibytes: int) -> float:
        """Upload a file of zeros to the workspace; return the milliseconds."""

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(mebibytes):
                yield _CHUNK

        start_time = time.perf_counter()
        headers = self._headers | {"Content-Length": str(mebibytes * _MIB)}
        url = self._file_url("upload")
        async with self._session.post(url, data=chunks(), headers=headers) as response:
            response.raise_for_status()
        return measured_bots.milliseconds_since(start_time)

    async def download(self, mebibytes: int) -> float:
        """Download that file; return the milliseconds."""
        start_time = time.perf_counter()
        size = 0
        async with self._session.get(self._file_url("download")) as response:
            response.raise_for_status()
            async for chunk in response.content.iter_any():
                size += len(chunk)
        if size != mebibytes * _MIB:
            raise RuntimeError(f"{size} bytes came back")
        return measured_bots.milliseconds_since(start_time)

    def _file_url(self, route: str) -> yarl.URL:
        return (self._origin / route).with_query(thread=self._thread, name="big.bin")


@contextlib.asynccontextmanager
async def _open_visit(address: yarl.URL) -> AsyncIterator[_Visit]:
    jar = aiohttp.CookieJar(unsafe=True)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=timeout) as session:
        async with session.get(address) as response:
            response.raise_for_status()
            key = response.real_url.fragment.removeprefix("key=")
        yield _Visit(session, address.origin(), key)


def _read_anonymous_megabytes(pid: int) -> float:
    """Return the anonymous memory of a process, so without cached files."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024 / measured_bots.MEGABYTE


async def _record_sizes(pid: int, sizes: list[float]) -> None:
    while True:
        sizes.append(_read_anonymous_megabytes(pid))
        await asyncio.sleep(0.02)
