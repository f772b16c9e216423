import json

from interpreter_bot import values
from interpreter_bot.mcp_servers import tool_broker
from interpreter_bot.sessions import code_tool_calls, requests


async def test_lists_of_tools_are_counted_as_calls_are(tmp_path, monkeypatch):
    monkeypatch.setattr(code_tool_calls, "_MAX_CALLS", 2)
    key = values.SessionKey("web", thread="t")
    request = requests.Request(key=key, person=requests.Person("u1", "Anna"), text="", is_code=True)
    broker = tool_broker.ToolBroker((), {}, tmp_path)
    asked = code_tool_calls.ToolRequests(
        *(broker, None, request, None),
        approved_by=None,
        others=None,
    )
    wish = values.InputRequested("", False, tool_request='{"do": "list"}')
    answers = [json.loads(await asked.answer(wish, "k")) for _ in range(3)]
    assert answers[:2] == [{"servers": {}}] * 2
    assert "more than" in answers[2]["error"]
