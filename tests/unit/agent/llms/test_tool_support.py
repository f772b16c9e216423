"""A model that cannot call tools is found out, and served all the same."""

import asyncio
import datetime
import json
import re
import threading
import time

import pytest

from interpreter_bot import code_activity, errors, settings, values
from interpreter_bot.agent import (
    budgets,
    chat_messages,
    lenient_json,
    model_errors,
    observations,
    prompt_texts,
)
from interpreter_bot.agent.llms import (
    catalogues,
    openai_clients,
    sdk_errors,
    small_model_remedies,
    tls_contexts,
    tool_support,
)
from interpreter_bot.agent.loops import OutcomeKind
from tests.fakes import openai_server as server
from tests.unit.agent import scripts

FENCED = "Let me see.\n```python\nprint(42)\n```\nThis prints 41."


async def test_fenced_block_is_run_and_what_follows_is_dropped():
    replies = [server.text(*FENCED, fault="stall"), server.text("It is 42.")]
    async with scripts.stage(replies, scripts.printed("42"), protocol="fenced") as stage:
        outcome = await stage.run()
        await stage.server.until_hung_up()
    assert (outcome.ending, outcome.text) == (OutcomeKind.ANSWERED, "It is 42.")
    assert stage.observer.said == "Let me see.\nIt is 42."
    assert "tools" not in stage.server.requests[0].body
    roles = [one["role"] for one in stage.server.requests[1].messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert stage.server.requests[1].messages[2]["content"] == (
        "Let me see.\n\n```python\nprint(42)\n```"
    )
    assert "[Output of the code:]\n42" in stage.server.requests[1].messages[3]["content"]


CALL = '```json\n{"name": "run_code", "arguments": {"code": """print(42)"""}}\n```'
SHOWN = 'Only to be read:\n```python\nos.remove("important.csv")\n```\n'


def offered(stage):
    return ["tools" in one.body for one in stage.server.requests]


@pytest.mark.parametrize("protocol", ["auto", "chat", "responses", "anthropic"])
async def test_call_as_text_is_run_as_a_call(protocol):
    replies = [server.text("Now:\n", *CALL), server.text("It is 42."), server.text("Yes.")]
    async with scripts.stage(replies, scripts.printed("42"), protocol=protocol) as stage:
        outcome = await stage.run()
        stage.transcript.add_user_message("Sure?")
        await stage.run()
    assert outcome.text == "It is 42."
    assert stage.environment.ran == ["print(42)"]
    assert offered(stage) == [True] * 3
    assert stage.observer.of("announcement") == []
    assert stage.observer.said == "Now:\nIt is 42.Yes."


@pytest.mark.parametrize("protocol", ["auto", "chat", "responses", "anthropic"])
async def test_call_in_an_unknown_markup_is_not_run_and_the_model_is_told(protocol):
    unknown = '<|strange|>{"tool": "run_code", "code": oops}'
    replies = [server.text(*unknown), server.code("1"), server.text("Done.")]
    async with scripts.stage(replies, scripts.printed("1"), protocol=protocol) as stage:
        outcome = await stage.run()
    assert (outcome.ending, outcome.text) == (OutcomeKind.ANSWERED, "Done.")
    assert stage.environment.ran == ["1"]
    assert "nothing was run" in json.dumps(stage.server.requests[1].messages[-1])


async def test_model_that_only_writes_unknown_markup_ends_in_a_sentence():
    replies = [server.text("<call:run_code>print(1)</call>")] * 4
    async with scripts.stage(replies) as stage:
        outcome = await stage.run()
    assert (outcome.ending, outcome.text) == (OutcomeKind.MALFORMED, "")
    assert (
        outcome.sentence
        == "The model tried to run code in a form that the bot cannot read. Ask again."
    )
    assert stage.observer.said == ""


async def test_thoughts_of_a_model_whose_server_opens_them_are_seen_by_nobody():
    thinking = "Okay, the user wants 6*7.\n```python\nprint(1)\n```\n</think>\n\n"
    replies = [server.text(*thinking, *"It is 42."), server.text(*thinking, *"Yes.")]
    async with scripts.stage(replies) as stage:
        outcome = await stage.run()
        stage.transcript.add_user_message("Sure?")
        await stage.run()
    assert outcome.text == "It is 42."
    assert stage.observer.said == "It is 42.Yes."


@pytest.mark.parametrize("protocol", ["auto", "chat", "responses"])
async def test_code_that_a_new_model_only_shows_is_never_run(protocol):
    replies = [server.text(*SHOWN), server.text(*SHOWN), server.code("1"), server.text("Done.")]
    async with scripts.stage(replies, scripts.printed("1"), protocol=protocol) as stage:
        outcome = await stage.run()
        for _ in range(2):
            stage.transcript.add_user_message("And how else? Do not run it.")
            await stage.run()
    assert outcome.text == SHOWN.strip()
    assert stage.environment.ran == ["1"]
    assert offered(stage) == [True] * 4
    assert stage.observer.of("announcement") == []


async def test_code_that_a_model_shows_after_it_has_called_is_never_run():
    replies = [server.code("1"), server.text(*SHOWN)]
    async with scripts.stage(replies, scripts.printed("1")) as stage:
        outcome = await stage.run()
    assert outcome.text == SHOWN.strip()
    assert stage.environment.ran == ["1"]


async def test_answer_that_ends_in_a_stray_tag_is_an_answer():
    async with scripts.stage([server.text("Hello."), server.text("It is 42.</think>")]) as stage:
        await stage.run()
        stage.transcript.add_user_message("Sure?")
        outcome = await stage.run()
    assert (outcome.ending, outcome.text) == (OutcomeKind.ANSWERED, "It is 42.")


async def test_server_that_takes_tools_again_is_given_them(monkeypatch):
    monkeypatch.setattr(tool_support, "_TRIAL_SECONDS", 0.0)
    refused = server.failure(400, "registry.ollama.ai/library/x does not support tools")
    replies = [refused, server.text("Hello."), server.code("1"), server.text("It is 1.")]
    async with scripts.stage(replies, scripts.printed("1")) as stage:
        await stage.run()
        stage.transcript.add_user_message("Again.")
        await stage.run()
    assert offered(stage) == [True, False, True, True]
    assert stage.observer.of("announcement")[1:] == [
        "This model's server accepts tools again. Code blocks in its answers are only shown."
    ]


async def test_server_that_refuses_tools_is_asked_without():
    replies = [
        server.failure(400, "registry.ollama.ai/library/x does not support tools"),
        server.text("```python\nprint(42)\n```"),
        server.text("42"),
    ]
    async with scripts.stage(replies, scripts.printed("42")) as stage:
        outcome = await stage.run()
    assert outcome.text == "42"
    assert "does not accept tools" in stage.observer.of("announcement")[0]


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
    async with scripts.stage([server.text("Hi.")], name="tiny-1.5b", protocol=protocol) as stage:
        await stage.run()
    assert offered(stage) == [has_tools]
    assert stage.observer.of("announcement") == []


@pytest.mark.parametrize(
    ("message", "before", "after"),
    [
        (
            "Unsupported parameter: 'max_tokens' is not supported",
            "max_tokens",
            "max_completion_tokens",
        ),
        ("Unsupported value: 'temperature' does not support 0.2", "temperature", None),
        ("Unknown field stream_options", "stream_options", None),
    ],
)
async def test_parameter_that_a_server_refuses_is_left_out_from_then_on(message, before, after):
    replies = [server.failure(400, message), server.text("Hi."), server.text("Ho.")]
    async with scripts.stage(replies, protocol="chat", temperature=0.2) as stage:
        assert (await stage.run()).text == "Hi."
        stage.transcript.add_user_message("again")
        assert (await stage.run()).text == "Ho."
    bodies = [one.body for one in stage.server.requests]
    assert [before in body for body in bodies] == [True, False, False]
    assert after is None or [after in body for body in bodies] == [False, True, True]


@pytest.mark.parametrize("call_id", ["", "same"])
async def test_calls_without_index_or_ids_of_their_own_are_told_apart(call_id):
    calls = [("run_code", '{"code": "1"}'), ("list_files", "{}")]
    both = server.Reply(calls=calls, finish="tool_calls", call_id=call_id, has_index=bool(call_id))
    async with scripts.stage([both, server.text("ok")], scripts.printed("1")) as stage:
        outcome = await stage.run()
    assert outcome.text == "ok"
    ids = [one["id"] for one in stage.server.requests[1].messages[2]["tool_calls"]]
    assert len(set(ids)) == 2


# What pandas prints is no answer as it stands.
TABLE = "dogs\nBella  42"
DATA = "[The person sent the file 'a.csv'; it is at /mnt/data/a.csv.]\n\nHow many are there?"


async def test_model_without_tools_is_reminded_to_compute_where_there_is_data():
    replies = [server.text("```python\nprint(42)\n```"), server.text("42"), server.text("Hello!")]
    async with scripts.stage(
        replies, scripts.printed(TABLE), protocol="fenced", name="tiny-1b", question=DATA
    ) as stage:
        await stage.run()
        stage.transcript.add_user_message("Thanks.")
        await stage.run()
    said = [one.messages[-1]["content"] for one in stage.server.requests]
    reminder = prompt_texts.read("reminder").format(way="reads the file")
    assert [reminder in one for one in said] == [True, False, False]
    # "Thanks." wants no code, and a model that is told of a way out takes it.
    assert [prompt_texts.read("reminder_talk") in one for one in said] == [False, False, True]
    stored = json.dumps([chat_messages.to_dict(one) for one in stage.transcript.entries])
    assert "python block now" not in stored


async def test_figures_of_a_model_that_ran_no_code_are_seen_by_nobody():
    replies = [
        server.text("The mean is 15.3."),
        # The server is hung up on at the end of the block, before it says what it counted.
        server.text("Let me see.\n", "```python\nprint(4.5)\n```\n", "Then.", fault="stall"),
        server.text("It is 4.5."),
    ]
    async with scripts.stage(
        replies, scripts.printed("4.5"), protocol="fenced", question=DATA
    ) as stage:
        outcome = await stage.run()
    assert outcome.text == "It is 4.5."
    # Three prompts of 100 tokens; the second, with the first answer in it, was not counted.
    usage = outcome.spent
    assert (usage.input_tokens, usage.is_estimated) == (100 + 120 + 100, True)
    assert 20 + 20 < usage.output_tokens < 100
    assert stage.observer.said == "Let me see.\nIt is 4.5."
    first, second, third = (one.messages for one in stage.server.requests)
    assert [one["content"] for one in second[len(first) :]] == [
        "The mean is 15.3.",
        prompt_texts.read("guessed"),
    ]
    assert "15.3" not in json.dumps(third)


@pytest.mark.parametrize(
    "answer",
    [
        *("It has 3 columns.", "You are welcome!", "7", "The year 2030", "29.7 on average"),
        *("1. Look at it.\n2. Count.", "**11.** Look.\n  - Step 12: count.", "\n" * 60_000),
    ],
)
def test_a_model_without_tools_may_say_what_it_was_told(answer):
    question = "[a.csv is at /mnt/data/a.csv. 7 rows, 3 columns.]\n29.699\n\nAll columns"
    system = "Today is 2030-01-31."
    prompt = chat_messages.Prompt(system=system, messages=(chat_messages.UserMessage(question),))
    started = time.process_time()
    assert not small_model_remedies.objection(
        chat_messages.ModelReply(text=answer), prompt, is_small=True
    )
    assert time.process_time() - started < 2
    assert small_model_remedies.objection(
        chat_messages.ModelReply(text=f"{answer} 12.5"), prompt, is_small=True
    )


async def test_model_without_tools_is_told_again_what_was_asked_when_it_has_an_output():
    replies = [server.text("```python\nprint(42)\n```"), server.text("It is 42.")]
    async with scripts.stage(
        replies, scripts.printed(TABLE), protocol="fenced", name="tiny-1b", question=DATA
    ) as stage:
        await stage.run()
    told = stage.server.requests[1].messages[-1]["content"]
    assert told.startswith(f"[Output of the code:]\n{TABLE}")
    assert told.endswith(
        prompt_texts.read("reminder_output").format(question="How many are there?")
    )
    assert "The person asked" not in json.dumps(
        [chat_messages.to_dict(one) for one in stage.transcript.entries]
    )


@pytest.mark.parametrize(
    ("output", "is_nothing"),
    [
        *(("0", True), ("Loans that are out: 0\n", True), ("nan", True), ("share: 0.0%", True)),
        *(("Empty DataFrame\nColumns: [a]\nIndex: []", True), ("[]", True)),
        *(("Series([], dtype: float64)", True), ("Ana earns $nan", True)),
        *(("group\na   NaN\nb   NaN\nName: pay, dtype: float64", True), ("a  NaN\nb  NaN\n", True)),
        *(("group\na   NaN\nb   4.0\nName: pay", False), ("a  4.0\nb  NaN\nc  NaN\n", False)),
        *(("[10]", False), ("[0.05]", False), ("0    0\n1    3", False)),
    ],
)
async def test_output_of_nothing_is_looked_into_once(output, is_nothing):
    replies = [server.text(f"```python\nprint({one})\n```") for one in "ab"]
    replies += [server.text("None.")]
    played = [scripts.printed(output)] * 2
    async with scripts.stage(
        replies, *played, protocol="fenced", name="tiny-1b", question=DATA
    ) as stage:
        await stage.run()
    hint = f"{observations.MISSING_VALUES} {observations.NUMBERS_IN_TEXT}"
    nothing, something = (
        prompt_texts.read(name).format(question="How many are there?", hint=hint)
        for name in ("reminder_nothing", "reminder_output")
    )
    second, third = (one.messages[-1]["content"] for one in stage.server.requests[1:])
    assert second.endswith(nothing if is_nothing else something)
    assert third.endswith(something)


@pytest.mark.parametrize(
    ("output", "is_cut"),
    [
        *(("0 1\n      ... \n9 9\nLength: 200", True), ("   a\n0  1\n..  ..\n9  9", True)),
        *(("<Array>\n['a']\nLength: 1", False), ("[To do ...", False)),
        *(("Fir > Ash > " * 40, True), ("Some words\n" * 40, False)),
    ],
)
async def test_long_list_is_taken_for_no_answer(output, is_cut):
    replies = [server.text("```python\nprint(1)\n```"), server.text("None.")]
    async with scripts.stage(
        replies, scripts.printed(output), protocol="fenced", name="tiny-1b", question=DATA
    ) as stage:
        await stage.run()
    told = stage.server.requests[1].messages[-1]["content"]
    assert ("too long to be the answer" in told) is is_cut


@pytest.mark.parametrize(
    ("code", "output", "hint"),
    [
        ("d[d['back'] == '']", "0", observations.MISSING_VALUES),
        ("pd.to_numeric(d['pay'], errors = 'coerce')", "nan", observations.NUMBERS_IN_TEXT),
        ("pd.to_numeric(d['pay'], errors='coerce')", None, observations.NUMBERS_IN_TEXT),
        ("d['cost'].sum()", "€6.33€25.16" * 40, observations.NUMBERS_IN_TEXT),
        ("d['cost'].sum()", None, ""),
    ],
)
async def test_code_that_came_to_nothing_is_told_what_it_did_not_reckon_with(code, output, hint):
    replies = [server.text(f"```python\n{code}\n```"), server.text("None.")]
    played = scripts.printed(output) if output else scripts.raised("IndexError", "out of bounds")
    async with scripts.stage(
        replies, played, protocol="fenced", name="tiny-1b", question=DATA
    ) as stage:
        await stage.run()
    told = stage.server.requests[1].messages[-1]["content"]
    hints = (observations.MISSING_VALUES, observations.NUMBERS_IN_TEXT)
    assert [one in told for one in hints] == [one == hint for one in hints]
    # It forgets what was asked while it mends.
    assert "[The person asked: How many are there?" in told


@pytest.mark.parametrize(
    ("output", "is_bare"),
    [
        *(("0.707\n", True), ("2025-01", True), ("Ana Costa", True), ("48.5 %", True)),
        *(("Castle lent 42 books.", True), ("Loans: 8\nWith a fine: 1\n", True)),
        *(("0", False), ("[1, 2]", False), ("8\n1", False), ("Castle  42\nHarbour  -", False)),
        *(("a b\n" * 6, False), ("word " * 100, False), ("Ana Costa earns $nan", False)),
        *(("month 4\nName: kwh, dtype: int64", False), ("{'a': 1}", False)),
    ],
)
async def test_words_that_a_small_model_prints_is_the_answer_as_it_stands(output, is_bare):
    replies = [server.text("```python\nprint(1)\n```")]
    replies += [] if is_bare else [server.text("None.")]
    async with scripts.stage(
        replies, scripts.printed(output), protocol="fenced", question=DATA, name="tiny-1b"
    ) as stage:
        outcome = await stage.run()
    assert outcome.text == stage.observer.said == (output.strip() if is_bare else "None.")


async def test_question_is_no_answer_to_itself():
    question = "How many are there?"
    replies = [server.text("```python\nprint(42)\n```"), server.text(question), server.text("42.")]
    async with scripts.stage(
        replies, scripts.printed(TABLE), protocol="fenced", name="tiny-1b", question=DATA
    ) as stage:
        assert (await stage.run()).text == stage.observer.said == "42."


async def test_figures_that_no_output_holds_are_seen_by_nobody():
    replies = [
        server.text("```python\nprint(0.4846, 24.394)\n```"),
        server.text("It is 48.46%, after 24.43 days."),
        server.text("It is 48.46%, after 24.39 days."),
    ]
    async with scripts.stage(
        replies,
        scripts.printed("a  0.4846\nb  24.394"),
        protocol="fenced",
        name="tiny-1b",
        question=DATA,
    ) as stage:
        assert (await stage.run()).text == stage.observer.said == "It is 48.46%, after 24.39 days."
    told = stage.server.requests[2].messages[-1]["content"]
    assert told == prompt_texts.read("misquoted").format(figures="24.43")


SERIES = "branch\nCastle         28\nNew Harbour    24\nName: count, dtype: int64"


@pytest.mark.parametrize(
    ("output", "answer", "rows"),
    [
        (SERIES, "Castle", "New Harbour"),
        (SERIES, "All changed by 28.", "Castle, New Harbour"),
        ("a    1.5\nb   -2.0\ndtype: float64", "It is after 1.5.", "a, b"),
        (SERIES, "castle and **New Harbour**", ""),
        (SERIES.replace("\nNew Harbour    24", ""), "One.", ""),
        ("   branch  count\n0  Castle     28\n1  Harbour    24", "Castle", ""),
        ("\n".join(f"x{n}    1" for n in range(13)), "x1", ""),
        ("0    28\n1    24\nName: count, dtype: int64", "28 and 24", ""),
    ],
)
async def test_answer_that_leaves_rows_out_is_asked_for_again(output, answer, rows):
    replies = [server.text("```python\nprint(1)\n```"), server.text(answer)]
    replies += [server.text("Both of them.")] if rows else []
    async with scripts.stage(
        replies, scripts.printed(output), protocol="fenced", name="tiny-1b", question=DATA
    ) as stage:
        outcome = await stage.run()
    assert outcome.text == stage.observer.said == ("Both of them." if rows else answer)
    if rows:
        told = stage.server.requests[2].messages[-1]["content"]
        assert told == prompt_texts.read("left_out").format(rows=rows)


@pytest.mark.parametrize("answer", ["Harbour.", "I'm sorry, I cannot know.", "It is 42."])
async def test_question_about_data_is_not_answered_before_code_ran(answer):
    told = "[a.csv is at /mnt/data/a.csv. 42 rows.]\nFirst rows:\n42,Harbour\n\nWhich branch is it?"
    replies = [server.text(answer), server.text("```python\n1\n```"), server.text("It is Castle.")]
    async with scripts.stage(
        replies,
        scripts.printed("branch\nCastle  2"),
        protocol="fenced",
        name="tiny-1b",
        question=told,
    ) as stage:
        assert (await stage.run()).text == stage.observer.said == "It is Castle."


async def test_answer_in_words_that_came_as_a_block_of_code_is_heard():
    prose = "Loans that are out: 29\nmost at Castle"
    replies = [server.text("```python\nprint(29)\n```"), server.text(f"```python\n{prose}\n```")]
    async with scripts.stage(
        replies, scripts.printed("29"), protocol="fenced", question=DATA
    ) as stage:
        assert (await stage.run()).text == stage.observer.said.strip() == prose
    assert stage.environment.ran == ["print(29)\n"]


@pytest.mark.parametrize(
    ("code", "is_prose"),
    [
        *(("Loans: 29 of 260", True), ("The mean is\n4.5 days.", True), ("", False)),
        *(("x = 1\nwhat is this", False), ("%time x", False), ("!ls -l", False), ("x", False)),
        *(("print('a", False), ("for a in b:\n  c.d", False), ("# only words", False)),
    ],
)
def test_words_are_told_from_code(code, is_prose):
    assert lenient_json.is_prose(code) is is_prose


async def test_look_that_found_nothing_is_forgotten_once_another_was_taken():
    replies = [server.text(f"```python\nprint({n})\n```") for n in (1, 2)] + [server.text("29")]
    played = [scripts.printed("0"), scripts.printed("29")]
    async with scripts.stage(replies, *played, protocol="fenced", question=DATA) as stage:
        assert (await stage.run()).text == "29"
    seen = [json.dumps(one.messages) for one in stage.server.requests]
    assert ["print(1)" in one for one in seen] == [False, True, False]
    assert "print(2)" in seen[2]


async def test_look_that_found_nothing_is_forgotten_when_it_is_taken_again():
    looks = [server.text(f"```python\nprint({one})\n```") for one in "aab"]
    played = [scripts.printed("0"), scripts.printed("29")]
    async with scripts.stage(
        looks, *played, protocol="fenced", name="tiny-1b", question=DATA
    ) as stage:
        assert (await stage.run()).text == "29"
    first, _, third = (one.messages for one in stage.server.requests)
    assert len(third) == len(first)
    assert "An output of nothing" in third[-1]["content"]
    assert not re.search(r"print|Not run again", third[-1]["content"])


async def test_model_that_must_answer_sees_what_it_found():
    replies = [server.text("```python\nprint(a)\n```")] * 3 + [server.text("There are 0.")]
    async with scripts.stage(
        replies, scripts.printed("0"), protocol="fenced", name="tiny-1b", question=DATA
    ) as stage:
        assert (await stage.run()).text == "There are 0."
    assert "[Output of the code:]\n0" in json.dumps(stage.server.requests[3].messages)[1:].replace(
        "\\n", "\n"
    )


@pytest.mark.parametrize("guess", ["print(13)", "print('There are')\nprint(13)"])
async def test_figure_that_is_only_printed_is_no_output(guess):
    blocks = ["print(a)", guess, "print(b)"]
    replies = [server.text(f"```python\n{one}\n```") for one in blocks]
    played = [scripts.printed("0"), scripts.printed("29")]
    async with scripts.stage(
        replies, *played, protocol="fenced", name="tiny-1b", question=DATA
    ) as stage:
        assert (await stage.run()).text == stage.observer.said == "29"
    assert stage.environment.ran == ["print(a)\n", "print(b)\n"]
    told = stage.server.requests[2].messages[-1]["content"]
    assert told == prompt_texts.read("misquoted").format(figures="13")


@pytest.mark.parametrize(
    "code", ["print(a)", "print(1 + 1)", "print(1, a)", "a = 1", "print(", "1"]
)
def test_what_computes_is_no_mere_print(code):
    assert lenient_json.printed_text(code) == ""


def test_small_model_reads_less():
    day = datetime.date(2026, 11, 21)
    short, long = (
        prompt_texts.system(settings.Limits(), today=day, note="Be kind.", is_small=is_small)
        for is_small in (True, False)
    )
    assert len(short) < len(long) / 5
    for part in ("/mnt/data", "Be kind."):
        assert part in short


async def test_one_that_insists_on_its_figures_is_heard():
    replies = [server.text("It is 5."), server.text("I say 5.")]
    async with scripts.stage(replies, protocol="fenced", question=DATA) as stage:
        assert (await stage.run()).text == stage.observer.said == "I say 5."


async def test_words_that_were_held_back_are_heard_when_the_turn_is_stopped():
    stop = asyncio.Event()
    slow = server.text("The mean ", "is 15.", fault="stall")
    async with scripts.stage([slow], protocol="fenced", question=DATA) as stage:
        running = asyncio.create_task(stage.run(stop=stop))
        async with asyncio.timeout(30):
            await stage.server.stalled.wait()
        # What was sent has arrived by then: both ends are on this event loop.
        await asyncio.sleep(0.2)
        assert len(stage.server.requests) == 1
        assert stage.observer.said == ""
        stop.set()
        assert (await running).text == stage.observer.said == "The mean is 15."


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("plot petal length by species", "reminder_groups"),
        ("plot a histogram of petal length by species", "reminder_picture"),
        ("Two charts, please", "reminder_picture"),
        ("Who is it?", "reminder_talk"),
        ("Who is the tallest here?", "reminder"),
        ("How many games ended in a draw?", "reminder"),
    ],
)
async def test_who_wants_a_picture_is_to_get_one(words, name):
    question = f"[The file draw.csv is at /mnt/data/draw.csv.]\n\n{words}"
    block = server.text("```python\n1\n```")
    async with scripts.stage(
        [block, server.text("ok")],
        scripts.printed(TABLE),
        protocol="fenced",
        name="tiny-1b",
        question=question,
    ) as stage:
        await stage.run()
    reminder = prompt_texts.read(name).format(way="reads the file")
    assert stage.server.requests[0].messages[-1]["content"].endswith(reminder)


