"""Uploads of files: shared in a message of their own, or shown in blocks of another."""

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

from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.slack import api_errors, markdown, message_posting, web_api
from interpreter_bot.wording import file_words

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_CHUNK_BYTES: Final = 256 * 1024
_MAX_ALT_CHARACTERS: Final = 1000
_MAX_TRIES: Final = 5
_FIRST_POLL_SECONDS: Final = 0.05
_MAX_POLL_SECONDS: Final = 2.0
# Picture types that Slack shows in blocks.
PICTURE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif"})
TOO_LARGE_CODE: Final = "file_upload_size_restricted"


@dataclasses.dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file that is sent, opened for reading; `alt` describes a picture."""

    name: str
    file: IO[bytes]
    alt: str = ""
    is_picture: bool = False


def outgoing(upload: transport.Upload) -> OutgoingFile:
    """Open an upload for sending."""
    content = upload.content
    file = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
    return OutgoingFile(upload.name, file, upload.alt, upload.is_picture)


class FileUploads:
    """Uploads and shares files."""

    def __init__(self, api: web_api.WebApi) -> None:
        self._api = api

    async def send(
        self, place: message_posting.Place, thread: str, files: Sequence[OutgoingFile]
    ) -> list[str]:
        """Send files in one message, in order.

        Returns:
            Sentences about those that could not be sent.
        """
        complaints: list[str] = []
        staged_files: dict[str, dict[str, str]] = {}
        try:
            for file in files:
                try:
                    staged_files[file.name] = await self.upload(place, file)
                except api_errors.GoneError:
                    raise
                except api_errors.SlackError as error:
                    complaints.append(file_words.not_sent(file.name, error))
            if staged_files and await self.share(place, thread, [*staged_files.values()]) is None:
                complaints += [
                    file_words.not_sent(name, file_words.NOT_SHOWN_BY_SLACK)
                    for name in staged_files
                ]
        except api_errors.SlackError as error:
            complaints.append(file_words.not_sent("The files", error))
        return complaints

    async def share(
        self, place: message_posting.Place, thread: str, staged_files: Sequence[dict[str, str]]
    ) -> str | None:
        """Share uploaded files in one message; return what `find_share` does."""
        await self._complete(place, staged_files, thread=thread)
        return await self.find_share(place, [file["id"] for file in staged_files])

    async def find_share(self, place: message_posting.Place, file_ids: Sequence[str]) -> str | None:
        """Wait for the message with files, which appears some time after the share is accepted.

        Returns:
            Its timestamp; None if it does not appear; empty if the files cannot be polled.
        """
        deadline = time.monotonic() + self._api.timing.sharing_seconds
        first_description: Mapping[str, Any] = {}
        for file_id in file_ids:
            description = await self._poll(place, file_id, _is_shared, deadline)
            if description is None:
                return None
            first_description = first_description or description
        shares = [
            share
            for channels in (first_description.get("shares") or {}).values()
            for share in channels.get(place.channel, ())
        ]
        return str(shares[-1]["ts"]) if shares else ""

    async def upload_pictures(
        self, place: message_posting.Place, pictures: Sequence[OutgoingFile]
    ) -> list[str]:
        """Upload pictures for blocks, without sharing them; return their file ids.

        Raises:
            SlackError: Slack cannot show them in blocks.
        """
        staged_files = await _gather(
            self._upload_bytes(place, picture, picture.file.seek(0, io.SEEK_END))
            for picture in pictures
        )
        await self._complete(place, staged_files)
        deadline = time.monotonic() + self._api.timing.sharing_seconds
        file_ids = [entry["id"] for entry in staged_files]
        descriptions = await _gather(
            self._poll(place, file_id, _is_picture, deadline) for file_id in file_ids
        )
        if None in descriptions:
            raise api_errors.SlackError(file_words.NO_PICTURES_FOR_SLACK)
        return file_ids

    async def _poll(
        self,
        place: message_posting.Place,
        file_id: str,
        is_ready: Callable[[Mapping[str, Any]], object],
        deadline: float,
    ) -> Mapping[str, Any] | None:
        """Poll the description of a file until it is ready; None if it is not in time.

        Empty if it cannot be polled: then the response to the upload is relied on.
        """
        pause = _FIRST_POLL_SECONDS
        while True:
            try:
                answer = await self._api.call(place.workspace, "files.info", file=file_id)
            except api_errors.GoneError:
                raise
            except api_errors.SlackError as error:
                _log.info("a file could not be polled: %s", error)
                return {}
            description: Mapping[str, Any] = answer.get("file") or {}
            if is_ready(description):
                return description
            if time.monotonic() >= deadline:
                return None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_POLL_SECONDS)

    async def upload(
        self, place: message_posting.Place, outgoing_file: OutgoingFile
    ) -> dict[str, str]:
        """Upload one file for `share`, and close it.

        Raises:
            SlackError: Slack refuses it; the sentence says why.
        """
        with outgoing_file.file as file:
            size_bytes = file.seek(0, io.SEEK_END)
            if not size_bytes:
                raise api_errors.SlackError(file_words.EMPTY_FILE)
            return await self._upload_bytes(place, outgoing_file, size_bytes)

    async def _upload_bytes(
        self, place: message_posting.Place, outgoing_file: OutgoingFile, size_bytes: int
    ) -> dict[str, str]:
        name = outgoing_file.name
        title = markdown.file_name(name.rpartition("/")[2] or name)
        for _ in range(_MAX_TRIES):
            ticket = await self._api.call(
                place.workspace,
                "files.getUploadURLExternal",
                filename=title,
                length=size_bytes,
                alt_txt=markdown.file_name(outgoing_file.alt)[:_MAX_ALT_CHARACTERS]
                if outgoing_file.is_picture
                else None,
            )
            if await self._transfer(str(ticket["upload_url"]), outgoing_file.file):
                return {"id": str(ticket["file_id"]), "title": markdown.file_name(name)}
            await asyncio.sleep(0.2)
        raise api_errors.LostError

    async def _transfer(self, url: str, file: IO[bytes]) -> bool:
        size_bytes = file.seek(0, io.SEEK_END)
        file.seek(0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=300)
        headers = {"Content-Length": str(size_bytes), "Content-Type": "application/octet-stream"}
        try:
            async with self._api.session.post(
                url, data=_chunks(file), headers=headers, timeout=timeout
            ) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.info("an upload failed", exc_info=error)
            return False

    async def _complete(
        self,
        place: message_posting.Place,
        staged_files: Sequence[dict[str, str]],
        *,
        thread: str | None = None,
    ) -> None:
        """Complete an upload: share the files in `thread`, or nowhere if that is None."""
        is_ready = _is_picture if thread is None else _is_shared
        is_lost = False

        async def find() -> web_api.Answer | None:
            nonlocal is_lost
            is_lost = True
            deadline = time.monotonic() + self._api.timing.sharing_seconds / 2
            description = await self._poll(place, staged_files[0]["id"], is_ready, deadline)
            return None if description is None else {}

        try:
            await self._api.call(
                place.workspace,
                "files.completeUploadExternal",
                find=find,
                files=json.dumps(staged_files),
                channel_id=None if thread is None else place.channel,
                thread_ts=thread or None,
            )
        except api_errors.GoneError:
            raise
        except api_errors.RefusedError:
            # If a response was lost, that earlier try may have completed it: the caller finds out.
            if not is_lost:
                raise


async def _gather(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Await all at once; raise the first error after all have ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _is_shared(description: Mapping[str, Any]) -> object:
    return description.get("shares")


def _is_picture(description: Mapping[str, Any]) -> bool:
    return description.get("mimetype") in PICTURE_TYPES


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while data := await asyncio.to_thread(file.read, _CHUNK_BYTES):
        yield data
