"""What the handlers of the Slack platform depend on: one frozen value, made once at startup."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from interpreter_bot import settings
from interpreter_bot.platforms.slack import (
    file_downloads,
    file_uploads,
    installations,
    permissions,
    thread_history,
    web_api,
)

if TYPE_CHECKING:
    import aiohttp

    from interpreter_bot.sessions import session_service


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HandlerDependencies:
    """Services that the handlers of the platform share.

    Attributes:
        config: the platform's settings.
        service: answers requests.
        workspaces: the installations of the bot.
        api: calls Slack.
        permissions: checks who may use the bot.
        threads: reads the history of threads.
        downloads: fetches files that people send.
        uploads: sends files.
    """

    config: settings.Slack
    service: session_service.SessionService
    workspaces: installations.InstalledWorkspaces
    api: web_api.WebApi
    permissions: permissions.Permissions
    threads: thread_history.ThreadHistory
    downloads: file_downloads.FileDownloads
    uploads: file_uploads.FileUploads


def build(
    service: session_service.SessionService,
    config: settings.Slack,
    workspaces: installations.InstalledWorkspaces,
    session: aiohttp.ClientSession,
    timing: web_api.Timing = web_api.TIMING,
) -> HandlerDependencies:
    """Make the services of one platform, which share one HTTP session."""
    api = web_api.WebApi(session, config, workspaces, timing=timing)
    return HandlerDependencies(
        config=config,
        service=service,
        workspaces=workspaces,
        api=api,
        permissions=permissions.Permissions(api, config, service),
        threads=thread_history.ThreadHistory(api),
        downloads=file_downloads.FileDownloads(
            api, config, max_bytes=service.queries.limits.upload_bytes
        ),
        uploads=file_uploads.FileUploads(api),
    )
