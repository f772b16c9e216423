"""The real bolt app, connected to a loopback Slack."""

import contextlib
import dataclasses

from interpreter_bot import settings
from interpreter_bot.platforms.slack import startup, web_api


def recent(request):
    """What the model is told that was said before, a line a message."""
    return "\n".join(
        " ".join([f"{one.speaker}: {one.text}".strip(), *(f"[file: {name}]" for name in one.files)])
        for one in request.recent
    )


def has_button(message, action):
    """Whether a message has a button."""
    return f"'action_id': '{action}'" in str(message.get("blocks"))


def settings_for(server, **more):
    """Settings for the loopback Slack."""
    given = {
        "bot_token": server.world.teams["T1"].token,
        "app_token": server.app_token,
        "signing_secret": server.signing_secret,
        "api_base_url": server.base_url,
    }
    return settings.Slack(**{**given, **more})


def _timing_for(server, arguments):
    """Times as short as the loopback Slack's, and those among the arguments, which are removed."""
    short = {
        "posting_seconds": 1 / server.speed,
        "streaming_seconds": 0.05,
        "editing_seconds": 0.05,
        "ping_seconds": 1.0,
        "sharing_seconds": 0.3,
        "drain_seconds": 2.0,
    }
    names = arguments.keys() & {field.name for field in dataclasses.fields(web_api.Timing)}
    return web_api.Timing(**short | {name: arguments.pop(name) for name in names})


@contextlib.asynccontextmanager
async def connected(server, service, **more):
    """Run the platform; with HTTP, let Slack know where."""
    tables = more.pop("tables", None)
    timing = _timing_for(server, more)
    config = settings_for(server, **more)
    async with startup.connected_platform(service, config, tables=tables, timing=timing) as address:
        if address:
            server.http_target = f"{address}/slack/events"
        yield address
