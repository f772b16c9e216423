"""A model that cannot call tools is found out, and served all the same."""

import asyncio
import datetime
import json
import threading

import pytest

from interpreter_bot import code_activity, errors, settings, values
from interpreter_bot.agent import (
    budgets,
    chat_messages,
    model_errors,
    prompt_texts,
)
from interpreter_bot.agent.llms import (
    catalogues,
    fallbacks,
    openai_clients,
    sdk_errors,
    tls_contexts,
)
from interpreter_bot.agent.loops import OutcomeKind
from tests.fakes import openai_server as server
from tests.unit.agent import scripts

FENCED = "Let me see.\n```python\nprint(42)\n```\nThis prints 41."


async def test_fenced_block_is_run_and_what_follows_is_dropped():
    replies = [server.text(*FENCED, fault="stall"), server.text("It is 42.")]
    async with scripts.open_turn(replies, scripts.print_step("42"), protocol="fenced") as turn:
        outcome = await turn.run()
        await turn.server.wait_until_closed()
    assert (outcome.kind, outcome.text) == (OutcomeKind.ANSWERED, "It is 42.")
    assert turn.observer.all_text == "Let me see.\nIt is 42."
    assert "tools" not in turn.server.requests[0].body
    roles = [one["role"] for one in turn.server.requests[1].messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert turn.server.requests[1].messages[2]["content"] == (
        "Let me see.\n\n```python\nprint(42)\n```"
    )
    assert "[Output of the code:]\n42" in turn.server.requests[1].messages[3]["content"]


CALL = '```json\n{"name": "run_code", "arguments": {"code": """print(42)"""}}\n```'
SHOWN = 'Only to be read:\n```python\nos.remove("important.csv")\n```\n'


def offered(turn):
    return ["tools" in one.body for one in turn.server.requests]


@pytest.mark.parametrize("protocol", ["auto", "chat", "responses", "anthropic"])
async def test_call_as_text_is_run_as_a_call(protocol):
    replies = [server.text("Now:\n", *CALL), server.text("It is 42."), server.text("Yes.")]
    async with scripts.open_turn(replies, scripts.print_step("42"), protocol=protocol) as turn:
        outcome = await turn.run()
        turn.transcript.add_user_message("Sure?")
        await turn.run()
    assert outcome.text == "It is 42."
    assert turn.environment.executed_codes == ["print(42)"]
    assert offered(turn) == [True] * 3
    assert turn.observer.contents("announcement") == []
    assert turn.observer.all_text == "Now:\nIt is 42.Yes."


@pytest.mark.parametrize("protocol", ["auto", "chat", "responses", "anthropic"])
async def test_call_in_an_unknown_markup_is_not_run_and_the_model_is_told(protocol):
    unknown = '<|strange|>{"tool": "run_code", "code": oops}'
    replies = [server.text(*unknown), server.code("1"), server.text("Done.")]
    async with scripts.open_turn(replies, scripts.print_step("1"), protocol=protocol) as turn:
        outcome = await turn.run()
    assert (outcome.kind, outcome.text) == (OutcomeKind.ANSWERED, "Done.")
    assert turn.environment.executed_codes == ["1"]
    assert "nothing was run" in json.dumps(turn.server.requests[1].messages[-1])


async def test_model_that_only_writes_unknown_markup_ends_in_a_sentence():
    replies = [server.text("<call:run_code>print(1)</call>")] * 4
    async with scripts.open_turn(replies) as turn:
        outcome = await turn.run()
    assert (outcome.kind, outcome.text) == (OutcomeKind.MALFORMED, "")
    assert (
        outcome.sentence
        == "The model tried to run code in a form that the bot cannot read. Ask again."
    )
    assert turn.observer.all_text == ""


async def test_thoughts_of_a_model_whose_server_opens_them_are_seen_by_nobody():
    thinking = "Okay, the user wants 6*7.\n```python\nprint(1)\n```\n</think>\n\n"
    replies = [server.text(*thinking, *"It is 42."), server.text(*thinking, *"Yes.")]
    async with scripts.open_turn(replies, name="Qwen3-30B-A3B-Thinking-2507") as turn:
        outcome = await turn.run()
        turn.transcript.add_user_message("Sure?")
        await turn.run()
    assert outcome.text == "It is 42."
    assert turn.observer.all_text == "It is 42.Yes."


async def test_thoughts_of_a_model_that_nobody_declared_are_no_part_of_its_answer():
    replies = [server.text(*"Okay.\n</think>\n\nIt is 42."), server.text(*"Hm.\n</think>Yes.")]
    async with scripts.open_turn(replies) as turn:
        outcome = await turn.run()
        turn.transcript.add_user_message("Sure?")
        await turn.run()
    assert outcome.text == "It is 42."
    assert turn.observer.all_text == "Okay.\nIt is 42.Yes.", "it is known from the first reply on"


@pytest.mark.parametrize("protocol", ["auto", "chat", "responses"])
async def test_code_that_a_new_model_only_shows_is_never_run(protocol):
    replies = [server.text(*SHOWN), server.text(*SHOWN), server.code("1"), server.text("Done.")]
    async with scripts.open_turn(replies, scripts.print_step("1"), protocol=protocol) as turn:
        outcome = await turn.run()
        for _ in range(2):
            turn.transcript.add_user_message("And how else? Do not run it.")
            await turn.run()
    assert outcome.text == SHOWN.strip()
    assert turn.environment.executed_codes == ["1"]
    assert offered(turn) == [True] * 4
    assert turn.observer.contents("announcement") == []


async def test_code_that_a_model_shows_after_it_has_called_is_never_run():
    replies = [server.code("1"), server.text(*SHOWN)]
    async with scripts.open_turn(replies, scripts.print_step("1")) as turn:
        outcome = await turn.run()
    assert outcome.text == SHOWN.strip()
    assert turn.environment.executed_codes == ["1"]


async def test_answer_that_ends_in_a_stray_tag_is_an_answer():
    async with scripts.open_turn([server.text("Hello."), server.text("It is 42.</think>")]) as turn:
        await turn.run()
        turn.transcript.add_user_message("Sure?")
        outcome = await turn.run()
    assert (outcome.kind, outcome.text) == (OutcomeKind.ANSWERED, "It is 42.")


async def test_server_that_takes_tools_again_is_given_them(monkeypatch):
    monkeypatch.setattr(fallbacks, "_FALLBACK_SECONDS", 0.0)
    refused = server.failure(400, "registry.ollama.ai/library/x does not support tools")
    replies = [refused] * 2 + [server.text("Hello."), server.code("1"), server.text("It is 1.")]
    async with scripts.open_turn(replies, scripts.print_step("1")) as turn:
        await turn.run()
        turn.transcript.add_user_message("Again.")
        await turn.run()
    assert offered(turn) == [True, True, False, True, True]
    assert len(turn.observer.contents("announcement")) == 1


async def test_server_that_refuses_tools_is_asked_without():
    refused = server.failure(400, "registry.ollama.ai/library/x does not support tools")
    replies = [refused] * 2 + [server.text("```python\nprint(42)\n```"), server.text("42")]
    async with scripts.open_turn(replies, scripts.print_step("42")) as turn:
        outcome = await turn.run()
    assert outcome.text == "42"
    assert "does not accept tools" in turn.observer.contents("announcement")[0]


@pytest.mark.parametrize(
    ("name", "is_small"),
    [
        *(("qwen2.5-coder-1.5b-instruct", True), ("llama3.2:3b", True), ("gemma-2-2b-it", True)),
        *(("SmolLM2-360M-Instruct", True), ("Qwen/Qwen3-4B", True), ("qwen3:0.6b-q4_K_M", True)),
        *(("qwen3:8b", False), ("Qwen3-30B-A3B", False), ("mixtral-8x7b", False)),
        *(("gpt-5.2", False), ("llama-70b-4bit", False), ("gpt-oss-20b", False), ("o3", False)),
        *(("mistral-7b-v0.2", False), ("Phi-3-mini-4k", False), ("claude-4b2", False)),
    ],
)
def test_size_of_a_model_is_read_from_its_name(name, is_small):
    assert settings.Model(name=name).is_small is is_small


@pytest.mark.parametrize(("protocol", "has_tools"), [("auto", False), ("chat", True)])
async def test_small_model_writes_blocks_from_the_start_unless_the_settings_say_otherwise(
    protocol, has_tools
):
    async with scripts.open_turn([server.text("Hi.")], name="tiny-1.5b", protocol=protocol) as turn:
        await turn.run()
    assert offered(turn) == [has_tools]
    assert turn.observer.contents("announcement") == []


@pytest.mark.parametrize("name", ["max_tokens", "temperature", "stream_options"])
async def test_server_that_refuses_a_parameter_gets_plain_requests_from_then_on(name):
    replies = [server.text("Hi."), server.text("Ho.")]
    options = {"unknown": [name]}
    async with scripts.open_turn(
        replies, protocol="chat", temperature=0.2, server_options=options
    ) as turn:
        assert (await turn.run()).text == "Hi."
        turn.transcript.add_user_message("again")
        assert (await turn.run()).text == "Ho."
        assert len(turn.server.refusals) == 1


async def test_server_that_refused_once_is_soon_asked_for_all_again(monkeypatch):
    monkeypatch.setattr(fallbacks, "_FALLBACK_SECONDS", 0.0)
    replies = [server.failure(400, "no"), server.text("Hi."), server.text("Ho.")]
    async with scripts.open_turn(replies, protocol="chat", temperature=0.2) as turn:
        await turn.run()
        turn.transcript.add_user_message("again")
        await turn.run()
        asked = ["stream_options" in request.body for request in turn.server.requests]
    assert asked == [True, False, True]


async def test_server_that_refuses_everything_is_asked_a_few_times():
    replies = [server.failure(400, "no")] * 3
    async with scripts.open_turn(replies) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert offered(turn) == [True, True, False]


@pytest.mark.parametrize("call_id", ["", "same"])
async def test_calls_without_index_or_ids_of_their_own_are_told_apart(call_id):
    calls = [("run_code", '{"code": "1"}'), ("view_image", "{}")]
    both = server.Reply(calls=calls, finish="tool_calls", call_id=call_id, has_index=bool(call_id))
    async with scripts.open_turn([both, server.text("ok")], scripts.print_step("1")) as turn:
        outcome = await turn.run()
    assert outcome.text == "ok"
    ids = [one["id"] for one in turn.server.requests[1].messages[2]["tool_calls"]]
    assert len(set(ids)) == 2


# What pandas prints is no answer as it stands.
TABLE = "dogs\nBella  42"
DATA = "[The person sent the file 'a.csv'; it is at /mnt/data/a.csv.]\n\nHow many are there?"


async def test_model_without_tools_is_reminded_to_compute_where_there_is_data():
    replies = [server.text("```python\nprint(42)\n```"), server.text("42"), server.text("Hello!")]
    async with scripts.open_turn(
        replies, scripts.print_step(TABLE), protocol="fenced", name="tiny-1b", question=DATA
    ) as turn:
        await turn.run()
        turn.transcript.add_user_message("Thanks.")
        await turn.run()
    said = [one.messages[-1]["content"] for one in turn.server.requests]
    reminder = prompt_texts.read("reminder").format(way="reads the file")
    assert [reminder in one for one in said] == [True, False, False]
    # "Thanks." wants no code, and a model that is told of a way out takes it.
    assert [prompt_texts.read("reminder_talk") in one for one in said] == [False, False, True]
    stored = json.dumps([chat_messages.to_dict(one) for one in turn.transcript.entries])
    assert "python block now" not in stored


async def test_figures_of_a_model_that_ran_no_code_are_seen_by_nobody():
    replies = [
        server.text("The mean is 15.3."),
        # The server is hung up on at the end of the block, before it says what it counted.
        server.text("Let me see.\n", "```python\nprint(4.5)\n```\n", "Then.", fault="stall"),
        server.text("It is 4.5."),
    ]
    async with scripts.open_turn(
        replies, scripts.print_step("4.5"), protocol="fenced", name="tiny-1b", question=DATA
    ) as turn:
        outcome = await turn.run()
    assert outcome.text == "It is 4.5."
    # Three prompts of 100 tokens; the second, with the first answer in it, was not counted.
    usage = outcome.usage
    assert (usage.input_tokens, usage.is_estimated) == (100 + 120 + 100, True)
    assert 20 + 20 < usage.output_tokens < 100
    assert turn.observer.all_text == "Let me see.\nIt is 4.5."
    first, second, third = (one.messages for one in turn.server.requests)
    assert [one["content"] for one in second[len(first) :]] == [
        "The mean is 15.3.",
        prompt_texts.read("guessed"),
    ]
    assert "15.3" not in json.dumps(third)


@pytest.mark.parametrize("answer", ["Harbour.", "I'm sorry, I cannot know.", "It is 42."])
async def test_question_about_data_is_not_answered_before_code_ran(answer):
    told = "[a.csv is at /mnt/data/a.csv. 42 rows.]\nFirst rows:\n42,Harbour\n\nWhich branch is it?"
    replies = [server.text(answer), server.text("```python\n1\n```"), server.text("It is Castle.")]
    async with scripts.open_turn(
        replies,
        scripts.print_step("branch\nCastle  2"),
        protocol="fenced",
        name="tiny-1b",
        question=told,
    ) as turn:
        assert (await turn.run()).text == turn.observer.all_text == "It is Castle."


async def test_model_that_must_answer_sees_what_it_found():
    replies = [server.text("```python\nprint(a)\n```")] * 3 + [server.text("There are 0.")]
    async with scripts.open_turn(
        replies, scripts.print_step("0"), protocol="fenced", name="tiny-1b", question=DATA
    ) as turn:
        assert (await turn.run()).text == "There are 0."
    assert "[Output of the code:]\n0" in json.dumps(turn.server.requests[3].messages)[1:].replace(
        "\\n", "\n"
    )


def test_small_model_reads_less():
    day = datetime.date(2026, 11, 21)
    short, long = (
        prompt_texts.build_system_prompt(
            settings.Limits(), today=day, place="Be kind.", is_small=is_small
        )
        for is_small in (True, False)
    )
    assert len(short) < len(long) / 5
    for part in ("/mnt/data", "Be kind."):
        assert part in short


async def test_one_that_insists_on_its_figures_is_heard():
    replies = [server.text("It is 5."), server.text("I say 5.")]
    async with scripts.open_turn(replies, protocol="fenced", name="tiny-1b", question=DATA) as turn:
        assert (await turn.run()).text == turn.observer.all_text == "I say 5."


async def test_words_that_were_held_back_are_heard_when_the_turn_is_stopped():
    stop = asyncio.Event()
    slow = server.text("The mean ", "is 15.", fault="stall")
    async with scripts.open_turn([slow], protocol="fenced", name="tiny-1b", question=DATA) as turn:
        running = asyncio.create_task(turn.run(stop=stop))
        async with asyncio.timeout(30):
            await turn.server.stalled.wait()
        # What was sent has arrived by then: both ends are on this event loop.
        await asyncio.sleep(0.2)
        assert len(turn.server.requests) == 1
        assert turn.observer.all_text == ""
        stop.set()
        assert (await running).text == turn.observer.all_text == "The mean is 15."


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("plot petal length by species", "reminder_picture"),
        ("Two charts, please", "reminder_picture"),
        ("Who is it?", "reminder_talk"),
        ("Who is the tallest here?", "reminder"),
        ("How many games ended in a draw?", "reminder"),
    ],
)
async def test_who_wants_a_picture_is_to_get_one(words, name):
    question = f"[The file draw.csv is at /mnt/data/draw.csv.]\n\n{words}"
    block = server.text("```python\n1\n```")
    async with scripts.open_turn(
        [block, server.text("ok")],
        scripts.print_step(TABLE),
        protocol="fenced",
        name="tiny-1b",
        question=question,
    ) as turn:
        await turn.run()
    reminder = prompt_texts.read(name).format(way="reads the file")
    assert turn.server.requests[0].messages[-1]["content"].endswith(reminder)


