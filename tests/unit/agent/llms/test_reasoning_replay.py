"""What models think is given back to them alone, to servers as strict as the real ones."""

import itertools
import json
import logging
import types

import pydantic
import pytest

from interpreter_bot import events, logs, settings
from interpreter_bot.agent import chat_messages, transcripts
from interpreter_bot.agent.llms import catalogues, reasoning_replay
from interpreter_bot.agent.loops import OutcomeKind
from tests.fakes import anthropic_server, reasoning_models
from tests.fakes import openai_server as server
from tests.unit.agent import scripts

REASONING_MODELS = pytest.mark.parametrize(
    ("protocol", "model_type"),
    [
        ("chat", reasoning_models.Gemini),
        ("auto", reasoning_models.Gemini),
        ("chat", reasoning_models.DeepSeek),
        ("chat", reasoning_models.OpenRouter),
        ("responses", reasoning_models.OpenAI),
        ("anthropic", anthropic_server.Claude),
    ],
)
TWO = [
    server.code("print(1)", "First one. "),
    server.Reply(calls=[("view_image", "{}"), ("run_code", '{"code": "2"}')], finish="tool_calls"),
    server.text("Done."),
]


def stored(transcript):
    """Return a transcript as a bot that was started again has it."""
    kept = json.dumps([chat_messages.to_dict(one) for one in transcript.entries])
    return transcripts.Transcript(map(chat_messages.from_dict, json.loads(kept)))


@REASONING_MODELS
async def test_what_a_model_thought_is_given_back_at_each_step_and_after_a_restart(
    protocol, model_type
):
    replies = [*TWO, server.code("3"), server.text("Again.")]
    steps = [scripts.print_step(text) for text in "123"]
    async with scripts.open_turn(
        replies, *steps, protocol=protocol, server_options={"reasoning": model_type()}
    ) as turn:
        await turn.run()
        turn.transcript = stored(turn.transcript)
        turn.transcript.add_user_message("And again?")
        outcome = await turn.run()
        assert turn.server.refusals == []
    assert outcome.text == "Again."


@REASONING_MODELS
async def test_what_was_sent_before_is_sent_again_byte_by_byte(protocol, model_type):
    replies = [*TWO, server.code("3"), server.text("Again.")]
    steps = [scripts.print_step(text) for text in "123"]
    async with scripts.open_turn(
        replies, *steps, protocol=protocol, server_options={"reasoning": model_type()}
    ) as turn:
        await turn.run()
        turn.transcript = stored(turn.transcript)
        turn.transcript.add_user_message("And again?")
        await turn.run()
        bodies = [one.body for one in turn.server.requests]
        for before, after in itertools.pairwise(bodies):
            for name in ("messages", "input"):
                if name in before:
                    head = after[name][: len(before[name])]
                    assert json.dumps(head) == json.dumps(before[name])
            for name in ("tools", "instructions", "model"):
                assert json.dumps(after.get(name)) == json.dumps(before.get(name))


@pytest.mark.parametrize(
    ("protocol", "model_type"),
    [
        ("chat", reasoning_models.DeepSeek),
        ("responses", reasoning_models.OpenAI),
        ("anthropic", anthropic_server.Claude),
    ],
)
async def test_another_model_is_given_nothing_and_the_first_its_own_again(protocol, model_type):
    replies = [server.code("1"), server.text("a"), server.text("b"), server.text("c")]
    async with scripts.open_turn(
        replies,
        scripts.print_step("1"),
        protocol=protocol,
        server_options={"reasoning": model_type(), "models": ("scripted", "other")},
        requires="reasoning_content" if protocol == "chat" else "",
    ) as turn:
        await turn.run()
        first, model = turn.catalogue, turn.model
        turn.model = model.model_copy(update={"name": "other"})
        keys = {model.api_key_variable: pydantic.SecretStr(turn.server.api_key)}
        turn.catalogue = catalogues.Catalogue([turn.model], keys=keys, patience=settings.Patience())
        turn.transcript.add_user_message("more")
        await turn.run()
        await turn.catalogue.close()
        turn.catalogue, turn.model = first, model
        turn.transcript.add_user_message("more")
        await turn.run()
        others, own = (json.dumps(one.messages) for one in turn.server.requests[-2:])
    assert turn.transcript.entries[-1].text == "c"
    thoughts = ("(scripted", "+scripted", "gAAAscripted", "fc_", "msg_")
    assert turn.server.refusals == []
    if protocol != "chat":
        assert not any(thought in others for thought in thoughts)
        mark = "gAAA" if protocol == "responses" else "Signed+"
        assert f"{mark}scripted" in own
        assert f"{mark}other" not in own
    else:
        # It asks for thoughts of its own, and is given a stand-in.
        assert "(scripted" not in others
        assert "(scripted" in own


