"""Close answers of a killed bot, whose messages still say that they are being written.

The request is in the value of their Stop button. They are closed when the people there are notified
of an interruption, and when somebody presses a button that comes to nothing.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from interpreter_bot.platforms.slack import api_errors, blocks, message_posting, web_api
from interpreter_bot.wording import session_words

_log = logging.getLogger(__name__)

_OLDEST_SECONDS: Final = 86_400.0


async def close_all(
    api: web_api.WebApi, place: message_posting.Place, is_running: Callable[[str], bool]
) -> None:
    """Close what a bot that is gone left in a thread, or in a channel.

    Args:
        api: calls Slack.
        place: to look at.
        is_running: says whether an answer is being written, by what its Stop button is about.
    """
    since = f"{time.time() - _OLDEST_SECONDS:.6f}"
    try:
        messages = await message_posting.read_recent(
            api, dataclasses.replace(place, request_ts=since), place.thread
        )
        for message in messages:
            about = _stops(message)
            if about and place.workspace.has_written(message) and not is_running(about):
                await _close(api, place, message)
    except api_errors.GoneError:
        raise
    except api_errors.SlackError as error:
        _log.info("interrupted answers cannot be closed: %s", error)


def _stops(message: Mapping[str, Any]) -> str:
    """Return what the Stop button of a message is about; empty if it has none."""
    for block in message.get("blocks") or ():
        for element in block.get("elements") or ():
            if element.get("action_id") == "stop":
                return blocks.parse_button_value(str(element.get("value")))[1]
    return ""


async def _close(
    api: web_api.WebApi, place: message_posting.Place, message: Mapping[str, Any]
) -> None:
    """Take the buttons off a message, and say why."""
    kept = [
        {name: value for name, value in block.items() if name != "block_id"}
        for block in message.get("blocks") or ()
        if block.get("type") != "actions"
    ]
    await api.call(
        place.workspace,
        "chat.update",
        channel=place.channel,
        ts=message["ts"],
        text=str(message.get("text") or session_words.INTERRUPTED),
        metadata=message_posting.metadata({}),
        blocks=[*kept, blocks.note(session_words.INTERRUPTED)],
    )
