"""Files on their way out: collected while a turn runs, sent in one batch at its end."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import logging
import tempfile
import zipfile
from collections.abc import AsyncIterator, Sequence
from typing import IO, Final

import aiohttp

from interpreter_bot.platforms.slack import failures, markdown, places, sending

_log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 256 * 1024
_MOST_BYTES: Final = 1024**3
_ALT_CHARACTERS: Final = 1000
_TRIES: Final = 5
# Slack shares a file some seconds after it said that it would.
_POLL_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_TOO_LARGE: Final = frozenset({"file_upload_size_restricted"})


class Spool:
    """The bytes of one file, on disk; see `sessions.ports.Saving`."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by its owner
        self.is_complete = False

    def write(self, data: bytes, /) -> object:
        """Append."""
        return self.file.write(data)

    def complete(self) -> None:
        """Keep it for the batch."""
        self.file.flush()
        self.is_complete = True

    def close(self) -> None:
        """Let go of what is not complete; the rest is closed when it was sent."""
        if not self.is_complete:
            self.file.close()


@dataclasses.dataclass(frozen=True, slots=True)
class Outgoing:
    """One file for the batch."""

    name: str
    file: IO[bytes]
    about: str = ""
    is_image: bool = False


def of_bytes(name: str, data: bytes, about: str, *, is_image: bool) -> Outgoing:
    """Make a file of what is in memory."""
    return Outgoing(name, io.BytesIO(data), about, is_image)


class Uploads:
    """Sends batches."""

    def __init__(
        self,
        sender: sending.Sender,
        *,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._sender = sender
        self._most_bytes = most_bytes

    async def send(self, place: places.Place, thread: str, batch: Sequence[Outgoing]) -> list[str]:
        """Send files in one message: pictures first, then the others, each in order.

        Returns:
            Sentences about those that could not be sent.
        """
        complaints: list[str] = []
        sent: list[dict[str, str]] = []
        try:
            for outgoing in sorted(batch, key=lambda one: not one.is_image):
                try:
                    sent.append(await self._put(place, outgoing))
                except failures.GoneError:
                    raise
                except failures.SlackError as error:
                    complaints.append(f"{outgoing.name} could not be sent: {error}")
            if sent:
                await self._complete(place, thread, sent)
        except failures.SlackError as error:
            complaints.append(f"The files could not be sent: {error}")
        finally:
            for outgoing in batch:
                outgoing.file.close()
        return complaints

    async def _put(self, place: places.Place, outgoing: Outgoing) -> dict[str, str]:
        """Bring the bytes of one file to Slack; zipped, where it is too large otherwise.

        Raises:
            SlackError: it does not take them; the sentence says why.
        """
        size = outgoing.file.seek(0, io.SEEK_END)
        if not size:
            raise failures.SlackError("it is empty, which Slack does not take.")
        try:
            if size > self._most_bytes:
                raise failures.RefusedError("the file", "file_upload_size_restricted")
            return await self._bring(place, outgoing, outgoing.name, size)
        except failures.RefusedError as error:
            if error.code not in _TOO_LARGE or outgoing.name.endswith(".zip"):
                raise
            with tempfile.TemporaryFile() as packed:
                await asyncio.to_thread(_zip, outgoing, packed)
                smaller = packed.seek(0, io.SEEK_END)
                if smaller > self._most_bytes or smaller > size * 0.9:
                    raise
                zipped = dataclasses.replace(outgoing, file=packed, is_image=False)
                return await self._bring(place, zipped, f"{outgoing.name}.zip", smaller)

    async def _bring(
        self, place: places.Place, outgoing: Outgoing, name: str, size: int
    ) -> dict[str, str]:
        title = markdown.plain_name(name.rpartition("/")[2] or name)
        for _ in range(_TRIES):
            ticket = await self._sender.call(
                place.workspace,
                "files.getUploadURLExternal",
                filename=title,
                length=size,
                alt_txt=markdown.plain_name(outgoing.about)[:_ALT_CHARACTERS]
                if outgoing.is_image
                else None,
            )
            if await self._transfer(str(ticket["upload_url"]), outgoing.file):
                return {"id": str(ticket["file_id"]), "title": markdown.plain_name(name)}
            await asyncio.sleep(0.2)
        raise failures.LostError

    async def _transfer(self, url: str, file: IO[bytes]) -> bool:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=300)
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        try:
            async with self._sender.session.post(
                url, data=_read(file), headers=headers, timeout=timeout
            ) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.info("an upload failed", exc_info=error)
            return False

    async def _complete(
        self, place: places.Place, thread: str, sent: Sequence[dict[str, str]]
    ) -> None:
        async def find() -> sending.Answer | None:
            """Sharing is not immediate: look a few times."""
            for seconds in (*_POLL_SECONDS, 0.0):
                answer = await self._sender.call(place.workspace, "files.info", file=sent[0]["id"])
                if answer["file"].get("shares"):
                    return answer
                await asyncio.sleep(seconds)
            return None

        await self._sender.call(
            place.workspace,
            "files.completeUploadExternal",
            find=find,
            files=json.dumps(sent),
            channel_id=place.channel,
            thread_ts=thread or None,
        )


async def _read(file: IO[bytes]) -> AsyncIterator[bytes]:
    while data := await asyncio.to_thread(file.read, _CHUNK_BYTES):
        yield data


def _zip(outgoing: Outgoing, packed: IO[bytes]) -> None:
    outgoing.file.seek(0)
    name = outgoing.name.rpartition("/")[2] or "file"
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w", force_zip64=True) as target,
    ):
        while data := outgoing.file.read(_CHUNK_BYTES):
            target.write(data)
