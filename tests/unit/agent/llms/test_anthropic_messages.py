"""`anthropic_messages` with the real SDK, against a server that checks the protocol's rules.

What it has in common with the other protocols is tested with them, in `test_loops` and its
neighbours.
"""

import json
import sys

import pytest

from interpreter_bot import settings, values
from interpreter_bot.agent import chat_messages, llms, model_errors
from interpreter_bot.agent.llms import anthropic_blocks, catalogues
from interpreter_bot.agent.loops import OutcomeKind
from tests.fakes import anthropic_server
from tests.fakes import openai_server as server
from tests.unit.agent import scripts


def open_anthropic_turn(replies, *steps, **more):
    return scripts.open_turn(replies, *steps, protocol="anthropic", **more)


def breakpoints(body):
    """Return the places of the cache's breakpoints."""
    places = ["system" for one in body["system"] if "cache_control" in one]
    for place, message in enumerate(body["messages"]):
        places += [place for one in message["content"] if "cache_control" in one]
    return places


def bare(value):
    """Remove the breakpoints, which are no part of what is cached."""
    if isinstance(value, list):
        return [bare(one) for one in value]
    if isinstance(value, dict):
        return {name: bare(one) for name, one in value.items() if name != "cache_control"}
    return value


async def test_what_is_sent_again_is_cached_up_to_the_last_word_but_one_and_never_changed():
    replies = [server.code(f"print({n})") for n in range(4)] + [server.text("ok")]
    steps = [scripts.print_step(str(n)) for n in range(4)]
    async with open_anthropic_turn(replies, *steps, turn={"steps": 5}) as turn:
        turn.cache_key = "k"
        await turn.run()
        bodies = [one.body for one in turn.server.requests]
    assert list(map(breakpoints, bodies)) == [
        ["system", 0],
        ["system", 0, 2],
        ["system", 2, 4],
        ["system", 4, 6],
        # At the last step nothing may be called: what follows the tools will not be sent again.
        ["system"],
    ]
    last = bare(bodies[-1])
    for body in map(bare, bodies[:-1]):
        assert body["messages"] == last["messages"][: len(body["messages"])]
        assert (body["tools"], body["system"]) == (last["tools"], last["system"])


async def test_a_summary_that_is_asked_for_once_is_not_written_into_a_cache():
    replies = [server.text("They wanted apples."), server.text("Pears.")]
    async with open_anthropic_turn(
        replies, question="apples " * 900, context_tokens=2048, answer_tokens=256
    ) as turn:
        turn.cache_key = "k"
        turn.transcript.add_reply("Apples it is.")
        turn.transcript.add_user_message("And now pears?")
        await turn.run()
        assert [breakpoints(one.body) for one in turn.server.requests] == [[], ["system", 0]]


async def test_pictures_stand_in_the_output_that_showed_them():
    image = values.Image(mime="image/png", data=scripts.PNG)
    async with open_anthropic_turn(
        [server.code("1"), server.text("ok")], ([image], scripts.OK)
    ) as turn:
        await turn.run()
        (result,) = turn.server.requests[1].messages[-1]["content"]
    assert [one["type"] for one in result["content"]] == ["text", "image"]


async def test_code_is_streamed_while_it_is_written_and_a_call_without_arguments_is_whole():
    replies = [server.call("view_image", "{}"), server.text("ok")]
    async with open_anthropic_turn(replies) as turn:
        assert (await turn.run()).text == "ok"
        body = turn.server.requests[1].body
    assert [one.get("eager_input_streaming") for one in body["tools"]][:2] == [True, None]
    assert body["messages"][1]["content"][0]["input"] == {}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("thinking", "adaptive thinking is not supported on this model"),
        ("thinking", "thinking: Extra inputs are not permitted"),
        ("eager_input_streaming", "tools.0.custom.eager_input_streaming: Extra inputs are not"),
        (
            "cache_control",
            "messages.0.content.0.text.cache_control: Extra inputs are not permitted",
        ),
    ],
)
async def test_what_a_server_does_not_know_is_left_out_from_then_on(name, words):
    options = {"refused_names": {name: words}}
    replies = [server.code("1"), server.text("ok")]
    async with open_anthropic_turn(
        replies, scripts.print_step("1"), server_options=options
    ) as turn:
        turn.cache_key = "k"
        assert (await turn.run()).text == "ok"
        assert len(turn.server.refusals) == 1


@pytest.mark.parametrize(("thinks", "kind"), [(True, "adaptive"), (False, "disabled")])
async def test_a_model_thinks_unless_the_settings_say_otherwise(thinks, kind):
    options = {"reasoning": anthropic_server.Claude()}
    async with open_anthropic_turn(
        [server.text("ok")], thinks=thinks, server_options=options
    ) as turn:
        await turn.run()
        assert turn.server.requests[0].body["thinking"]["type"] == kind
    kept = turn.transcript.entries[-1].reasoning
    assert (kept is not None) == thinks
    assert turn.observer.all_text == "ok"