QUERY = 'connections["shop"].query("SELECT …")'
SHOP = code_activity.Offer("connections", "shop", "orders", "  orders(id, region)")


async def test_a_small_model_is_told_how_the_database_is_asked_until_it_has_asked():
    own = "```python\nimport sqlite3\nsqlite3.connect('shop.db').execute('SELECT {}')\n```"
    replies = [*(server.text(own.format(number)) for number in range(3)), server.text("42")]
    error = scripts.raised("OperationalError", "no such table: orders")
    async with scripts.stage(
        replies,
        *[error] * 2,
        scripts.printed(TABLE),
        protocol="fenced",
        name="tiny-1b",
        question="How many orders by region, as a chart?",
    ) as stage:
        stage.system = prompt_texts.system(
            settings.Limits(),
            today=datetime.date(2030, 1, 1),
            reach=code_activity.Reach(offers=(SHOP,)),
            is_small=True,
        )
        await stage.run()
    said = [one.messages[-1]["content"] for one in stage.server.requests]
    assert f"asks {QUERY}" in said[0]
    only = [f"Only {QUERY} reaches the database" in one for one in said]
    assert only == [False, True, True, False]


@pytest.mark.parametrize(
    ("question", "has_connection"),
    [
        (DATA, False),
        (DATA, True),
        ("Install the package greeter, and print its version", True),
    ],
)
async def test_no_model_is_told_of_a_database_that_is_not_meant(question, has_connection):
    async with scripts.stage(
        [*(server.text(f"```python\n{number}\n```") for number in range(3)), server.text("42")],
        *[scripts.raised()] * 2,
        scripts.printed(TABLE),
        protocol="fenced",
        name="tiny-1b",
        question=question,
    ) as stage:
        stage.system = prompt_texts.system(
            settings.Limits(),
            today=datetime.date(2030, 1, 1),
            reach=code_activity.Reach(offers=(SHOP,) * has_connection),
            is_small=True,
        )
        await stage.run()
    assert QUERY not in str([one.messages[1:] for one in stage.server.requests])


