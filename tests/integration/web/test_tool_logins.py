"""A person logs in at a server of tools, in a real browser: from the page, there, and back."""

import contextlib

import pytest

from interpreter_bot import settings
from interpreter_bot.app import bot_startup
from interpreter_bot.platforms import login_pages
from interpreter_bot.platforms.web import server
from tests import futures
from tests.fakes import authorization_server, tool_servers

LINK = "document.querySelector('dialog[open] a, .turn .notice a')"


@pytest.mark.gate
async def test_a_person_logs_in_from_the_page_and_out_again(tmp_path, short_path, browsing):
    giver = authorization_server.AuthorizationServer()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(giver.serving())
        tools = await stack.enter_async_context(giver.guarding(tool_servers.make_tool("whoami")))
        entry = settings.McpServer(
            name="jira",
            url=tools.url,
            authorization="person",
            oauth=settings.OAuthLogin(issuer=giver.url),
        )
        config = settings.Settings(
            mcp_servers=(entry,),
            # Nobody asks it: without one, what is written is code.
            models=(settings.Model(name="none", base_url=giver.url),),
            paths=settings.Paths(data=tmp_path, runtime=short_path),
            kernels=settings.Kernels(spares=0),
        )
        service = await stack.enter_async_context(bot_startup.open_service(config, {}))
        pages = login_pages.serve(service, settings.ToolLogins(listen="127.0.0.1:0"))
        await stack.enter_async_context(pages)
        address = await stack.enter_async_context(
            server.serve(
                futures.completed_future(service), settings.Web(listen="127.0.0.1:0"), tmp_path
            )
        )
        browser = await stack.enter_async_context(browsing())
        page, other = await browser.page(width=900), await browser.page(width=420)

        async def say(words):
            await page.value("document.getElementById('message').focus()")
            await page.type(words)
            await page.press("Enter")

        await page.go(address)
        await page.until("!document.getElementById('welcome').hidden")
        await say("/connect jira")
        link = await page.until(f"{LINK}.href")
        await other.go(link)
        assert "code of you (web on the bot's page)" in await other.text("body")
        await other.click("button")
        await other.until("document.title == 'Let the bot use jira?'")
        assert "by 127.0.0.1" in await other.text("body")
        await other.click("button")
        await other.until("document.title == 'Logged in'")
        await page.press("Escape")
        await say("/tools")
        await page.until("document.querySelector('dialog[open]')?.innerText.includes('logged in')")
        await page.press("Escape")
        await say("/disconnect jira")
        await page.until("document.querySelector('dialog[open]')?.innerText.includes('logged out')")
        assert giver.tokens == {}
