"""Tools of an MCP server as Python functions: real kernel, real store, a real server of the SDK."""

import pathlib

import pytest

from interpreter_bot import settings, values
from interpreter_bot.mcp_servers import tool_broker
from tests.fakes import tool_servers

pytestmark = pytest.mark.kernel


SEARCH = tool_servers.tool("search-issues", "Search.", query="Words.", required=["query"])


async def accept(data: pathlib.Path, *servers):
    """Accept what servers offer now, as an administrator does."""
    broker = tool_broker.ToolBroker(servers, {}, data)
    try:
        for server in servers:
            listing = await broker.look(server.name)
            broker.definitions.accept(server.name, listing.digest)
    finally:
        await broker.close()


@pytest.fixture
async def jira():
    async with tool_servers.ToolServer(SEARCH, instructions="Be kind.").serving() as server:
        yield server


def plain(reply):
    return "".join(output.plain for output in reply.of("output"))


async def test_code_calls_a_tool_and_uses_what_comes(opened, jira, tmp_path):
    async def answer(context, name, arguments):
        return {"result": [arguments["query"], 2]}

    jira.answer = answer
    entry = settings.McpServer(
        name="jira", url=jira.url, approval="never", headers={"X-Key": "${SECRET}"}
    )
    await accept(tmp_path / "data", entry.model_copy(update={"headers": {}}))
    async with opened(mcp_servers=(entry,), keys={"SECRET": "hunter2"}) as house:
        reply = await house.run(
            "from tools.jira import search_issues\n"
            "import tools\n"
            "print(search_issues(query='late'), tools.find_tools('search'))\n"
            "print(tools.describe_tool('jira.search_issues'))"
        )
        audit = await house.service._services.database.tool_audit.of_session(
            values.SessionKey("web", thread="t")
        )
    assert plain(reply).startswith(
        "['late', 2] ['tools.jira.search_issues(query): Search.']\n"
        "tools.jira.search_issues(query)\n\nSearch.\n\nArgs:\n    query (str): Words.\n"
    )
    assert jira.calls == [("search-issues", {"query": "late"})]
    assert jira.headers[-1]["x-key"] == "hunter2"
    (call,) = audit
    assert (call.server, call.tool, call.outcome) == ("jira", "search-issues", "done")
    assert call.arguments == '{"query": "late"}'
