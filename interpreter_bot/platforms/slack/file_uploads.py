"""Upload files: in batches, or for a message that shows them in blocks."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import IO, Any, Final, TypeVar

import aiohttp

from interpreter_bot.platforms.slack import api_errors, markdown, message_posting, web_api
from interpreter_bot.wording import file_words

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_CHUNK_BYTES: Final = 256 * 1024
_ALT_CHARACTERS: Final = 1000
_TRIES: Final = 5
_FIRST_LOOK_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0
# Picture types that Slack shows in blocks.
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif"})
TOO_LARGE: Final = "file_upload_size_restricted"


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
        """Send files in one message, in order.

        Returns:
            Sentences about those that could not be sent.
        """
        complaints: list[str] = []
        named: dict[str, dict[str, str]] = {}
        try:
            for outgoing in batch:
                try:
                    named[outgoing.name] = await self.put(place, outgoing)
                except api_errors.GoneError:
                    raise
                except api_errors.SlackError as error:
                    complaints.append(file_words.not_sent(outgoing.name, error))
            if named and await self.share(place, thread, [*named.values()]) is None:
                complaints += [file_words.not_sent(name, file_words.NOT_SHARED) for name in named]
        except api_errors.SlackError as error:
            complaints.append(file_words.not_sent("The files", error))
        return complaints

    async def share(
        self, place: message_posting.Place, thread: str, named: Sequence[dict[str, str]]
    ) -> str | None:
        """Show files that were put in one message; see `look_for_share`.

        Raises:
            SlackError: Slack refuses it.
        """
        await self._complete(place, named, thread=thread)
        return await self.look_for_share(place, [file["id"] for file in named])

    async def look_for_share(
        self, place: message_posting.Place, files: Sequence[str]
    ) -> str | None:
        """Return the timestamp of the message with files, which comes some time after Slack says
        that they are shared.

        None if it does not come; empty if they cannot be looked at.
        """
        until = time.monotonic() + self._api.timing.sharing_seconds
        first: Mapping[str, Any] | None = None
        for file in files:
            facts = await self._look(place, file, _shares, until)
            if facts is None:
                return None
            first = facts if first is None else first
        shares = [
            share
            for channels in ((first or {}).get("shares") or {}).values()
            for share in channels.get(place.channel, ())
        ]
        return str(shares[-1]["ts"]) if shares else ""

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
        looked_at = await _all(self._look(place, file, _is_picture, until) for file in ids)
        if None in looked_at:
            raise api_errors.SlackError(file_words.NO_PICTURES_FOR_SLACK)
        return ids

    async def _look(
        self,
        place: message_posting.Place,
        file: str,
        has: Callable[[Mapping[str, Any]], object],
        until: float,
    ) -> Mapping[str, Any] | None:
        """Poll a file's state until it has what is wanted; None if it has not in time.

        Empty if it cannot be looked at: then what Slack said at the upload has to do.
        """
        pause = _FIRST_LOOK_SECONDS
        while True:
            try:
                answer = await self._api.call(place.workspace, "files.info", file=file)
            except api_errors.GoneError:
                raise
            except api_errors.SlackError as error:
                _log.info("a file could not be looked at: %s", error)
                return {}
            facts: Mapping[str, Any] = answer.get("file") or {}
            if has(facts):
                return facts
            if time.monotonic() >= until:
                return None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def put(self, place: message_posting.Place, outgoing: Outgoing) -> dict[str, str]:
        """Upload the bytes of one file, for `share`; close it.

        Raises:
            SlackError: Slack does not take them; the sentence says why.
        """
        with outgoing.file:
            size = outgoing.file.seek(0, io.SEEK_END)
            if not size:
                raise api_errors.SlackError(file_words.EMPTY_FOR_SLACK)
            return await self._bring(place, outgoing, outgoing.name, size)

    async def _bring(
        self, place: message_posting.Place, outgoing: Outgoing, name: str, size: int
    ) -> dict[str, str]:
        title = markdown.file_name(name.rpartition("/")[2] or name)
        for _ in range(_TRIES):
            ticket = await self._api.call(
                place.workspace,
                "files.getUploadURLExternal",
                filename=title,
                length=size,
                alt_txt=markdown.file_name(outgoing.about)[:_ALT_CHARACTERS]
                if outgoing.is_image
                else None,
            )
            if await self._transfer(str(ticket["upload_url"]), outgoing.file):
                return {"id": str(ticket["file_id"]), "title": markdown.file_name(name)}
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
            looked_at = await self._look(place, named[0]["id"], has, until)
            return None if looked_at is None else {}

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