QUERY = 'connections["shop"].query("SELECT …")'
SHOP = code_activity.Offer("connections", "shop", "orders", "  orders(id, region)")


async def test_a_small_model_is_told_how_the_database_is_asked():
    async with scripts.open_turn(
        [server.text("```python\n1\n```"), server.text("42")],
        scripts.print_step(TABLE),
        protocol="fenced",
        name="tiny-1b",
        question="How many orders by region, as a chart?",
    ) as turn:
        turn.system = prompt_texts.build_system_prompt(
            settings.Limits(),
            today=datetime.date(2030, 1, 1),
            reach=code_activity.Reach(offers=(SHOP,)),
            is_small=True,
        )
        await turn.run()
    assert f"asks {QUERY}" in turn.server.requests[0].messages[-1]["content"]


@pytest.mark.parametrize(
    ("question", "has_connection"),
    [
        (DATA, False),
        (DATA, True),
        ("Install the package greeter, and print its version", True),
    ],
)
async def test_no_model_is_told_of_a_database_that_is_not_meant(question, has_connection):
    async with scripts.open_turn(
        [*(server.text(f"```python\n{number}\n```") for number in range(3)), server.text("42")],
        *[scripts.error_step()] * 2,
        scripts.print_step(TABLE),
        protocol="fenced",
        name="tiny-1b",
        question=question,
    ) as turn:
        turn.system = prompt_texts.build_system_prompt(
            settings.Limits(),
            today=datetime.date(2030, 1, 1),
            reach=code_activity.Reach(offers=(SHOP,) * has_connection),
            is_small=True,
        )
        await turn.run()
    assert QUERY not in str([one.messages[1:] for one in turn.server.requests])


