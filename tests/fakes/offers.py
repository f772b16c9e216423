"""Conversations with everything on that an operator may leave off, or with one thing of it."""

import contextlib

import cryptography.fernet

from interpreter_bot import code_activity, encryption, settings
from interpreter_bot.mcp_servers import tool_broker
from interpreter_bot.store import databases
from tests.fakes import conversations

COMMANDS = {
    "models": ("model",),
    "network": ("network",),
    "data": ("network",),
    "tools": ("tools",),
    "logins": ("tools", "connect", "disconnect"),
    "page": ("page",),
}
"""What each thing offers. Nothing is offered without."""
ON_BY_DEFAULT = ("", "memory", "schedules")
"""What commands may need and have where nothing was turned off."""


class _Doors:
    """A doorkeeper of code that may reach something."""

    def __init__(self, reach):
        self._reach = reach

    def reach(self, key):
        return self._reach


@contextlib.asynccontextmanager
async def opened(directory, *things, script=conversations.echo):
    """Open conversations in which these things are on."""
    hosts = (code_activity.ReachableHost("example.org", (443,)),) if "network" in things else ()
    offers = (
        (code_activity.Offer("connection", "sales", "sales of shops"),) if "data" in things else ()
    )
    web = settings.Web(public_url="https://bot.example.org" if "page" in things else "")
    async with (
        _tools(directory, things) as tools,
        conversations.opened(
            directory / "bot",
            script,
            models=("good", "cheap") if "models" in things else (),
            tools=tools,
            doorkeeper=_Doors(code_activity.Reach(hosts=hosts, offers=offers)),
            web=web,
        ) as service,
    ):
        yield service


@contextlib.asynccontextmanager
async def _tools(directory, things):
    servers = []
    if "tools" in things:
        servers.append(settings.McpServer(name="wiki", url="http://127.0.0.1:9"))
    if "logins" in things:
        login = settings.OAuthLogin(issuer="http://127.0.0.1:9")
        about = {"url": "http://127.0.0.1:9", "authorization": "person", "oauth": login}
        servers.append(settings.McpServer(name="jira", **about))
    if not servers:
        yield None
        return
    config = settings.Settings(
        mcp_servers=tuple(servers), paths=settings.Paths(data=directory / "tools")
    )
    keys = encryption.KeyRing(cryptography.fernet.Fernet.generate_key().decode(), directory)
    kept = directory / "kept"
    async with (
        databases.Database.open(f"sqlite:///{directory}/tools.db", files=kept) as database,
        tool_broker.open_broker(config, {}, database.accounts, keys) as broker,
    ):
        yield broker