@pytest.mark.parametrize(
    ("protocol", "model_type"),
    [
        ("chat", reasoning_models.Gemini),
        ("responses", reasoning_models.OpenAI),
        ("anthropic", anthropic_server.Claude),
    ],
)
async def test_refused_reasoning_is_left_out_once_and_forgotten(protocol, model_type):
    model = model_type()
    replies = [server.code("1"), server.text("a"), server.code("2"), server.text("b")]
    async with scripts.open_turn(
        replies,
        *map(scripts.print_step, "12"),
        protocol=protocol,
        server_options={"reasoning": model},
        requires="thought_signature" if protocol == "chat" else "",
    ) as turn:
        await turn.run()
        model.is_forgetful = True
        turn.transcript.add_user_message("more")
        emit = turn.observer.emit

        def forget_first(event):
            if isinstance(event, events.StepStarted):
                model.is_forgetful = event.number == 1
            emit(event)

        turn.observer.emit = forget_first
        outcome = await turn.run()
        assert len(turn.server.refusals) == 1
    assert (outcome.kind, outcome.text) == (OutcomeKind.ANSWERED, "b")
    kept = [
        one.reasoning
        for one in turn.transcript.entries
        if isinstance(one, chat_messages.AssistantMessage)
    ]
    assert kept[:2] == [None, None]
    assert kept[2] is not None


@pytest.mark.parametrize("event", ["error", "response.failed"])
async def test_reasoning_refused_in_the_stream_is_left_out_and_asked_once_more(event):
    model = reasoning_models.OpenAI()
    replies = [server.code("1"), server.text("a"), server.text("b")]
    async with scripts.open_turn(
        replies,
        scripts.print_step("1"),
        protocol="responses",
        server_options={"reasoning": model},
    ) as turn:
        await turn.run()
        model.is_forgetful, model.refuses_in_stream = True, event
        turn.transcript.add_user_message("more")
        outcome = await turn.run()
        assert len(turn.server.refusals) == 1
    assert (outcome.kind, outcome.text) == (OutcomeKind.ANSWERED, "b")
    kept = [
        one.reasoning
        for one in turn.transcript.entries
        if isinstance(one, chat_messages.AssistantMessage)
    ]
    assert kept[:2] == [None, None]


async def test_history_of_no_model_is_taken_by_one_that_wants_signatures():
    async with scripts.open_turn(
        [server.text("ok"), server.text("ok")],
        server_options={"reasoning": reasoning_models.Gemini()},
        requires="thought_signature",
    ) as turn:
        call = chat_messages.Call("call_x", "run_code", '{"code": "1"}')
        turn.transcript.add_reply("", (call,))
        turn.transcript.add_tool_result(call, "1")
        turn.transcript.add_user_message("and?")
        await turn.run()
        turn.transcript.add_user_message("and?")
        await turn.run()
        assert turn.server.refusals == []


