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
    blocks,
    failures,
    markdown,
    places,
    sending,
    uploads,
)

_log = logging.getLogger(__name__)

_FEATURE: Final = "pictures in messages"
_LACKING_SECONDS: Final = 600.0


class Pictures:
    """Brings pictures to Slack."""

    def __init__(self, sender: sending.Sender, sends: uploads.Uploads) -> None:
        self._sender = sender
        self._uploads = sends

    async def blocks(
        self, place: places.Place, shown: Sequence[answers.Picture]
    ) -> list[blocks.Block] | None:
        """Make blocks that show pictures; None where this workspace cannot have that.

        Raises:
            GoneError: the bot is no longer installed there.
        """
        if self._sender.lacks(place.workspace.team, _FEATURE):
            return None
        kept = (self._uploads.keep(place, outgoing(picture)) for picture in shown)
        found = await asyncio.gather(*kept, return_exceptions=True)
        made: list[blocks.Block] = []
        for picture, file in zip(shown, found, strict=True):
            if isinstance(file, failures.GoneError):
                raise file
            if isinstance(file, failures.SlackError):
                self.refused(place, file)
                return None
            if isinstance(file, BaseException):
                raise file
            about = markdown.plain_name(picture.about or picture.name)
            made.append(blocks.picture(file, picture.name, about))
        return made

    def refused(self, place: places.Place, error: failures.SlackError) -> None:
        """Take note that Slack does not take such blocks there."""
        _log.info("pictures are sent as files for a while: %s", error)
        self._sender.note_lacking(place.workspace.team, _FEATURE, _LACKING_SECONDS)


def outgoing(picture: answers.Picture) -> uploads.Outgoing:
    """Make a file of a picture."""
    return uploads.of_bytes(picture.name, picture.data, picture.about, is_image=True)
