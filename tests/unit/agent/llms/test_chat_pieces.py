"""Pieces of replies in the shapes that compatible servers give them."""

from types import SimpleNamespace

from interpreter_bot import events
from interpreter_bot.agent import chat_messages, tools
from interpreter_bot.agent.llms import chat_completions, model_reply_assembly, responses_api

CODE = "print(42)"


def _reply(**delta):
    prompt = chat_messages.Prompt(
        system="", messages=(chat_messages.UserMessage("How many?"),), tools=tools.TOOLS
    )
    assembler = model_reply_assembly.ModelReplyAssembler(events.discard, prompt)
    choice = SimpleNamespace(delta=SimpleNamespace(**delta), finish_reason="stop")
    chat_completions._receive_chunk(SimpleNamespace(choices=[choice]), assembler)
    return assembler.build_reply()


def test_arguments_as_an_object_are_understood():
    function = SimpleNamespace(name="functions.run_code", arguments={"code": CODE})
    (call,) = _reply(tool_calls=[SimpleNamespace(function=function)]).calls
    assert call.name == "run_code"
    assert tools.parse_call(call) == tools.RunCode(CODE)


def test_words_in_a_list_are_told_from_thoughts():
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    reply = _reply(content=[thought, {"type": "text", "text": "It is 42."}])
    assert reply.text == "It is 42."


def test_a_call_at_an_impossible_position_is_understood():
    prompt = chat_messages.Prompt(system="", messages=(), tools=tools.TOOLS)
    assembler = model_reply_assembly.ModelReplyAssembler(events.discard, prompt)
    item = SimpleNamespace(
        type="function_call", call_id="c1", name="run_code", arguments='{"code": "print(42)"}'
    )
    for kind in ("added", "done"):
        event = SimpleNamespace(type=f"response.output_item.{kind}", output_index=[0], item=item)
        assert responses_api._receive_event(event, assembler) is None
    (call,) = assembler.build_reply().calls
    assert tools.parse_call(call) == tools.RunCode(CODE)