async def test_model_without_tools_is_left_alone_where_there_is_no_data():
    async with scripts.open_turn([server.text("Hi.")], protocol="fenced", question="Hello") as turn:
        await turn.run()
    assert turn.server.requests[0].messages[-1]["content"] == "Hello"


async def test_picture_and_words_for_a_model_without_tools_are_one_message():
    image = values.Image(mime="image/png", data=scripts.PNG)
    replies = [server.text("```python\nplt.show()\n```"), server.text("Look."), server.text("Yes.")]
    async with scripts.open_turn(
        replies, ([image], scripts.OK), protocol="fenced", can_see_images=True
    ) as turn:
        await turn.run()
        turn.transcript.add_user_message(
            "And this?", [chat_messages.Picture("image/png", scripts.PNG)]
        )
        await turn.run()
    roles = [one["role"] for one in turn.server.requests[2].messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    shown = turn.server.requests[2].messages[-1]["content"]
    assert [part["type"] for part in shown] == ["text", "image_url"]


def test_two_models_of_one_title_are_refused():
    models = [settings.Model(name="a"), settings.Model(name="b", label="a")]
    with pytest.raises(errors.SettingsError, match="Two models are called 'a'"):
        catalogues.Catalogue(models, keys={}, patience=settings.Patience())


async def test_models_are_chosen_by_title():
    models = [settings.Model(name="a"), settings.Model(name="b", label="Bee")]
    catalogue = catalogues.Catalogue(models, keys={}, patience=settings.Patience())
    assert catalogue.titles == ("a", "Bee")
    assert catalogue.find_model().name == "a"
    assert catalogue.find_model("Bee").name == "b"
    with pytest.raises(model_errors.UnknownChoiceError, match="There are: a; Bee"):
        await catalogue.open_llm("c")
    await catalogue.close()


async def test_who_asks_a_model_at_the_same_time_asks_the_same_one():
    models = [settings.Model(name="a"), settings.Model(name="b")]
    catalogue = catalogues.Catalogue(models, keys={}, patience=settings.Patience())
    one, same, another = await asyncio.gather(*map(catalogue.open_llm, ("a", "", "b")))
    assert one is same is not another
    await catalogue.close()


async def test_a_model_that_is_open_waits_for_no_other(monkeypatch):
    models = [settings.Model(name="a"), settings.Model(name="b")]
    catalogue = catalogues.Catalogue(models, keys={}, patience=settings.Patience())
    known = await catalogue.open_llm("a")
    may_open, client = threading.Event(), openai_clients.open_client

    def slow(*arguments):
        assert may_open.wait(30)
        return client(*arguments)

    monkeypatch.setattr(openai_clients, "open_client", slow)
    waiting = [asyncio.create_task(catalogue.open_llm("b")) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert await catalogue.open_llm("a") is known
    # One that gives up takes it from nobody else.
    waiting[0].cancel()
    await asyncio.wait({waiting[0]})
    may_open.set()
    one, same = await asyncio.gather(*waiting[1:])
    assert one is same
    await catalogue.close()


async def test_one_that_could_not_be_opened_is_opened_by_who_asks_next(monkeypatch):
    catalogue = catalogues.Catalogue(
        [settings.Model(name="a")], keys={}, patience=settings.Patience()
    )
    tls_contexts.shared_context.cache_clear()
    with monkeypatch.context() as patched:
        patched.setenv("SSL_CERT_FILE", "/nonexistent")
        with pytest.raises(OSError, match="No such file"):
            await catalogue.open_llm()
    assert await catalogue.open_llm() is await catalogue.open_llm("a")
    await catalogue.close()


def test_the_first_model_of_each_protocol_is_opened_early_that_of_the_default_first():
    protocols = ("responses", "chat", "responses", "anthropic", "chat")
    models = [
        settings.Model(name=f"{number}", protocol=one) for number, one in enumerate(protocols)
    ]
    catalogue = catalogues.Catalogue(models, keys={}, patience=settings.Patience())
    assert catalogue.one_title_per_protocol == ("0", "1", "3")


def test_no_model_is_said():
    catalogue = catalogues.Catalogue([], keys={}, patience=settings.Patience())
    with pytest.raises(model_errors.UnknownChoiceError, match="No model is set up"):
        catalogue.find_model()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-3"}, 0.0),
    ],
)
def test_wait_is_read_as_servers_write_it(headers, seconds):
    assert sdk_errors.read_retry_after_seconds(headers) == seconds