async def test_model_without_tools_is_left_alone_where_there_is_no_data():
    async with scripts.stage([server.text("Hi.")], protocol="fenced", question="Hello") as stage:
        await stage.run()
    assert stage.server.requests[0].messages[-1]["content"] == "Hello"


async def test_refused_repeat_is_not_shown_to_a_model_that_would_write_it_again():
    block = server.text("```python\n6*7\n```")
    replies = [block, block, server.text("42")]
    async with scripts.stage(
        replies, scripts.printed("42"), protocol="fenced", question=DATA
    ) as stage:
        assert (await stage.run()).text == "42"
    said = stage.server.requests[2].messages
    assert [one["role"] for one in said] == ["system", "user", "assistant", "user"]
    assert "42" in said[-1]["content"]
    assert "[Not run again" in said[-1]["content"]


async def test_tries_that_failed_in_a_row_are_not_shown_again():
    code = ["1/0", "2/0", "3/0", "print(42)"]
    replies = [server.text(f"```python\n{one}\n```") for one in code] + [server.text("42")]
    errors = [scripts.raised("ZeroDivisionError", f"error {n}") for n in range(3)]
    async with scripts.stage(
        replies, *errors, scripts.printed("42"), protocol="fenced", question=DATA
    ) as stage:
        assert (await stage.run()).text == "42"
    seen = [json.dumps(one.messages[1:]) for one in stage.server.requests]
    assert "1/0" in seen[1]
    assert [("/0" in one, "Begin anew" in one) for one in seen[2:4]] == [(False, True)] * 2
    assert "3 tries at this failed" in seen[3]
    assert "ZeroDivisionError: error 2" in seen[3]
    assert "print(42)" in seen[4]