@pytest.mark.parametrize("is_pydantic", [False, True])
@pytest.mark.parametrize("name", ["reasoning_content", "prompt_cache_key"])
async def test_a_server_that_does_not_know_a_field_is_asked_without_it_for_good(name, is_pydantic):
    class Plain(reasoning_models.DeepSeek):
        def refusal(self, body):
            return None

    options = {"reasoning": Plain(), "unknown": [name], "is_pydantic": is_pydantic}
    replies = [server.code("1"), server.code("2"), server.text("ok")]
    async with scripts.open_turn(
        replies, *map(scripts.print_step, "12"), server_options=options
    ) as turn:
        turn.cache_key = "k"
        assert (await turn.run()).text == "ok"
        # A server that only forgot a key would refuse reasoning once.
        assert len(turn.server.refusals) == (2 if name == "reasoning_content" else 1)
        assert all(f'"{name}":' not in json.dumps(one.body) for one in turn.server.requests)


async def test_a_model_whose_reasoning_is_not_sealed_is_asked_without():
    replies = [server.code("1"), server.text("ok")]
    async with scripts.open_turn(
        replies,
        scripts.print_step("1"),
        protocol="responses",
        server_options={"reasoning": reasoning_models.OpenAI(seals=False)},
    ) as turn:
        assert (await turn.run()).text == "ok"
        assert len(turn.server.refusals) == 1
        assert all("include" not in one.body for one in turn.server.requests)


async def test_reasoning_of_many_megabytes_is_not_kept():
    replies = [server.code("1"), server.text("ok")]
    async with scripts.open_turn(
        replies,
        scripts.print_step("1"),
        server_options={"reasoning": reasoning_models.DeepSeek("x" * 3_000_000)},
        answer_tokens=1_000_000,
        context_tokens=9_000_000,
        turn={"tokens": 99_000_000},
    ) as turn:
        assert (await turn.run()).text == "ok"
    assert all(getattr(one, "reasoning", None) is None for one in turn.transcript.entries)


async def test_endless_reasoning_is_hung_up_on():
    model = reasoning_models.DeepSeek("x" * 3_000_000)
    async with scripts.open_turn(
        [server.text("a")] * 3, server_options={"reasoning": model}, answer_tokens=1000
    ) as turn:
        assert (await turn.run()).kind is OutcomeKind.CUT


def test_a_conversation_keeps_a_bounded_amount_of_it():
    transcript = transcripts.Transcript()
    for number in range(30):
        transcript.add_user_message("?")
        transcript.add_reply(
            "!", (), chat_messages.Reasoning("o", f'{{"n": {number}}}' + " " * 500_000)
        )
        sizes = [len(one.reasoning.value) for one in transcript.entries if _has(one)]
        assert sum(sizes) <= 4 * 1024 * 1024
        assert _has(transcript.entries[-1])
    assert len(sizes) >= 3


def _has(one):
    return isinstance(one, chat_messages.AssistantMessage) and one.reasoning is not None


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": 5, "reasoning": ["x"], "reasoning_details": "y", "extra_content": 1},
        {"reasoning_details": [5, None, "z", []]},
        {"reasoning_content": None, "extra_content": {}},
    ],
)
def test_reasoning_of_wrong_shapes_is_passed_over(delta):
    collector = reasoning_replay.Collector()
    collector.collect(types.SimpleNamespace(**delta))
    assert collector.build_reasoning("o") is None


async def test_nothing_of_it_is_shown_or_logged(caplog):
    sealed = "gAAA" + "Q" * 5000
    refusal = server.failure(400, f"this {sealed} and data:image/png;base64,{'iVBOR' * 500}")
    async with scripts.open_turn([refusal] * 3) as turn:
        assert (await turn.run()).kind is OutcomeKind.UNREACHABLE
    assert "a model failed" in caplog.text
    assert "QQQQ" not in caplog.text
    assert "iVBORiVBOR" not in caplog.text
    assert sealed not in repr(
        chat_messages.AssistantMessage("x", (), chat_messages.Reasoning("o", sealed))
    )


def test_whole_requests_are_not_logged_at_any_level(monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
    logs.configure("debug")
    for name in ("openai", "anthropic"):
        assert not logging.getLogger(f"{name}._base_client").isEnabledFor(logging.DEBUG)
    logging.captureWarnings(False)
