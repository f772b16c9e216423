import argparse
import asyncio

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.commands import tool_acceptance
from interpreter_bot.doctor import diagnosis
from tests.fakes import tool_servers


@pytest.fixture
async def server():
    async with tool_servers.ToolServer(
        tool_servers.make_tool("send", "Send.", a="A.")
    ).serving() as tool_server:
        yield tool_server


async def test_what_is_new_or_changed_is_listed_and_used_once_it_was_accepted(
    server, tmp_path, capsys
):
    config = settings.Settings(
        paths=settings.Paths(data=tmp_path),
        mcp_servers=(settings.McpServer(name="mail", url=server.url),),
    )

    async def run_command(verb, *names, status):
        options = argparse.Namespace(verb=verb, names=names)
        # It has a loop of its own.
        assert await asyncio.to_thread(tool_acceptance.run, config, options) == status
        return capsys.readouterr().out

    def diagnose():
        (finding,) = diagnosis.tool_findings(config)
        return finding.is_active, finding.detail

    assert diagnose() == (False, "on: 0 of 0 tools; off: all of mail (not listed yet)")
    listing = await run_command("list", status=1)
    assert "  send  new\n      +description: Send.\n" in listing
    command = listing.splitlines()[-1].partition("tools accept ")[2]
    assert await run_command("accept", command, status=0) == "On: 1 tool of mail.\n"
    assert (await run_command("list", status=0)).endswith("  send  on\n")
    assert diagnose() == (True, "on: 1 of 1 tool")
    server.tools = [tool_servers.make_tool("send", "Send, and tell me.", a="A.")]
    changed_listing = await run_command("list", status=1)
    assert (
        "  send  changed\n      -description: Send.\n      +description: Send, and"
        in changed_listing
    )
    assert diagnose() == (False, "on: 0 of 1 tool; off: mail.send (changed)")
    with pytest.raises(errors.BotError, match="read what has changed"):
        await run_command("accept", command, status=0)
    assert await run_command("refuse", "mail", status=0) == "The tools of mail are off.\n"
    with pytest.raises(errors.BotError, match="no server 'post'"):
        await run_command("accept", "post@123456789012", status=0)