async def test_the_error_that_is_told_of_forgotten_tries_is_an_error():
    replies = [server.text(f"```python\n{n}\n```") for n in range(3)] + [server.text("42")]
    errors = [scripts.raised("KeyError", f"'{n}'") for n in range(2)]
    async with scripts.stage(
        replies, *errors, scripts.printed("42"), protocol="fenced", question=DATA
    ) as stage:
        await stage.run()
    told = stage.server.requests[2].messages[-1]["content"]
    assert "the last with \"KeyError: '1'\"" in told
    # What helps stays, with the tries gone that it was said of.
    assert told.index("There is no such name in the data") < told.index("2 tries")


async def test_picture_and_words_for_a_model_without_tools_are_one_message():
    image = values.Image(mime="image/png", data=scripts.PNG)
    replies = [server.text("```python\nplt.show()\n```"), server.text("Look."), server.text("Yes.")]
    async with scripts.stage(
        replies, ([image], scripts.OK), protocol="fenced", can_see_images=True
    ) as stage:
        await stage.run()
        stage.transcript.add_user_message(
            "And this?", [chat_messages.Picture("image/png", scripts.PNG)]
        )
        await stage.run()
    roles = [one["role"] for one in stage.server.requests[2].messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    shown = stage.server.requests[2].messages[-1]["content"]
    assert [part["type"] for part in shown] == ["text", "image_url", "text"]


def test_two_models_of_one_title_are_refused():
    models = [settings.Model(name="a"), settings.Model(name="b", label="a")]
    with pytest.raises(errors.SettingsError, match="Two models are called 'a'"):
        catalogues.Catalogue(models, keys={}, patience=settings.Patience())


async def test_models_are_chosen_by_title():
    models = [settings.Model(name="a"), settings.Model(name="b", label="Bee")]
    catalogue = catalogues.Catalogue(models, keys={}, patience=settings.Patience())
    assert catalogue.titles == ("a", "Bee")
    assert catalogue.model().name == "a"
    assert catalogue.model("Bee").name == "b"
    with pytest.raises(model_errors.UnknownChoiceError, match="There are: a; Bee"):
        await catalogue.llm("c")
    await catalogue.close()


async def test_who_asks_a_model_at_the_same_time_asks_the_same_one():
    models = [settings.Model(name="a"), settings.Model(name="b")]
    catalogue = catalogues.Catalogue(models, keys={}, patience=settings.Patience())
    one, same, another = await asyncio.gather(*map(catalogue.llm, ("a", "", "b")))
    assert one is same is not another
    await catalogue.close()


async def test_a_model_that_is_open_waits_for_no_other(monkeypatch):
    models = [settings.Model(name="a"), settings.Model(name="b")]
    catalogue = catalogues.Catalogue(models, keys={}, patience=settings.Patience())
    known = await catalogue.llm("a")
    may_open, client = threading.Event(), openai_clients.client

    def slow(*arguments):
        assert may_open.wait(30)
        return client(*arguments)

    monkeypatch.setattr(openai_clients, "client", slow)
    waiting = [asyncio.create_task(catalogue.llm("b")) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert await catalogue.llm("a") is known
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
    tls_contexts.shared.cache_clear()
    with monkeypatch.context() as patched:
        patched.setenv("SSL_CERT_FILE", "/nonexistent")
        with pytest.raises(OSError, match="No such file"):
            await catalogue.llm()
    assert await catalogue.llm() is await catalogue.llm("a")
    await catalogue.close()


def test_the_first_model_of_each_protocol_is_opened_early_that_of_the_default_first():
    protocols = ("responses", "chat", "responses", "anthropic", "chat")
    models = [
        settings.Model(name=f"{number}", protocol=one) for number, one in enumerate(protocols)
    ]
    catalogue = catalogues.Catalogue(models, keys={}, patience=settings.Patience())
    assert catalogue.first_titles == ("0", "1", "3")


def test_no_model_is_said():
    catalogue = catalogues.Catalogue([], keys={}, patience=settings.Patience())
    with pytest.raises(model_errors.UnknownChoiceError, match="No model is set up"):
        catalogue.model()


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
    assert sdk_errors.retry_after_seconds(headers) == seconds


@pytest.mark.parametrize("clock", [0.0, 1799.0])
async def test_budget_allows_what_is_left(clock):
    now = [0.0]
    budget = budgets.Budget(settings.TurnLimits(), settings.Model(name="x"), clock=lambda: now[0])
    now[0] = clock
    assert await budget.ask(100) == budgets.Allotment(8192, is_last=False)
    now[0] = 1800.0
    assert isinstance(await budget.ask(100), budgets.Refusal)


async def test_tokens_left_shorten_the_answer():
    budget = budgets.Budget(settings.TurnLimits(tokens=1000), settings.Model(name="x"))
    assert await budget.ask(800) == budgets.Allotment(200, is_last=False)
    budget.charge(values.Usage(800, 150))
    assert isinstance(await budget.ask(0), budgets.Refusal)


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
