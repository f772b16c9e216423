"""Conversations with any of the features that an operator may turn off."""

import contextlib

import cryptography.fernet

from interpreter_bot import code_activity, encryption, settings
from interpreter_bot.mcp_servers import tool_broker
from interpreter_bot.store import databases
from tests.fakes import conversations

COMMANDS_BY_FEATURE = {
    "models": ("model",),
    "network": ("network",),
    "data": ("network",),
    "tools": ("tools",),
    "logins": ("tools", "connect", "disconnect"),
    "page": ("page",),
}
"""The commands that each feature offers; without the feature they are not offered."""
ON_BY_DEFAULT = ("", "memory", "schedules")
"""Features that are on unless an operator turns them off."""


class _Doors:
    """A doorkeeper that lets code reach the same things in every session."""

    def __init__(self, reach):
        self._reach = reach

    def reach(self, key):
        return self._reach


@contextlib.asynccontextmanager
async def open_conversations(directory, *features, script=conversations.echo):
    """Open conversations in which these features are on."""
    hosts = (code_activity.ReachableHost("example.org", (443,)),) if "network" in features else ()
    offers = (
        (code_activity.Offer("connection", "sales", "sales of shops"),)
        if "data" in features
        else ()
    )
    web = settings.Web(public_url="https://bot.example.org" if "page" in features else "")
    async with (
        _open_tools(directory, features) as tools,
        conversations.opened(
            directory / "bot",
            script,
            models=("good", "cheap") if "models" in features else (),
            tools=tools,
            doorkeeper=_Doors(code_activity.Reach(hosts=hosts, offers=offers)),
            web=web,
        ) as service,
    ):
        yield service


@contextlib.asynccontextmanager
async def _open_tools(directory, features):
    servers = []
    if "tools" in features:
        servers.append(settings.McpServer(name="wiki", url="http://127.0.0.1:9"))
    if "logins" in features:
        login = settings.OAuthLogin(issuer="http://127.0.0.1:9")
        fields = {"url": "http://127.0.0.1:9", "authorization": "person", "oauth": login}
        servers.append(settings.McpServer(name="jira", **fields))
    if not servers:
        yield None
        return
    config = settings.Settings(
        mcp_servers=tuple(servers), paths=settings.Paths(data=directory / "tools")
    )
    keys = encryption.KeyRing(cryptography.fernet.Fernet.generate_key().decode(), directory)
    files = directory / "kept"
    async with (
        databases.Database.open(
            f"sqlite:///{directory}/tools.db", blobs_directory=files
        ) as database,
        tool_broker.open_broker(config, {}, database.accounts, keys) as broker,
    ):
        yield broker