@pytest.mark.parametrize("clock", [0.0, 1799.0])
async def test_budget_allows_what_is_left(clock):
    now = [0.0]
    budget = budgets.Budget(settings.TurnLimits(), settings.Model(name="x"), clock=lambda: now[0])
    now[0] = clock
    assert await budget.allot(100) == budgets.Allotment(8192, is_last=False)
    now[0] = 1800.0
    assert isinstance(await budget.allot(100), budgets.Refusal)


async def test_tokens_left_shorten_the_answer():
    budget = budgets.Budget(settings.TurnLimits(tokens=1000), settings.Model(name="x"))
    assert await budget.allot(800) == budgets.Allotment(200, is_last=False)
    budget.charge(values.Usage(800, 150))
    assert isinstance(await budget.allot(0), budgets.Refusal)


async def test_the_servers_script_is_strict():
    async def misuse():
        async with server.Server([server.text("x")]):
            pass

    with pytest.raises(AssertionError, match="not used up"):
        await misuse()
    lines = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {}}]},
        {"role": "user", "content": "y"},
    ]
    body = {"stream": True, "messages": lines, "tools": [{"function": {"name": "python"}}]}
    faults = json.dumps(list(server._chat_faults(body)))
    assert "calls without an answer" in faults
    assert "a tool named 'python'" in faults


