"""A link to log in at a server of tools is shown in a channel to the person who asked, alone."""

import contextlib
import re

import cryptography.fernet
import pytest

from interpreter_bot import encryption, settings
from interpreter_bot.mcp_servers import tool_broker
from interpreter_bot.platforms import login_pages
from interpreter_bot.store import databases
from tests.fakes import authorization_server, conversations, tool_servers


@pytest.fixture
async def service(tmp_path):
    """Conversations in which people can log in at a server of tools."""
    giver = authorization_server.AuthorizationServer()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(giver.serving())
        tools = await stack.enter_async_context(giver.guarding(tool_servers.make_tool("whoami")))
        login = settings.OAuthLogin(issuer=giver.url)
        entry = settings.McpServer(name="jira", url=tools.url, authorization="person", oauth=login)
        config = settings.Settings(mcp_servers=(entry,), paths=settings.Paths(data=tmp_path))
        opening = databases.Database.open(
            f"sqlite:///{tmp_path}/b.db", blobs_directory=tmp_path / "kept"
        )
        database = await stack.enter_async_context(opening)
        keys = encryption.KeyRing(cryptography.fernet.Fernet.generate_key().decode(), tmp_path)
        opening = tool_broker.open_broker(config, {}, database.accounts, keys)
        broker = await stack.enter_async_context(opening)
        opening = conversations.opened(tmp_path / "bot", tools=broker)
        service = await stack.enter_async_context(opening)
        pages = login_pages.serve(service, settings.ToolLogins(listen="127.0.0.1:0"))
        await stack.enter_async_context(pages)
        yield service


@pytest.mark.parametrize("way", ["mention", "command"])
async def test_a_link_to_log_in_is_for_one_persons_eyes(slack, service, app, way):
    if way == "mention":
        slack.say("U1", "C1", "<@UBOT> connect jira")
    else:
        slack.command("U1", "C1", "/interpreter", "connect jira")
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert (told["channel"], told["user"]) == ("C1", "U1")
    link = re.search(r"http://\S+/tool-logins/[0-9a-f]+", told["blocks"][0]["text"])[0]
    async with authorization_server.browser() as mine:
        page = await mine.agree(await mine.come_back(link))
        assert "Logged in" in page, page
    secret = link.rpartition("/")[2]
    assert secret not in repr(slack.world.messages)
    assert secret not in repr(slack.world.responses)
    assert service.requests == []
