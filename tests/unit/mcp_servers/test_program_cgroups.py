"""User ids of programs that are MCP servers."""

from interpreter_bot import settings
from interpreter_bot.mcp_servers import program_cgroups


def test_every_process_gives_a_program_the_same_user_id_whichever_it_uses_first():
    sandbox = settings.Sandbox(first_uid=500_000)
    servers = [
        settings.McpServer(name="remote", url="http://127.0.0.1:1/mcp"),
        settings.McpServer(name="first", command=("true",)),
        settings.McpServer(name="second", command=("true",)),
    ]
    bot = program_cgroups.ProgramGroups(sandbox, servers)
    acceptance = program_cgroups.ProgramGroups(sandbox, servers)
    ids = {server.name: bot.uid(server) for server in servers[1:]}
    assert ids == {"first": 500_000, "second": 500_001}
    assert {server.name: acceptance.uid(server) for server in servers[:0:-1]} == ids
