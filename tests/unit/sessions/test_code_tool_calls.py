import json
import math

import pytest

from interpreter_bot import events, settings, values
from interpreter_bot.mcp_servers import tool_broker
from interpreter_bot.sessions import (
    approvals,
    code_tool_calls,
    questions,
    requests,
    turn_recording,
    turn_stops,
    turn_streams,
)
from interpreter_bot.store import databases
from tests.fakes import replies, tool_servers

KEY = values.SessionKey("web", thread="t")


async def test_lists_of_tools_are_counted_as_calls_are(tmp_path):
    request = requests.Request(key=KEY, person=requests.Person("u1", "Anna"), text="", is_code=True)
    broker = tool_broker.ToolBroker((), {}, tmp_path)
    asked = code_tool_calls.ToolRequests(
        *(broker, None, request, None),
        all_approvals=None,
        find_others=None,
    )
    wish = values.InputRequested("", False, tool_request='{"do": "list"}')
    answers = [json.loads(await asked.answer(wish, "k")) for _ in range(501)]
    assert answers[:500] == [{"servers": {}}] * 500
    assert "more than" in answers[500]["error"]


async def nobody():
    return frozenset()


async def test_a_grant_is_for_the_server_whose_call_was_shown(tmp_path):
    request = requests.Request(key=KEY, person=requests.Person("u1", "Anna"), text="", is_code=True)
    url = f"sqlite:///{tmp_path}/bot.db"
    delete = tool_servers.make_tool("delete")
    async with (
        tool_servers.ToolServer(delete).serving() as shown,
        tool_servers.ToolServer(delete).serving() as other,
        databases.Database.open(url, blobs_directory=tmp_path / "files") as database,
    ):
        session = await database.sessions.open(KEY)
        registry = questions.Questions(database.questions)

        async def call(server, number):
            """Call the tool as code of a kernel that outlives bots; return how many were asked."""
            turn = await database.turns.start(session.id, person="u1", text="x")
            reply = replies.Reply(approvals=["session"])
            reply.answer = registry.answer
            recorder = turn_recording.Recorder(database, lambda _: None)
            recorder.turn_id = turn.id
            stream = turn_streams.TurnStream(
                request, reply, recorder, all_questions=registry, stop=turn_stops.StopSignal()
            )
            reply.emit(events.CodeStarted(0, "jira.delete()"))
            stream.cell = 0
            entry = settings.McpServer(name="jira", url=server.url)
            broker = tool_broker.ToolBroker((entry,), {}, tmp_path)
            listing = await broker.fetch_listing("jira")
            broker.definitions.accept("jira", listing.digest)
            tools = code_tool_calls.ToolRequests(
                broker,
                database.activities,
                request,
                stream,
                all_approvals=approvals.Approvals(stream, database.grants, session.id),
                find_others=nobody,
            )
            wish = {"do": "call", "id": f"{number:032}", "server": "jira", "tool": "delete"}
            wanted = json.dumps(wish | {"arguments": {}})
            asking = values.InputRequested("", False, tool_request=wanted, number=number)
            try:
                assert not json.loads(await tools.answer(asking, "kernel"))["is_error"]
            finally:
                await broker.close()
            return len(reply.contents("approve"))

        asked = [await call(server, n) for n, server in enumerate((shown, shown, other), 1)]
    assert asked == [1, 0, 1]
    assert (len(shown.calls), len(other.calls)) == (2, 1)


@pytest.mark.parametrize(
    ("progress", "total", "share"),
    [(1, 4, 0.25), (9, 4, 1.0), (-1, 4, 0.0), (1, None, None), (math.inf, math.inf, None)],
)
async def test_progress_without_a_share_is_shown_without_one(tmp_path, progress, total, share):
    class Broker(tool_broker.ToolBroker):
        async def call(self, account, tool, arguments, *, progress):
            await progress(*reported)
            return {"is_error": False, "size_bytes": 0}

    class Stream:
        def emit(self, event):
            emitted.append(event)

    reported, emitted = (progress, total, None), []
    request = requests.Request(key=KEY, person=requests.Person("u1", "Anna"), text="", is_code=True)
    slow = tool_servers.make_tool("slow")
    url = f"sqlite:///{tmp_path}/bot.db"
    async with (
        tool_servers.ToolServer(slow).serving() as server,
        databases.Database.open(url, blobs_directory=tmp_path / "files") as database,
    ):
        entry = settings.McpServer(name="jira", url=server.url, approval="never")
        broker = Broker((entry,), {}, tmp_path)
        listing = await broker.fetch_listing("jira")
        broker.definitions.accept("jira", listing.digest)
        tools = code_tool_calls.ToolRequests(
            *(broker, database.activities, request, Stream()),
            all_approvals=None,
            find_others=nobody,
        )
        wish = {"do": "call", "id": "0" * 32, "server": "jira", "tool": "slow", "arguments": {}}
        asking = values.InputRequested("", False, tool_request=json.dumps(wish), number=1)
        assert not json.loads(await tools.answer(asking, "kernel"))["is_error"]
        await broker.close()
    assert emitted == [events.ProgressChanged("jira: slow", share), events.ProgressChanged("")]