async def test_history_of_other_servers_is_made_fit():
    odd = ("functions.run_code:0", "same", "same", "")
    names = ("run_code", "run code!", "x" * 300, "")
    given = ('{"a": NaN}', "print(1)", '{"b": [1, 2]}', "[]")
    async with open_anthropic_turn([server.text("ok")]) as turn:
        for number, (key, name, arguments) in enumerate(zip(odd, names, given, strict=True)):
            call = chat_messages.Call(key, name, arguments)
            turn.transcript.add_reply(" \n" if number else "See.", (call,))
            turn.transcript.add_tool_result(call, "\n" if number else "1")
        turn.transcript.add_note(chat_messages.Note(" "))
        turn.transcript.add_reply("  ")
        turn.transcript.add_user_message("and?")
        assert (await turn.run()).text == "ok"


def test_words_and_thoughts_between_calls_stay_where_they_were():
    order = [
        {"reasoning": {"type": "thinking", "thinking": "", "signature": "1"}},
        {"message": 4},
        {"reasoning": {"type": "redacted_thinking", "data": "2"}},
        {"call": 0},
        {"message": 3},
        {"call": 1},
    ]
    kept = chat_messages.Reasoning("o", json.dumps({"items": order}))
    calls = tuple(chat_messages.Call(name, "view_image", "{}") for name in "ab")
    said = chat_messages.AssistantMessage("One.Two", calls, kept)
    (message,) = anthropic_blocks.convert_transcript([said], "o")
    kinds = [one.get("text") or one.get("id") or one["type"] for one in message["content"]]
    assert kinds == ["thinking", "One.", "redacted_thinking", "a", "Two", "b"]
    (message,) = anthropic_blocks.convert_transcript([said], "of another model")
    kinds = [one.get("text") or one["id"] for one in message["content"]]
    assert kinds == ["One.Two", "a", "b"]


@pytest.mark.parametrize(
    ("status", "kind", "words", "failure"),
    [
        (401, "authentication_error", "invalid x-api-key", model_errors.KeyRefusedError),
        (403, "permission_error", "no", model_errors.KeyRefusedError),
        (402, "billing_error", "no", model_errors.QuotaError),
        (400, "invalid_request_error", "Your credit balance is too low", model_errors.QuotaError),
        (404, "not_found_error", "model: none", model_errors.UnknownModelError),
        (413, "request_too_large", "too large", model_errors.ContextTooLongError),
        (
            *(400, "invalid_request_error"),
            "prompt is too long: 210000 tokens > 200000 maximum",
            model_errors.ContextTooLongError,
        ),
        (
            *(400, "invalid_request_error"),
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            model_errors.ContextTooLongError,
        ),
        (400, "invalid_request_error", "your words", model_errors.RequestRefusedError),
        (429, "rate_limit_error", "slow down", model_errors.RateLimitedError),
        (529, "overloaded_error", "Overloaded", model_errors.OverloadedError),
    ],
)
async def test_each_refusal_has_its_sentence(status, kind, words, failure):
    reply = server.failure(status, words, type=kind)
    tries_of = {model_errors.ContextTooLongError: 3, model_errors.RequestRefusedError: 2}
    tries = tries_of.get(failure, 1)
    async with open_anthropic_turn([reply] * tries, max_retries=0) as turn:
        outcome = await turn.run()
        expected = model_errors.name_server(failure(), turn.catalogue.find_model())
    assert (outcome.kind, outcome.sentence) == (OutcomeKind.UNREACHABLE, str(expected))


async def test_what_stops_a_reply_at_the_end_of_the_window_is_gone_on_with():
    replies = [server.text("It is", finish="model_context_window_exceeded"), server.text(" 42.")]
    async with open_anthropic_turn(replies) as turn:
        assert (await turn.run()).text == "It is 42."


async def test_the_key_is_in_no_sentence_and_no_log(caplog):
    caplog.set_level(0)
    async with open_anthropic_turn([]) as turn:
        turn.server.api_key = "another-key"
        outcome = await turn.run()
    assert "refused the API key" in outcome.sentence
    assert "Incorrect API key provided: [redacted]" in caplog.text
    assert "test-key-0123456789" not in caplog.text


async def test_it_is_imported_only_where_a_model_needs_it(monkeypatch):
    name = "interpreter_bot.agent.llms.anthropic_messages"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(llms, "anthropic_messages", raising=False)
    for protocol, is_there in (("chat", False), ("anthropic", True)):
        model = settings.Model(name="x", protocol=protocol)
        catalogue = catalogues.Catalogue([model], keys={}, patience=settings.Patience())
        await catalogue.open_llm()
        assert (name in sys.modules) == is_there
        await catalogue.close()
