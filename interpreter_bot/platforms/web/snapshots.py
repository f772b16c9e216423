"""What a tab gets to see when it opens: the list of conversations, and one of them whole."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.platforms.web import event_json, history_events, hubs, validation
from interpreter_bot.sessions import conversations

_log = logging.getLogger(__name__)

_MOST_LISTED: Final = 200
_BREATH_SECONDS: Final = 0.1


def greeting(service: conversations.Conversations) -> str:
    """Say what holds for every conversation."""
    about = {
        "upload_bytes": service.limits.upload_bytes,
        "text_characters": validation.MOST_TEXT_CHARACTERS,
        "is_sandboxed": service.is_sandboxed,
        "models": service.models,
        "model_notice": service.model_notice,
    }
    return hubs.written("hello", about)


async def listing(service: conversations.Conversations) -> event_json.Event:
    """List the conversations, the one used last first."""
    found = await service.recent("web", most=_MOST_LISTED)
    listed = [
        {
            "thread": one.key.thread,
            "title": one.title,
            "used": one.used.timestamp(),
            "is_busy": one.is_busy,
        }
        for one in found
    ]
    return {"conversations": listed}


async def keep_listed(service: conversations.Conversations, hub: hubs.Hub) -> None:
    """Tell every tab the list whenever it changes. Ends only by being cancelled."""
    while True:
        await hub.is_changed.wait()
        # Changes come in flocks.
        await asyncio.sleep(_BREATH_SECONDS)
        hub.is_changed.clear()
        try:
            hub.tell("conversations", await listing(service))
        except errors.BotError:
            # The next change is as good.
            _log.exception("the conversations could not be listed")


async def show(
    service: conversations.Conversations,
    hub: hubs.Hub,
    tab: hubs.Tab,
    *,
    key: values.SessionKey,
    most: int,
) -> None:
    """Show a conversation to a tab, which hears of everything that happens in it from then on.

    Nothing is told twice and nothing is left out: between what is read of the hub and the
    first event that follows, nobody else has the word.
    """
    model = await service.model(key)
    while True:
        ended = hub.ended(key.thread)
        past = await service.history(key, most=most + 1)
        # A turn that ended while the store was read is in neither; what is read now has it.
        if hub.ended(key.thread) == ended:
            break
    live = hub.of(key.thread)
    # What is known here of a turn that runs, or whose end is being written down, is newer than
    # what is recorded of it.
    known = {turn.id for turn in live}
    recorded = [one for one in past[-most:] if one.request_id not in known]
    # A turn that was cut off says itself what the bot said about it when it came back.
    is_said = bool(past) and past[-1].status == "interrupted"
    whole = {
        "model": model,
        "past": [history_events.events_of(turn) for turn in recorded],
        "live": [turn.told() for turn in live],
        "notices": [] if is_said else hub.notices(key.thread),
        "is_more": len(past) > most,
    }
    tab.thread = key.thread
    tab.send(hubs.written("conversation", whole, thread=key.thread))
