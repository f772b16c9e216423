"""Pictures within messages, where Slack shows them so; they are brought to it beforehand.

Slack shows a picture to everybody only where the message is *posted* with it: one that an edit
adds, or that is streamed, is an empty frame to those who look on (slackapi/java-slack-sdk#1441,
slackapi/python-slack-sdk#1961). Each is therefore in a message that is posted when it is ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from interpreter_bot.platforms.slack import (
    answers,
    api_errors,
    blocks,
    file_uploads,
    mrkdwn,
    posted_messages,
    web_api,
)

_log = logging.getLogger(__name__)

_FEATURE: Final = "pictures in messages"
_LACKING_SECONDS: Final = 600.0


class PictureBlocks:
    """Brings pictures to Slack."""

    def __init__(self, api: web_api.WebApi, sends: file_uploads.FileUploads) -> None:
        self._api = api
        self._uploads = sends

    async def blocks(
        self, place: posted_messages.Place, shown: Sequence[answers.Picture]
    ) -> list[blocks.Block] | None:
        """Make blocks that show pictures; None where this workspace cannot have that.

        Raises:
            GoneError: the bot is no longer installed there.
        """
        if self._api.lacks(place.workspace.team, _FEATURE):
            return None
        kept = (self._uploads.keep(place, outgoing(picture)) for picture in shown)
        found = await asyncio.gather(*kept, return_exceptions=True)
        made: list[blocks.Block] = []
        for picture, file in zip(shown, found, strict=True):
            if isinstance(file, api_errors.GoneError):
                raise file
            if isinstance(file, api_errors.SlackError):
                self.refused(place, file)
                return None
            if isinstance(file, BaseException):
                raise file
            about = mrkdwn.plain_name(picture.about or picture.name)
            made.append(blocks.picture(file, picture.name, about))
        return made

    def refused(self, place: posted_messages.Place, error: api_errors.SlackError) -> None:
        """Take note that Slack does not take such blocks there."""
        _log.info("pictures are sent as files for a while: %s", error)
        self._api.note_lacking(place.workspace.team, _FEATURE, _LACKING_SECONDS)


def outgoing(picture: answers.Picture) -> file_uploads.Outgoing:
    """Make a file of a picture."""
    return file_uploads.of_bytes(picture.name, picture.data, picture.about, is_image=True)
