"""Connect the real bolt app to a loopback Slack."""

import contextlib
import dataclasses

from interpreter_bot import settings
from interpreter_bot.platforms.slack import startup, web_api


def recent_text(request):
    """Return the earlier messages that a request carries for the model, a line each."""
    return "\n".join(
        " ".join(
            [
                f"{message.speaker}: {message.text}".strip(),
                *(f"[file: {name}]" for name in message.files),
            ]
        )
        for message in request.recent
    )


def has_button(message, action):
    """Return whether a message has a button with an action."""
    return f"'action_id': '{action}'" in str(message.get("blocks"))


HTTP = {"app_token": "", "listen": "127.0.0.1:0"}
"""Settings with which Slack sends requests to the bot."""


def make_settings(server, **options):
    """Make settings for the loopback Slack."""
    defaults = {
        "bot_token": server.world.teams["T1"].token,
        "app_token": server.app_token,
        "signing_secret": server.signing_secret,
        "api_base_url": server.base_url,
    }
    return settings.Slack(**{**defaults, **options})


def _make_timing(server, arguments):
    """Make short times for the loopback Slack; times among the arguments are moved from there."""
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
async def connect_platform(server, service, **options):
    """Run the platform; with HTTP, the loopback Slack gets its address."""
    tables = options.pop("tables", None)
    timing = _make_timing(server, options)
    config = make_settings(server, **options)
    async with startup.connected_platform(service, config, tables=tables, timing=timing) as address:
        if address:
            server.http_target = f"{address}/slack/events"
        yield address
