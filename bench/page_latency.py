"""The page as its people meet it: how soon something moves, and what large files cost the bot."""

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
_PIECE = bytes(_MIB)


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure a bot that runs as it does for everybody."""
    async with _running() as (pid, address), _visiting(address) as visit:
        signs = [await visit.sign() for _ in range(effort.turns // 2)]
        before = _anonymous_megabytes(pid)
        sizes: list[float] = []
        async with measured_bots.running_meanwhile(_sizes(pid, sizes)):
            up = await visit.upload(effort.file_mebibytes)
            down = await visit.download(effort.file_mebibytes)
    name = f"{effort.file_mebibytes} MiB through the page"
    return [
        metrics.Measure("page: message sent to first sign of life", "ms", signs, bar=50.0),
        metrics.Measure(
            f"{name}: growth of the bot",
            "MB",
            [max(size - before, 0.0) for size in sizes],
            "most",
            bar=33.6,
            notes={"upload_ms": up, "download_ms": down},
        ),
    ]


@contextlib.asynccontextmanager
async def _running() -> AsyncIterator[tuple[int, yarl.URL]]:
    """Run the command; gives its process and the page's address with the token."""
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as place:
        settings = {
            "INTERPRETER_BOT_PATHS__DATA": f"{place}/data",
            "INTERPRETER_BOT_PATHS__RUNTIME": f"{place}/run",
            "INTERPRETER_BOT_WEB__PORT": "0",
            "INTERPRETER_BOT_LOCAL__ENABLED": "false",
            "INTERPRETER_BOT_SESSIONS__MODEL_TITLES": "false",
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "interpreter_bot", "run"),
            env={"PATH": os.environ["PATH"], "HOME": place} | settings,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            while (line := await process.stdout.readline()) and b"token=" not in line:
                pass
            found = re.search(r"http\S+", line.decode())
            assert found is not None, "the bot did not say where its page is"
            yield process.pid, yarl.URL(found[0])
        finally:
            process.terminate()
            await process.wait()


class _Visit:
    """One browser's requests, as the page makes them."""

    def __init__(self, session: aiohttp.ClientSession, origin: yarl.URL, key: str) -> None:
        self._session = session
        self._origin = origin
        self._thread = uuid.uuid4().hex
        self._headers = {"Origin": str(origin), "Interpreter-Bot-Key": key}

    async def sign(self) -> float:
        """Milliseconds from a message to the first event about it that a tab gets."""
        address = self._origin / "live"
        async with self._session.ws_connect(address, headers=self._headers) as socket:
            await socket.send_json({"do": "watch", "thread": self._thread, "max_turns": 1})
            turn = uuid.uuid4().hex
            said = {"do": "send", "thread": self._thread, "id": turn, "text": "1", "is_code": True}
            while not any(one["kind"] == "conversation" for one in await socket.receive_json()):
                pass
            started = time.perf_counter()
            await socket.send_json(said)
            while not any(turn in str(one) for one in await socket.receive_json()):
                pass
            taken = measured_bots.milliseconds(started)
            while "over" not in str(await socket.receive_json()):
                pass
            return taken

    async def upload(self, mebibytes: int) -> float:
        """Milliseconds that a file of zeros takes to the workspace."""

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(mebibytes):
                yield _PIECE

        started = time.perf_counter()
        headers = self._headers | {"Content-Length": str(mebibytes * _MIB)}
        where = self._where("upload")
        async with self._session.post(where, data=pieces(), headers=headers) as response:
            response.raise_for_status()
        return measured_bots.milliseconds(started)

    async def download(self, mebibytes: int) -> float:
        """Milliseconds that it takes back."""
        started = time.perf_counter()
        size = 0
        async with self._session.get(self._where("download")) as response:
            response.raise_for_status()
            async for piece in response.content.iter_any():
                size += len(piece)
        if size != mebibytes * _MIB:
            raise RuntimeError(f"{size} bytes came back")
        return measured_bots.milliseconds(started)

    def _where(self, route: str) -> yarl.URL:
        return (self._origin / route).with_query(thread=self._thread, name="big.bin")


@contextlib.asynccontextmanager
async def _visiting(address: yarl.URL) -> AsyncIterator[_Visit]:
    jar = aiohttp.CookieJar(unsafe=True)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=timeout) as session:
        async with session.get(address) as response:
            response.raise_for_status()
            key = response.real_url.fragment.removeprefix("key=")
        yield _Visit(session, address.origin(), key)


def _anonymous_megabytes(pid: int) -> float:
    """What a process holds in memory, but for what the system only keeps at hand."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024 / measured_bots.MEGABYTE


async def _sizes(pid: int, into: list[float]) -> None:
    while True:
        into.append(_anonymous_megabytes(pid))
        await asyncio.sleep(0.02)