def test_ending_of_code_is_never_a_failure_of_the_model():
    assert not {one.value for one in OutcomeKind} & {"error", "crashed"}
    assert values.Ending.STOPPED.value == OutcomeKind.STOPPED.value


class Forgetful:
    """A model whose server refuses all reasoning that is sent back."""

    def __init__(self):
        self.had_reasoning = []

    async def reply(self, prompt, *, emit):
        has_reasoning = prompt.messages[0].reasoning is not None
        self.had_reasoning.append(has_reasoning)
        if has_reasoning:
            raise model_errors.RequestRefusedError
        return chat_messages.ModelReply(text="Hi.")


async def test_reasoning_that_was_refused_twice_is_tried_again_after_a_while(monkeypatch):
    reasoning = chat_messages.Reasoning("model", "{}")
    message = chat_messages.AssistantMessage(text="a", reasoning=reasoning)
    prompt = chat_messages.Prompt(system="", messages=(message,))
    forgetful = Forgetful()
    llm = fallbacks.FallbackLlm(forgetful)

    for _ in range(2):
        assert (await llm.reply(prompt, emit=lambda _: None)).is_reasoning_refused
    forgetful.had_reasoning.clear()
    await llm.reply(prompt, emit=lambda _: None)
    assert forgetful.had_reasoning == [False]

    now = fallbacks.time.monotonic()
    monkeypatch.setattr(fallbacks.time, "monotonic", lambda: now + 3600)
    await llm.reply(prompt, emit=lambda _: None)
    assert forgetful.had_reasoning[1]
