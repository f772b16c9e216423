"""Answers that a bot which is gone left unfinished: found in Slack by the metadata of their
messages, so that the next bot goes on in the same messages, or closes them.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot.platforms.slack import api_errors, blocks, message_posting, web_api
from interpreter_bot.wording import question_words, session_words

_log = logging.getLogger(__name__)

REQUEST: Final = "request"
"""Metadata of the messages of an answer: the id of the request."""
PICTURES: Final = "pictures"
"""Metadata of a message of an answer: how many pictures it shows."""
SHOWN: Final = "shown"
"""Metadata of a message of an answer: how many pictures of the answer stand above it.

A picture that is sent as a file has no metadata, and may be one of another answer.
"""
IS_QUESTION: Final = "is_question"
"""Metadata of a question to people during an answer."""

_TIMESTAMP: Final = re.compile(r"\d{6,}\.\d{6}")
_OLDEST_SECONDS: Final = 86_400.0

IsRunning: TypeAlias = Callable[[str], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Unfinished:
    """The messages of an answer, as far as a former bot came.

    Attributes:
        root: timestamp of the first one.
        texts: timestamps of those after the last picture.
        pictures: how many are shown before them.
    """

    root: str
    texts: tuple[str, ...]
    pictures: int


async def find(
    api: web_api.WebApi, place: message_posting.Place, request_id: str
) -> Unfinished | None:
    """Find the messages of an answer; questions among them are closed, an open stream is ended.

    None if there are none, or they cannot be read.
    """
    try:
        messages = await _own_messages(api, place, request_id)
    except api_errors.GoneError:
        raise
    except api_errors.SlackError as error:
        _log.info("an unfinished answer cannot be looked for: %s", error)
        return None
    answer_messages: list[Mapping[str, Any]] = []
    for message in messages:
        facts = message_posting.facts(message)
        if facts.get(REQUEST) == request_id and facts.get(IS_QUESTION):
            await close(api, place, message, question_words.RESTARTED)
        elif facts.get(REQUEST) == request_id:
            answer_messages.append(message)
        elif place.is_direct and _is_stream(message, request_id):
            await _end_stream(api, place, message, request_id)
            answer_messages.append(message)
    if not answer_messages:
        return None
    pictures = 0
    texts: list[str] = []
    for message in answer_messages:
        facts = message_posting.facts(message)
        above, within = int(facts.get(SHOWN, 0)), int(facts.get(PICTURES, 0))
        if above > pictures:
            texts = []
        pictures = max(pictures, above) + within
        texts = [] if within else [*texts, str(message["ts"])]
    return Unfinished(str(answer_messages[0]["ts"]), tuple(texts), pictures)


def is_timestamp(text: str) -> bool:
    """Return whether a request's id is that of a message, and not of an interaction."""
    return _TIMESTAMP.fullmatch(text) is not None


async def _own_messages(
    api: web_api.WebApi, place: message_posting.Place, request_id: str
) -> Sequence[Mapping[str, Any]]:
    message_ts = request_id.partition("-")[0]
    oldest = message_ts if is_timestamp(message_ts) else f"{time.time() - _OLDEST_SECONDS:.6f}"
    since = dataclasses.replace(place, asked=oldest)
    messages = await message_posting.recent(api, since, place.thread)
    own = [message for message in messages if place.workspace.has_written(message)]
    return sorted(own, key=lambda message: str(message["ts"]))


def _is_stream(message: Mapping[str, Any], request_id: str) -> bool:
    """Return whether a message was streamed when its bot died: it has no metadata."""
    is_later = not is_timestamp(request_id) or str(message["ts"]) > request_id
    return is_later and "metadata" not in message and not message.get("files")


async def _end_stream(
    api: web_api.WebApi,
    place: message_posting.Place,
    message: Mapping[str, Any],
    request_id: str,
) -> None:
    """End a stream, so that it can be edited."""
    try:
        await api.call(
            place.workspace,
            "chat.stopStream",
            channel=place.channel,
            ts=message["ts"],
            metadata=message_posting.metadata({REQUEST: request_id}),
        )
    except api_errors.GoneError:
        raise
    except api_errors.SlackError as error:
        _log.info("a stream was over already: %s", error)


def is_answer(message: Mapping[str, Any]) -> bool:
    """Return whether a message still offers to stop its answer, or to answer its question."""
    names = {blocks.STOP, blocks.RUN, blocks.ANSWER, blocks.CANCEL}
    return any(
        element.get("action_id") in names
        for block in message.get("blocks") or ()
        for element in (block.get("elements") or () if block.get("type") == "actions" else ())
    )


async def close_all(
    api: web_api.WebApi, place: message_posting.Place, is_running: IsRunning
) -> None:
    """Close what a bot that is gone left in a thread, or in a channel.

    Args:
        is_running: says whether an answer is still being written, by the id of its request.
    """
    since = f"{time.time() - _OLDEST_SECONDS:.6f}"
    for message in await _own_messages(api, place, since):
        request_id = str(message_posting.facts(message).get(REQUEST, ""))
        if request_id and is_answer(message) and not is_running(request_id):
            await close(api, place, message, session_words.INTERRUPTED)


async def close(
    api: web_api.WebApi,
    place: message_posting.Place,
    message: Mapping[str, Any],
    sentence: str,
) -> None:
    """Take the buttons off a message of the bot, and say why."""
    kept = [
        block
        for block in message.get("blocks") or ()
        if block.get("type") not in ("actions", "context_actions")
    ]
    kept = [{n: v for n, v in block.items() if n != "block_id"} for block in kept]
    shown = [*kept, blocks.note(sentence)]
    for content in ({"blocks": shown}, {"blocks": blocks.plainer(shown)}, {}):
        try:
            await api.call(
                place.workspace,
                "chat.update",
                channel=place.channel,
                ts=message["ts"],
                text=str(message.get("text") or sentence),
                metadata=message_posting.metadata({}),
                **content,
            )
        except api_errors.ContentRefusedError as error:
            _log.info("a message is closed more plainly: %s", error)
        except api_errors.GoneError:
            raise
        except api_errors.SlackError as error:
            _log.info("a message keeps its buttons: %s", error)
            return
        else:
            return
