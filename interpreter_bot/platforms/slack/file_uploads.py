"""Upload files: in batches, or for a message that shows them in blocks."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import logging
import tempfile
import time
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import IO, Any, Final, TypeVar

import aiohttp

from interpreter_bot.platforms.slack import api_errors, markdown, message_posting, web_api
from interpreter_bot.text import file_names
from interpreter_bot.wording import file_words

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_CHUNK_BYTES: Final = 256 * 1024
_MAX_BYTES: Final = 1024**3
_ALT_CHARACTERS: Final = 1000
_TRIES: Final = 5
_FIRST_LOOK_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0
# Picture types that Slack shows in blocks.
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif"})
_TOO_LARGE: Final = frozenset({"file_upload_size_restricted"})


@dataclasses.dataclass(frozen=True, slots=True)
class Outgoing:
    """One file of a batch."""

    name: str
    file: IO[bytes]
    about: str = ""
    is_image: bool = False


def of_bytes(name: str, data: bytes, about: str, *, is_image: bool) -> Outgoing:
    """Make a file of bytes in memory."""
    return Outgoing(name, io.BytesIO(data), about, is_image)


class FileUploads:
    """Sends batches of files."""

    def __init__(self, api: web_api.WebApi) -> None:
        self._api = api

    async def send(
        self, place: message_posting.Place, thread: str, batch: Sequence[Outgoing]
    ) -> list[str]:
        """Send files in one message, in order, and check that it appears.

        Slack says that a file is shared before it is, and sometimes it never is: then it is sent
        once more.

        Returns:
            Sentences about those that could not be sent.
        """
        complaints: list[str] = []
        try:
            missing = await self._try(place, thread, batch, complaints)
            if missing:
                _log.warning("Slack took %d files and does not show them", len(missing))
                missing = await self._try(place, thread, missing, complaints)
            complaints += [file_words.not_uploaded(one.name) for one in missing]
        except api_errors.SlackError as error:
            complaints.append(file_words.not_sent("The files", error))
        finally:
            for outgoing in batch:
                outgoing.file.close()
        return complaints

    async def _try(
        self,
        place: message_posting.Place,
        thread: str,
        batch: Sequence[Outgoing],
        complaints: list[str],
    ) -> list[Outgoing]:
        """Send files; return those that Slack accepted and does not show.

        Raises:
            SlackError: it takes none.
        """
        sent: dict[str, Outgoing] = {}
        named: list[dict[str, str]] = []
        for outgoing in batch:
            try:
                named.append(await self._put(place, outgoing))
            except api_errors.GoneError:
                raise
            except api_errors.SlackError as error:
                complaints.append(file_words.not_sent(outgoing.name, error))
            else:
                sent[named[-1]["id"]] = outgoing
        if not named:
            return []
        await self._complete(place, named, thread=thread)
        until = time.monotonic() + self._api.timing.sharing_seconds
        return [
            one for file, one in sent.items() if not await self._look(place, file, _shares, until)
        ]

    async def keep(self, place: message_posting.Place, pictures: Sequence[Outgoing]) -> list[str]:
        """Upload pictures for blocks, without sharing them; return their file ids.

        Raises:
            SlackError: they cannot be shown so.
        """
        named = await _all(
            self._bring(place, picture, picture.name, picture.file.seek(0, io.SEEK_END))
            for picture in pictures
        )
        await self._complete(place, named)
        until = time.monotonic() + self._api.timing.sharing_seconds
        ids = [one["id"] for one in named]
        if not all(await _all(self._look(place, file, _is_picture, until) for file in ids)):
            raise api_errors.SlackError(file_words.NO_PICTURES_FOR_SLACK)
        return ids

    async def _look(
        self,
        place: message_posting.Place,
        file: str,
        has: Callable[[Mapping[str, Any]], object],
        until: float,
    ) -> bool:
        """Poll a file's state until it has what is wanted or the time is over."""
        pause = _FIRST_LOOK_SECONDS
        while True:
            try:
                answer = await self._api.call(place.workspace, "files.info", file=file)
            except api_errors.GoneError:
                raise
            except api_errors.SlackError as error:
                # Then what Slack said at the upload has to do.
                _log.info("a file could not be looked at: %s", error)
                return True
            if has(answer.get("file") or {}):
                return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _put(self, place: message_posting.Place, outgoing: Outgoing) -> dict[str, str]:
        """Upload the bytes of one file; zipped if it is too large otherwise.

        Raises:
            SlackError: it does not take them; the sentence says why.
        """
        size = outgoing.file.seek(0, io.SEEK_END)
        if not size:
            raise api_errors.SlackError(file_words.EMPTY_FOR_SLACK)
        try:
            if size > _MAX_BYTES:
                raise api_errors.RefusedError("the file", "file_upload_size_restricted")
            return await self._bring(place, outgoing, outgoing.name, size)
        except api_errors.RefusedError as error:
            if error.code not in _TOO_LARGE or outgoing.name.endswith(".zip"):
                raise
            with tempfile.TemporaryFile() as packed:
                await asyncio.to_thread(_zip, outgoing, packed)
                smaller = packed.seek(0, io.SEEK_END)
                if smaller > _MAX_BYTES or smaller > size * 0.9:
                    raise
                zipped = dataclasses.replace(outgoing, file=packed, is_image=False)
                return await self._bring(place, zipped, f"{outgoing.name}.zip", smaller)

    async def _bring(
        self, place: message_posting.Place, outgoing: Outgoing, name: str, size: int
    ) -> dict[str, str]:
        title = markdown.plain_name(name.rpartition("/")[2] or name)
        for _ in range(_TRIES):
            ticket = await self._api.call(
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
        raise api_errors.LostError

    async def _transfer(self, url: str, file: IO[bytes]) -> bool:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=300)
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        try:
            async with self._api.session.post(
                url, data=_read(file), headers=headers, timeout=timeout
            ) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.info("an upload failed", exc_info=error)
            return False

    async def _complete(
        self,
        place: message_posting.Place,
        named: Sequence[dict[str, str]],
        *,
        thread: str | None = None,
    ) -> None:
        """Complete an upload; files are shared where `thread` is, or nowhere if that is None."""
        has = _is_picture if thread is None else _shares
        is_lost = False

        async def find() -> web_api.Answer | None:
            nonlocal is_lost
            is_lost = True
            until = time.monotonic() + self._api.timing.sharing_seconds / 2
            return {} if await self._look(place, named[0]["id"], has, until) else None

        try:
            await self._api.call(
                place.workspace,
                "files.completeUploadExternal",
                find=find,
                files=json.dumps(named),
                channel_id=None if thread is None else place.channel,
                thread_ts=thread or None,
            )
        except api_errors.GoneError:
            raise
        except api_errors.RefusedError:
            # The first try, whose answer was lost, has ended it; whether it is there is looked at.
            if not is_lost:
                raise


async def _all(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Do work side by side; one that fails is raised once all is over."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _shares(facts: Mapping[str, Any]) -> object:
    return facts.get("shares")


def _is_picture(facts: Mapping[str, Any]) -> bool:
    return facts.get("mimetype") in _PICTURES


async def _read(file: IO[bytes]) -> AsyncIterator[bytes]:
    while data := await asyncio.to_thread(file.read, _CHUNK_BYTES):
        yield data


def _zip(outgoing: Outgoing, packed: IO[bytes]) -> None:
    outgoing.file.seek(0)
    name = file_names.PortablePaths().path(outgoing.name.rpartition("/")[2])
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w", force_zip64=True) as target,
    ):
        while data := outgoing.file.read(_CHUNK_BYTES):
            target.write(data)
