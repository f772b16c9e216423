"""Download files that people send."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final
from urllib import parse

import aiohttp

from interpreter_bot import errors, settings
from interpreter_bot.platforms.slack import api_errors, installations, web_api
from interpreter_bot.sessions import requests
from interpreter_bot.wording import file_words

# The bot's token is sent only to these and to the host of the API.
_SLACK_HOSTS: Final = ("slack.com", "slack-edge.com", "slack-files.com", "slack-gov.com")
_CHUNK_BYTES: Final = 64 * 1024
_MAX_REDIRECTS: Final = 3
_STALL_SECONDS: Final = 60


class DownloadError(errors.BotError):
    """A file could not be fetched from Slack."""


class FileDownloads:
    """Downloads files."""

    def __init__(self, api: web_api.WebApi, config: settings.Slack, *, max_bytes: int) -> None:
        self._api = api
        self._max_bytes = max_bytes
        base = parse.urlsplit(config.api_base_url)
        self._api_host = base.netloc
        self._scheme = base.scheme

    def make_attachments(
        self, workspace: installations.InstalledWorkspace, files: Iterable[Mapping[str, Any]]
    ) -> tuple[requests.Attachment, ...]:
        """Make attachments whose bytes are fetched when they are read."""
        return tuple(
            requests.Attachment(
                name=name_of(file),
                open=functools.partial(self.read_chunks, workspace, file),
                size_bytes=file.get("size") or None,
            )
            for file in files
        )

    async def read_text(
        self, workspace: installations.InstalledWorkspace, file: Mapping[str, Any]
    ) -> str:
        """Read a snippet.

        Raises:
            DownloadError: it cannot be fetched, or is too long.
        """
        data = bytearray()
        async for chunk in self.read_chunks(workspace, file):
            data += chunk
            if len(data) > settings.MIB:
                raise DownloadError(file_words.too_long_to_run(name_of(file)))
        return data.decode("utf-8", "replace")

    async def read_chunks(
        self, workspace: installations.InstalledWorkspace, file: Mapping[str, Any]
    ) -> AsyncIterator[bytes]:
        """Iterate over the bytes of a file.

        Raises:
            DownloadError: it cannot be fetched, or is larger than allowed.
        """
        description = await self._complete_description(workspace, file)
        name = name_of(description)
        url = description.get("url_private_download") or description.get("url_private") or ""
        if description.get("mode") == "external" or description.get("is_external"):
            raise DownloadError(file_words.outside_slack(name))
        if (description.get("size") or 0) > self._max_bytes:
            raise self._too_large(name)
        try:
            async for chunk in self._fetch_chunks(workspace, str(url), description):
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise DownloadError(file_words.not_fetched(name)) from error

    def _too_large(self, name: str) -> DownloadError:
        return DownloadError(file_words.too_large(name, self._max_bytes))

    async def _complete_description(
        self, workspace: installations.InstalledWorkspace, file: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Complete the description of a file, of which an event may have only a part.

        Raises:
            DownloadError: the bot has no access to it.
        """
        access = file.get("file_access", "visible")
        if access == "check_file_info" or not (file.get("url_private") or file.get("mode")):
            try:
                answer = await self._api.call(workspace, "files.info", file=file.get("id"))
            except api_errors.SlackError as error:
                code = getattr(error, "code", "")
                reason = file_words.SLACK_ACCESS_REASONS.get(code, str(error))
                raise DownloadError(file_words.not_fetched(name_of(file), reason)) from error
            file = answer["file"]
            access = file.get("file_access", "visible")
        if (
            access in file_words.SLACK_ACCESS_REASONS
            or file.get("mode") in file_words.SLACK_ACCESS_REASONS
        ):
            reason = (
                file_words.SLACK_ACCESS_REASONS.get(access)
                or file_words.SLACK_ACCESS_REASONS[str(file["mode"])]
            )
            raise DownloadError(file_words.not_fetched(name_of(file), reason))
        return file

    async def _fetch_chunks(
        self, workspace: installations.InstalledWorkspace, url: str, file: Mapping[str, Any]
    ) -> AsyncIterator[bytes]:
        headers = {"Authorization": f"Bearer {workspace.token}"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=_STALL_SECONDS)
        for _ in range(_MAX_REDIRECTS):
            if not self._is_slack_address(url):
                # The token goes to no other host.
                raise DownloadError(file_words.not_on_slack(name_of(file)))
            async with self._api.session.get(
                url, headers=headers, allow_redirects=False, timeout=timeout
            ) as response:
                if response.status in (301, 302, 303, 307, 308):
                    url = parse.urljoin(url, response.headers.get("Location", ""))
                    continue
                async for chunk in self._read_body(response, file):
                    yield chunk
                return
        raise DownloadError(file_words.not_fetched(name_of(file), file_words.TOO_MANY_REDIRECTS))

    async def _read_body(
        self, response: aiohttp.ClientResponse, file: Mapping[str, Any]
    ) -> AsyncIterator[bytes]:
        name = name_of(file)
        if response.status != 200:
            raise DownloadError(
                file_words.not_fetched(name, file_words.answered_status(response.status))
            )
        if response.content_type == "text/html" and not _is_html(file):
            # Slack shows a login page if the token lacks permission.
            raise DownloadError(file_words.not_fetched(name, file_words.NO_FILE_PERMISSION))
        if (response.content_length or 0) > self._max_bytes:
            raise self._too_large(name)
        size = 0
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            size += len(chunk)
            if size > self._max_bytes:
                raise self._too_large(name)
            yield chunk
        if file.get("size") and size != file["size"]:
            # A login page, or a connection that ended early.
            raise DownloadError(file_words.not_fetched(name, file_words.fetched_partly(size)))

    def _is_slack_address(self, url: str) -> bool:
        url_parts = parse.urlsplit(url)
        if url_parts.netloc == self._api_host and url_parts.scheme == self._scheme:
            return True
        host = url_parts.hostname or ""
        is_listed = any(host == name or host.endswith(f".{name}") for name in _SLACK_HOSTS)
        return url_parts.scheme == "https" and is_listed


def name_of(file: Mapping[str, Any]) -> str:
    """Return a file's name."""
    return str(file.get("name") or file.get("title") or file.get("id") or "file")


def _is_html(file: Mapping[str, Any]) -> bool:
    return "html" in str(file.get("mimetype", "")) or file.get("filetype") == "html"
